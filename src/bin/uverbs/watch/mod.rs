//! `uverbs watch`: packets being counted.

mod reading;
pub(crate) mod source;
pub(crate) mod spec;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use uverbs::soft::Profile;
use uverbs::{AnyRule, Eth, FlowRule};

use self::reading::Reading;
use self::source::{Running, Source};
use self::spec::Spec;
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::info::words;
use crate::job::Job;
use crate::output::Output;
use crate::stop::Stop;
use crate::target::Target;
use crate::units;

/// Longest time between two looks at the receive queue and at signals.
const NAP: Duration = Duration::from_millis(2);

/// How long nothing may come before that is worth a remark.
const QUIET: Duration = Duration::from_secs(3);

/// Options of `uverbs watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The device: a name such as mlx5_0, a device file such as /dev/infiniband/uverbs0, or soft0.
    #[arg(long, value_name = "DEV")]
    device: String,
    /// The port, from 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    port: u8,
    /// Count the packets for this MAC address.
    #[arg(long, value_name = "MAC", value_parser = units::mac, conflicts_with = "rule")]
    dst_mac: Option<[u8; 6]>,
    /// Count the packets that this rule matches, such as 'ip dst 10.0.0.1 and udp' (see docs/guide/rules.md). Default on the soft
    /// device: all packets.
    #[arg(long, value_name = "TEXT")]
    rule: Option<String>,
    /// Time between two readings: 1s, 100ms, 2m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    interval: Duration,
    /// End after this number of readings.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Soft device only: the packets of a pcap or pcapng file. Without --count the program ends with the file.
    #[arg(long, value_name = "FILE", conflicts_with = "generate")]
    pcap: Option<PathBuf>,
    /// Soft device only: generated UDP packets, such as rate=1000,size=64,flows=4 (rate=unlimited: as fast as possible). This is
    /// the default, with 10000 packets per second.
    #[arg(long, value_name = "SPEC")]
    generate: Option<Spec>,
    /// Soft device only: accept rules that mlx5's driver refuses, on time to live, hop limit, ESP and GRE's first word.
    #[arg(long)]
    wide_rules: bool,
    /// Print one JSON object per reading.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, trace: bool) -> Outcome {
    let mut target = Target::find(&args.device, trace)?;
    if args.wide_rules {
        target = target.with_profile(Profile::default().with_wide_rules(true))?;
    }
    let rule = args.rule(&target)?;
    let stop = Stop::on_signals()?;
    let source = args.source(&target, &AnyRule::Normal(rule.clone()))?;
    let mut job = Job::start(&target, args.port, rule)?;
    let running = match (source, target.soft) {
        (Some(source), Some(soft)) => Some(source.start(soft)?),
        _ => None,
    };
    let mut output = Output::new();
    let begun = Instant::now();
    let mut watch =
        Watch { args, stop, job: &mut job, running, previous: Reading::default(), begun, told: false };
    let watched = watch.readings(&mut output);
    // After an error the traffic has not been stopped yet.
    let stopped = watch.running.take().map_or(Ok(()), |running| running.stop().1);
    let ended = output.end_progress();
    if let Some(status) = job.broken {
        failure::remark(format_args!("receiving ended early, counting did not: {status}"));
    }
    let released = job.release().map_err(Failure::from);
    failure::first([watched, stopped, ended, released])
}

impl Args {
    /// The rule that counts.
    fn rule(&self, target: &Target) -> Outcome<FlowRule> {
        if let Some(mac) = self.dst_mac {
            return Ok(FlowRule::normal(self.port).eth(Eth::any().dst(mac)));
        }
        let Some(text) = &self.rule else {
            if target.soft.is_some() {
                return Ok(FlowRule::normal(self.port));
            }
            let text = "say what to count with --dst-mac or --rule; a rule for all packets ('any') takes them \
                        away from the host";
            return Err(Failure::Usage(text.to_owned()));
        };
        match AnyRule::parse(text, self.port)? {
            AnyRule::Normal(rule) => Ok(rule),
            _ => Err(Failure::Usage("--rule: only a rule that matches headers can count".to_owned())),
        }
    }

