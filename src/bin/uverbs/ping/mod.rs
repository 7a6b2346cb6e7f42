//! `uverbs ping`: exchanges messages between two queue pairs, and measures their times.

mod address;
mod cm;
mod counted;
pub(crate) mod exchange;
mod gid;
mod line;
mod meeting;
mod one_sided;
mod report;
mod side;
mod transport;

use std::time::{Duration, Instant};

use uverbs::abi::write::QueryPortResp;
use uverbs::{ConnectionOptions, Rc, Srd, Uc, Ud, XrcSend};

use self::counted::Watch;
use self::exchange::{Peer, Words};
use self::gid::Own;
use self::meeting::{Meeting, Role};
use self::one_sided::Op;
use self::report::{Exchange, Figures, Line, Report};
use self::side::{Plan, Side};
use self::transport::Transport;
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::output::Output;
use crate::stop::Stop;
use crate::target::{self, Target};
use crate::units;

/// Options of `uverbs ping`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The device: a name such as mlx5_0, a device file such as /dev/infiniband/uverbs0, or soft0, with which both sides are in
    /// this process, or soft@ADDRESS, a soft device on an IP address of this host. With --device, HOST is the first word; with --cm, HOST[:PORT].
    #[arg(value_name = "DEV")]
    word: Option<String>,
    /// The host of the server. Without it this program is the server and waits for one client.
    host: Option<String>,
    /// The device, as DEV.
    #[arg(short, long, value_name = "DEV")]
    device: Option<String>,
    /// Both sides in this process.
    #[arg(long)]
    loopback: bool,
    /// Connect by the connection manager, over iWARP too: HOST[:PORT] is the server, and its address names the device. Without it, this
    /// program listens on all addresses. With soft0, both sides are in this process.
    #[arg(long, conflicts_with_all = ["qps", "gid_index", "ib_port"])]
    cm: bool,
    /// With --cm: the exchange of rping, which can be the other side.
    #[arg(long, requires = "cm", conflicts_with_all = ["op", "counter"])]
    rping: bool,
    /// The kind of queue pair.
    #[arg(long, default_value = "rc")]
    transport: Kind,
    /// Messages back and forth, or operations of one side on the memory of the other. The same on both sides; uc has no reads, ud
    /// only messages, srd no atomic operations.
    #[arg(long, default_value = "send")]
    op: Op,
    /// Number of queue pairs, which take their receives from one shared receive queue; each has one message in flight. The same
    /// on both sides. Without it, one queue pair with its own receives.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(exchange::MOST)))]
    qps: Option<u32>,
    /// Number of messages in each direction, of all queue pairs together, or of operations; the same on both sides.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
    /// Bytes of a message or an operation, the same on both sides; default 4096, with ud 1024 or the port's MTU if that is
    /// less, for an atomic operation 8, with --rping 64, and for its server at most 65536.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    size: Option<u32>,
    /// Index of this side's GID; default: on RoCE an address of an interface of this network namespace that fits the other
    /// side, version 2 before 1, else 0. The result names it, and the reason.
    #[arg(long, value_name = "INDEX")]
    gid_index: Option<u8>,
    /// The device's port, from 1.
    #[arg(long, value_name = "PORT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    ib_port: u8,
    /// The TCP port on which the sides exchange addresses, 18515 if none is given; with --cm the port of the connection manager, 7174.
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port_number: Option<u16>,
    /// Longest wait for the other side in each step: 10s, 500ms, 2m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    timeout: Duration,
    /// Wait for completion counters, which a thread updates, instead of polling the queue.
    #[arg(long)]
    counter: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The kind of queue pair.
#[derive(Clone, Copy, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Reliably connected.
    Rc,
    /// Unreliably connected. A lost message ends the ping.
    Uc,
    /// Datagrams, up to one packet of the port. A lost one ends the ping.
    Ud,
    /// Extended reliable connections, one in each direction, with receives from a shared receive queue.
    Xrc,
    /// Scalable reliable datagrams, which EFA has.
    Srd,
}

