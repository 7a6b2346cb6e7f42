//! `uverbs watch`: shows packets as they are counted.

mod counted;
mod many;
mod reading;
pub(crate) mod source;
pub(crate) mod spec;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use uverbs::soft::Profile;
use uverbs::{AnyRule, Eth, FlowRule, SoftDevice};

use self::counted::{Counted, One};
use self::many::Many;
use self::reading::Reading;
use self::source::{Running, Source};
use self::spec::Spec;
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::info::words;
use crate::job::Job;
use crate::output::Output;
use crate::rules::{NOT_NORMAL, Wanted, counting_rule};
use crate::stop::Stop;
use crate::target::{Named, Target};
use crate::units;

/// Maximum time between two checks of the receive queue and of signals.
const NAP: Duration = Duration::from_millis(2);

/// After this time without a packet, a remark is printed.
const QUIET: Duration = Duration::from_secs(3);

/// Options of `uverbs watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Without --rules it is required; with it, only the rules of the file for this device are counted.
    #[command(flatten)]
    device: Named,
    /// The port, from 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    port: u8,
    /// Count the packets for this MAC address.
    #[arg(long, value_name = "MAC", value_parser = units::mac, conflicts_with = "rule")]
    dst_mac: Option<[u8; 6]>,
    /// Count the packets that this rule matches, such as 'ip dst 10.0.0.1 and udp' (see docs/guide/rules.md). Default on the soft
    /// device: all packets. May be repeated, with a name before each: dns='udp dst port 53'. Packets that match such rules are counted
    /// and dropped.
    #[arg(long, value_name = "[NAME=]RULE")]
    rule: Vec<String>,
    /// Count with the rules of this file, as with `uverbs export --rules` (TOML, see docs/guide/prometheus.md).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rule", "dst_mac", "port"])]
    rules: Option<PathBuf>,
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
    if args.rules.is_none() {
        // Before anything is said about rules.
        let target = args.device.find(false)?;
        target.needs_flows(&target.open()?)?;
    }
    match args.many()? {
        Some(wanted) => many(args, wanted, trace),
        None => one(args, trace),
    }
}

/// Watches one rule, whose packets are received.
fn one(args: &Args, trace: bool) -> Outcome {
    let mut target = args.device.find(trace)?;
    if args.wide_rules {
        target = target.with_profile(wide())?;
    }
    let rule = args.only_rule(&target)?;
    let stop = Stop::on_signals()?;
    let source = args.source(&target, &AnyRule::Normal(rule.clone()))?;
    let job = Job::start(&target, args.port, rule)?;
    let mut one = One { job, port: args.port, previous: Reading::default() };
    let watched = watch(args, stop, source, target.soft, &mut one);
    if let Some(status) = one.job.broken {
        failure::remark(format_args!("receiving ended early, counting did not: {status}"));
    }
    let released = one.job.release().map_err(Failure::from);
    failure::first([watched, released])
}

/// Watches several rules, which only count.
fn many(args: &Args, wanted: Vec<Wanted>, trace: bool) -> Outcome {
    let profile = if args.wide_rules { wide() } else { Profile::default() };
    let targets = many::targets(&many::devices(&wanted), &SoftDevice::new(profile), trace)?;
    let soft = targets.iter().find(|(_, target)| target.soft.is_some()).or(targets.first());
    let Some((device, target)) = soft else { return Ok(()) };
    if args.wide_rules && target.soft.is_none() {
        return Err(target.only_soft_is_wide());
    }
    let stop = Stop::on_signals()?;
    let aim =
        wanted.iter().find(|rule| rule.device == *device).map(|rule| AnyRule::Normal(rule.rule.clone()));
    let source = aim.map(|rule| args.source(target, &rule)).transpose()?.flatten();
    let mut many = Many::start(wanted, &targets)?;
    let soft = target.soft.clone();
    watch(args, stop, source, soft, &mut many)
}