    /// Where packets come from, on a soft device.
    fn source(&self, target: &Target, rule: &AnyRule) -> Outcome<Option<Source>> {
        if target.soft.is_none() {
            return match (&self.pcap, &self.generate) {
                (None, None) => Ok(None),
                _ => Err(Failure::Unsupported(format!(
                    "--pcap and --generate are for the soft device; {} counts the packets from its wire",
                    target.device.name()
                ))),
            };
        }
        if let Some(path) = &self.pcap {
            return Source::capture(path).map(Some);
        }
        let spec = self.generate.clone().unwrap_or_default();
        spec.traffic(Some(rule)).map(|traffic| Some(Source::Generator(traffic))).map_err(Failure::Usage)
    }
}

/// A watch under way.
struct Watch<'a> {
    args: &'a Args,
    stop: Stop,
    job: &'a mut Job,
    running: Option<Running>,
    previous: Reading,
    begun: Instant,
    /// It has been said that nothing comes, or something came.
    told: bool,
}

impl Watch<'_> {
    fn readings(&mut self, output: &mut Output) -> Outcome {
        let start = self.begun;
        let mut due = start;
        for number in 1.. {
            // One that was missed (the process was stopped) is not made up for.
            due = (due + self.args.interval).max(Instant::now());
            let ended = self.wait(due, output)?;
            let last = ended || self.args.count == Some(number);
            let mut told = Ok(());
            let mut offered = self.running.as_ref().map(Running::frames);
            if last {
                // The last reading has the totals: all of a capture, and nothing on its way any more.
                while self.running.as_ref().is_some_and(Running::goes_on) && !self.stop.is_set() {
                    self.job.drain()?;
                    thread::sleep(NAP);
                }
                if let Some(running) = self.running.take() {
                    let (frames, result) = running.stop();
                    (offered, told) = (Some(frames), result);
                }
                self.job.drain()?;
            }
            let (packets, bytes) = self.job.read()?;
            let reading = Reading::new(&self.previous, start.elapsed(), packets, bytes)
                .with_traffic(self.job.received, offered);
            match self.args.json {
                true => output.json(&reading)?,
                false => output.progress(&reading)?,
            }
            if last {
                return told;
            }
            self.previous = reading;
        }
        Ok(())
    }

    /// Receives until a reading is due; true if it is to be the last one for another reason than its number.
    fn wait(&mut self, due: Instant, output: &mut Output) -> Outcome<bool> {
        loop {
            self.job.drain()?;
            if !self.told && self.begun.elapsed() >= QUIET {
                self.tell_of_nothing(output)?;
            }
            let over = self.args.count.is_none()
                && self.args.pcap.is_some()
                && self.running.as_ref().is_none_or(Running::is_done);
            if over || self.stop.is_set() {
                return Ok(true);
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(left.min(NAP));
        }
    }

    /// Says once what to look at when no packet has come.
    fn tell_of_nothing(&mut self, output: &mut Output) -> Outcome {
        let offered = self.running.as_ref().map(Running::frames);
        // Without frames there is nothing to be said of the rule.
        self.told = offered != Some(0);
        if !self.told || self.job.read()?.0 > 0 {
            return Ok(());
        }
        output.end_progress()?;
        let time = QUIET.as_secs();
        if let Some(frames) = offered {
            let text = "the rule matches none; check its ethertype, VLAN tag and addresses";
            let made = if self.args.pcap.is_none() { " (generated packets are UDP over IPv4)" } else { "" };
            failure::remark(format_args!("no packet in {time} s: of {frames} frames {text}{made}"));
            return Ok(());
        }
        let port = self.args.port;
        let number = self.job.port_state(port)?;
        let state = words::state(number);
        failure::remark(format_args!(
            "no packet in {time} s: port {port} is {state} ({number}); check whether packets have the rule's ethertype and \
             VLAN tag, and whether they are for this port's address or its interface is promiscuous"
        ));
        Ok(())
    }
}