impl Kind {
    /// Whether queue pairs of this kind have this operation.
    fn has(self, op: Op) -> bool {
        match self {
            Self::Rc | Self::Xrc => true,
            Self::Uc => matches!(op, Op::Send | Op::Write),
            Self::Ud => op == Op::Send,
            Self::Srd => op != Op::Atomic,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::Xrc => "xrc",
            Self::Srd => "srd",
        }
    }
}

pub(crate) fn run(args: &Args, trace: bool) -> Outcome {
    if args.cm {
        return cm::run(args, trace);
    }
    let (device, host) = args.device_and_host()?;
    if args.loopback && host.is_some() {
        return Err(Failure::Usage(
            "--loopback: both sides are in this process, so there is no HOST".to_owned(),
        ));
    }
    let target = Target::find(device, trace)?;
    let stop = Stop::on_signals()?;
    match args.transport {
        Kind::Rc => ping::<Rc>(args, &target, &stop),
        Kind::Uc => ping::<Uc>(args, &target, &stop),
        Kind::Ud => ping::<Ud>(args, &target, &stop),
        Kind::Xrc => ping::<XrcSend>(args, &target, &stop),
        Kind::Srd => ping::<Srd>(args, &target, &stop),
    }
}

fn ping<T: Transport>(args: &Args, target: &Target, stop: &Stop) -> Outcome {
    let context = target.open()?;
    args.check()?;
    target.check_port(args.ib_port)?;
    let port = context.query_port(args.ib_port)?.legacy_resp;
    let size = args.size_of::<T>(target, (args.ib_port, &port))?;
    context.check_port_active(args.ib_port)?;
    let words = match args.qps {
        Some(qps) => Words::Shared(qps as usize),
        None if matches!(args.transport, Kind::Xrc) => Words::Extended,
        None => Words::Single,
    };
    let (iters, op, has_gid) = (args.iters, args.op, args.gid_index.is_some());
    let plan = Plan { iters, size: size as usize, op, words, has_gid };
    let mut gid = Own::find(target, &context, args.ib_port, args.gid_index)?;
    let mut options = ConnectionOptions::new(args.ib_port, gid.index).access(args.op.remote_access());
    options.mtu = packet(options.mtu, port.active_mtu);
    let mut output = Output::new();
    let watch = if args.counter { Some(Watch::new()?) } else { None };
    let side = || Side::<T>::new(&context, Some(&options), plan, watch.as_ref());
    let mut sides = vec![side()?];
    // The soft device is inside this process, so no other process can use it.
    if args.loopback || (target.soft.is_some() && args.host()?.is_none()) {
        sides.push(side()?);
    }
    let met = Meeting::new(args, &mut sides, &context, (&mut gid, options), &mut output, stop);
    let start = Instant::now();
    let played = match met {
        Ok(Some(mut meeting)) => meeting.work(args, &mut sides, watch.as_ref(), stop).and_then(|()| {
            let worked = start.elapsed();
            meeting.part(words, op)?;
            // For operations on its memory, a server only knows when the client has ended.
            let waited = op != Op::Send && matches!(meeting.role, Role::Server(_));
            let elapsed = if waited { start.elapsed() } else { worked };
            let side = &sides[0];
            let lines = side.addresses().into_iter().zip(&meeting.remotes);
            let peer = meeting.role.peer().map(Peer::address);
            Ok(Some(Report::new(
                args,
                target,
                Figures {
                    exchange: peer.map(|_| Exchange::Tcp),
                    role: meeting.role.name(),
                    local: None,
                    peer,
                    gid: Some(gid.clone()),
                    lines: lines.map(|(local, remote)| Line { local, remote: *remote }).collect(),
                    size,
                    iters,
                    sent: side.sent,
                    received: side.received,
                    trips: &side.trips,
                    elapsed,
                },
            )))
        }),
        other => other.map(|_| None),
    };
    let released = sides.into_iter().map(|side| side.release().map_err(Failure::from));
    let released = failure::first(released.collect::<Vec<_>>());
    let printed = played.and_then(|report| match report {
        Some(report) if args.json => output.json(&report),
        Some(report) => output.text(&report),
        None => Err(Failure::Other("ended before the two sides had connected".to_owned())),
    });
    failure::first([printed, released])
}