/// Reads the counters until the end, while a source provides packets.
fn watch(
    args: &Args,
    stop: Stop,
    source: Option<Source>,
    soft: Option<SoftDevice>,
    counted: &mut dyn Counted,
) -> Outcome {
    let running = match (source, soft) {
        (Some(source), Some(soft)) => Some(source.start(soft)?),
        _ => None,
    };
    let mut output = Output::new();
    let mut watch = Watch { args, stop, counted, running, begun: Instant::now(), told: false };
    let watched = watch.readings(&mut output);
    // After an error, the traffic is still running.
    let stopped = watch.running.take().map_or(Ok(()), |running| running.stop().1);
    failure::first([watched, stopped, output.end_progress()])
}

/// The profile of a soft device that accepts more than mlx5's driver does.
fn wide() -> Profile {
    Profile::default().with_wide_rules(true)
}

impl Args {
    /// The rules, if there are several, or one with a name.
    fn many(&self) -> Outcome<Option<Vec<Wanted>>> {
        if let Some(path) = &self.rules {
            return many::of_file(path, self.device.name()).map(Some);
        }
        match self.rule.as_slice() {
            [] => Ok(None),
            [rule] if !many::has_name(rule) => Ok(None),
            rules => many::of_options(rules, self.device.required()?, self.port).map(Some),
        }
    }

    /// The rule that counts, if there is one without a name.
    fn only_rule(&self, target: &Target) -> Outcome<FlowRule> {
        if let Some(mac) = self.dst_mac {
            return Ok(FlowRule::normal(self.port).eth(Eth::any().dst(mac)));
        }
        let Some(text) = self.rule.first() else {
            if target.soft.is_some() {
                return Ok(FlowRule::normal(self.port));
            }
            let text = "say what to count with --dst-mac or --rule; a rule for all packets ('any') takes them \
                        away from the host";
            return Err(Failure::Usage(text.to_owned()));
        };
        counting_rule(text, self.port).map_err(|error| match error {
            Some(error) => error.into(),
            None => Failure::Usage(format!("--rule: {NOT_NORMAL}")),
        })
    }

    /// The source of packets on a soft device. By default it generates packets for `rule`.
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

/// A watch that is in progress.
struct Watch<'a> {
    args: &'a Args,
    stop: Stop,
    counted: &'a mut dyn Counted,
    running: Option<Running>,
    begun: Instant,
    /// The remark was printed, or a packet has arrived.
    told: bool,
}

impl Watch<'_> {
    fn readings(&mut self, output: &mut Output) -> Outcome {
        let mut due = self.begun;
        for number in 1.. {
            // Readings that were missed (because the process was stopped) are not repeated.
            due = (due + self.args.interval).max(Instant::now());
            let ended = self.wait(due, output)?;
            let last = ended || self.args.count == Some(number);
            let mut told = Ok(());
            let mut offered = self.running.as_ref().map(Running::frames);
            if last {
                // The last reading has the totals: all of a capture, with no packet in progress.
                while self.running.as_ref().is_some_and(Running::goes_on) && !self.stop.is_set() {
                    self.counted.drain()?;
                    thread::sleep(NAP);
                }
                if let Some(running) = self.running.take() {
                    let (frames, result) = running.stop();
                    (offered, told) = (Some(frames), result);
                }
                self.counted.drain()?;
            }
            self.counted.show(self.begun, offered, self.args.json, output)?;
            if last {
                return told;
            }
        }
        Ok(())
    }

    /// Receives until a reading is due. Returns true if it is the last one for another reason than the number of readings.
    fn wait(&mut self, due: Instant, output: &mut Output) -> Outcome<bool> {
        loop {
            self.counted.drain()?;
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

    /// Prints once what to check if no packet has arrived.
    fn tell_of_nothing(&mut self, output: &mut Output) -> Outcome {
        let offered = self.running.as_ref().map(Running::frames);
        // Without frames there is nothing to say about the rule.
        self.told = offered != Some(0);
        if !self.told || self.counted.packets()? > 0 {
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
        let (port, number) = self.counted.port()?;
        let state = words::state(number);
        failure::remark(format_args!(
            "no packet in {time} s: port {port} is {state} ({number}); check whether packets have the rule's ethertype and \
             VLAN tag, and whether they are for this port's address or its interface is promiscuous"
        ));
        Ok(())
    }
}