/// The code of the size of packets: not more than the port sends. A port that does not report it has 0.
fn packet(usual: u8, active: u8) -> u8 {
    if active > 0 { usual.min(active) } else { usual }
}

impl Args {
    /// The device, and the host of the server. The first word is the device, unless an option names it.
    fn device_and_host(&self) -> Outcome<(&str, Option<&str>)> {
        match (&self.device, &self.word, &self.host) {
            (Some(device), host, None) => Ok((device, host.as_deref())),
            (None, Some(device), host) => Ok((device, host.as_deref())),
            (None, None, _) => Err(target::missing()),
            (Some(_), _, Some(_)) => {
                let text = "--device names the device already, so the only other word is HOST";
                Err(Failure::Usage(text.to_owned()))
            }
        }
    }

    /// The host of the server; `None` for a server.
    fn host(&self) -> Outcome<Option<&str>> {
        self.device_and_host().map(|(_, host)| host)
    }

    /// The TCP port.
    fn tcp_port(&self) -> u16 {
        self.port_number.unwrap_or(18515)
    }

    /// Refuses options that cannot be combined.
    fn check(&self) -> Outcome {
        if self.qps.is_some() && matches!(self.transport, Kind::Xrc) {
            let text = "--qps: with --transport xrc receives are shared already, and there is one connection";
            return Err(Failure::Usage(text.to_owned()));
        }
        let name = self.op.name();
        let wrong = match self.op {
            Op::Send => return Ok(()),
            op if !self.transport.has(op) => "queue pairs of this kind have no such operation",
            _ if self.counter => "completion counters are waited for with messages only",
            _ if self.qps.is_some() => "operations on memory take no receives, so there are none to share",
            Op::Atomic if self.size.is_some_and(|size| size != 8) => "an atomic operation is of 8 bytes",
            _ => return Ok(()),
        };
        Err(Failure::Usage(format!("--op {name}: {wrong}")))
    }

    /// Bytes of a message.
    fn size_of<T: Transport>(&self, target: &Target, (number, port): (u8, &QueryPortResp)) -> Outcome<u32> {
        let longest = T::longest(port);
        let usual = if self.op == Op::Atomic { 8 } else { T::SIZE.min(longest) };
        match self.size {
            Some(size) if size > longest => Err(Failure::Usage(format!(
                "--size {size}: a message is at most {longest} bytes on port {number} of {}",
                target.device.name()
            ))),
            given => Ok(given.unwrap_or(usual)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use uverbs::SoftDevice;
    use uverbs::abi::types::mtu;
    use uverbs::soft::Profile;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// The size of messages on a soft device with this MTU.
    fn size<T: Transport>(port_mtu: u32, options: &[&str]) -> Result<u32, String> {
        let line = [&["ping", "--device", "soft0"], options].concat();
        let args = Line::try_parse_from(line).expect("a command line").args;
        let target = Target::embedded(SoftDevice::new(Profile::default().with_port_mtu(port_mtu)), false);
        let port = target.open().expect("it opens").query_port(1).expect("a port").legacy_resp;
        args.size_of::<T>(&target, (1, &port)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_size_that_nobody_gave_fits_the_port() {
        assert_eq!(size::<Ud>(256, &[]), Ok(256));
        assert_eq!(size::<Ud>(512, &["--size", "512"]), Ok(512));
        assert_eq!(size::<Ud>(4096, &[]), Ok(1024));
        assert_eq!(size::<Rc>(256, &[]), Ok(4096));
        let told = size::<Ud>(256, &["--size", "1024"]).expect_err("it is too long");
        assert_eq!(told, "--size 1024: a message is at most 256 bytes on port 1 of soft0");
    }

    #[test]
    fn packets_fit_the_port() {
        assert_eq!(packet(mtu::MTU_1024, mtu::MTU_256), mtu::MTU_256);
        assert_eq!(packet(mtu::MTU_1024, mtu::MTU_4096), mtu::MTU_1024);
        assert_eq!(packet(mtu::MTU_1024, 0), mtu::MTU_1024);
    }
}
