//! `uverbs export`: exports the counters of devices to Prometheus.

mod around;
mod collect;
mod device;
mod exposition;
mod flows;
mod http;
mod machine;
mod names;
mod once;
mod snapshots;

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use uverbs::SoftDevice;

use self::around::Around;
use self::collect::Collector;
use self::exposition::Form;
use self::flows::Flows;
use self::http::request::Page;
use self::http::server::{Content, Limits, Server};
use self::machine::{Locals, Wide};
use self::snapshots::{Snapshot, Snapshots};
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::output::Output;
use crate::stop::Stop;
use crate::units;
use crate::watch::source::{Running, Source};
use crate::watch::spec::Spec;

/// Maximum time for reading the devices. By default, Prometheus gives a scrape ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time for a request, and for its response.
const TIME: Duration = Duration::from_secs(10);
/// Pause when no more files can be opened.
const PAUSE: Duration = Duration::from_millis(100);

/// The default port.
const PORT: u16 = 9979;

const ROOT: &str = "<!DOCTYPE html>\n<title>uverbs export</title>\n<p>What this machine's RDMA devices have counted: \
                    <a href=\"/metrics\">/metrics</a></p>\n";

/// Options of `uverbs export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The address and port for scrapes. A port alone means the loopback interface.
    #[arg(long, value_name = "[ADDR:]PORT", default_value = "127.0.0.1:9979", value_parser = address)]
    listen: SocketAddr,
    /// Write the text of a scrape to a file, completely or not at all, and end: for node_exporter's textfile collector. `-` is
    /// standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "max_connections", "max_age"])]
    once: Option<PathBuf>,
    /// Export these devices. Default: all devices of the machine.
    #[arg(value_name = "DEV")]
    words: Vec<String>,
    /// Export this device; may be repeated.
    #[arg(short, long, value_name = "DEV")]
    device: Vec<String>,
    /// Create these flow rules and export their counters (TOML, see docs/guide/prometheus.md); read again on SIGHUP.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// How old the values of a scrape may be: scrapes within this time share one reading.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    max_age: Duration,
    /// Maximum number of connections; if there are more, the oldest is closed.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    max_connections: u16,
    /// Add a label `counter` with the kernel's name to each counter.
    #[arg(long)]
    kernel_names: bool,
    /// Soft device only: generated UDP packets, such as rate=1000,size=64,flows=4.
    #[arg(long, value_name = "SPEC")]
    generate: Option<Spec>,
}

impl Args {
    /// The devices that are named.
    fn devices(&self) -> Vec<String> {
        self.words.iter().chain(&self.device).cloned().collect()
    }
}

/// `127.0.0.1:9979`, `[::1]:9979`, or `9979`.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| {
        format!("it is an address and a port, such as 127.0.0.1:{PORT} or [::]:{PORT} (all interfaces), or a port alone")
    })
}

pub(crate) fn run(args: &Args, trace: bool) -> Outcome {
    // Before any rule is put in force.
    let signals = Signals::new()?;
    let only = args.devices();
    let soft = only.iter().any(|name| *name == SoftDevice::default().name()).then(SoftDevice::default);
    let running = generator(args, soft.as_ref())?;
    let around = Arc::new(Around::new(soft.clone().unwrap_or_default(), trace));
    let flows = args.rules.as_deref().map(|path| started(path, around.clone())).transpose()?;
    let kernel_names = args.kernel_names;
    let machine = Locals { soft, only, flows: flows.clone(), around, kernel_names };
    machine.check()?;
    let mut collector = Collector::new(Box::new(Wide(machine)), PATIENCE);
    let served = match &args.once {
        Some(path) => {
            let snapshot = Snapshot::new(collector.read(), Instant::now());
            match path.as_os_str() == "-" {
                true => Output::new().text(snapshot.text(Form::Text)),
                false => once::write(path, snapshot.text(Form::Text)),
            }
        }
        None => serve(args, collector, flows, &signals),
    };
    let stopped = running.map_or(Ok(()), |running| running.stop().1);
    failure::first([served, stopped])
}

/// The generated traffic of the soft device.
fn generator(args: &Args, soft: Option<&SoftDevice>) -> Outcome<Option<Running>> {
    let Some(spec) = &args.generate else { return Ok(None) };
    let soft = soft
        .ok_or_else(|| Failure::Usage("--generate is for the soft device: add --device soft0".to_owned()))?;
    let traffic = spec.traffic(None).map_err(Failure::Usage)?;
    Source::Generator(traffic).start(soft.clone()).map(Some)
}

/// Puts the rules of a file in force.
fn started(path: &Path, around: Arc<Around>) -> Outcome<Arc<Flows>> {
    let flows = Flows::new(around);
    flows.load(path)?;
    Ok(Arc::new(flows))
}

/// A thread that reads the rules again on request. It opens devices, and waits for other users of the rules.
fn reloader(
    path: Option<PathBuf>,
    flows: Option<Arc<Flows>>,
    snapshots: Arc<Snapshots>,
) -> Outcome<SyncSender<()>> {
    // One waiting request is enough: the thread then reads the current contents of the file.
    let (tell, told) = mpsc::sync_channel(1);
    let run = move || told.iter().for_each(|()| reload(path.as_deref(), flows.as_deref(), &snapshots));
    let spawned = thread::Builder::new().name("rules".to_owned()).spawn(run);
    spawned.map_err(|error| Failure::Other(format!("no thread for the rules: {error}")))?;
    Ok(tell)
}

/// The signals that end the program or make it read its rules again. Each signal writes to a pipe, which wakes the thread that
/// waits for it.
struct Signals {
    stop: Stop,
    reload: Arc<AtomicBool>,
    woken: UnixStream,
}

impl Signals {
    fn new() -> Outcome<Self> {
        let failed = |error| Failure::Other(format!("no handler for signals: {error}"));
        let (stop, reload) = (Stop::on_signals()?, Arc::new(AtomicBool::new(false)));
        let (woken, waker) = UnixStream::pair().map_err(failed)?;
        woken.set_nonblocking(true).map_err(failed)?;
        signal_hook::flag::register(SIGHUP, reload.clone()).map_err(failed)?;
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let waker = waker.try_clone().map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, waker).map_err(failed)?;
        }
        Ok(Self { stop, reload, woken })
    }

    /// Waits for a connection or a signal.
    fn wait(&self, listener: &TcpListener) -> Outcome {
        let mut files = [
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.woken.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut files, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(Failure::Other(format!("waiting for connections: {errno}"))),
        }
        // The bytes have no meaning.
        while (&self.woken).read(&mut [0; 64]).is_ok_and(|len| len > 0) {}
        Ok(())
    }
}

/// Answers scrapes until a signal ends the program.
fn serve(args: &Args, mut collector: Collector, flows: Option<Arc<Flows>>, signals: &Signals) -> Outcome {
    let failed = |error| Failure::File(args.listen.to_string(), error);
    let listener = TcpListener::bind(args.listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let snapshots = Arc::new(Snapshots::new(args.max_age, Box::new(move || collector.read())));
    let reload = reloader(args.rules.clone(), flows, snapshots.clone())?;
    let pages = move |page| match page {
        Page::Root => Content { kind: "text/html; charset=utf-8", body: Box::new(ROOT) },
        Page::Healthy => Content { kind: "text/plain; charset=utf-8", body: Box::new("healthy\n") },
        Page::Metrics { open_metrics } => {
            let form = if open_metrics { Form::OpenMetrics } else { Form::Text };
            Content { kind: form.content_type(), body: Box::new(Text(snapshots.get(), form)) }
        }
    };
    let limits = Limits { connections: args.max_connections.into(), time: TIME };
    let server = Server::new(limits, Box::new(pages));
    Output::new().line(format_args!("listening on http://{address}/metrics"))?;
    let mut is_short = false;
    while !signals.stop.is_set() {
        signals.wait(&listener)?;
        if signals.reload.swap(false, Ordering::Relaxed) {
            let _ = reload.try_send(());
        }
        let accepted = server.accept(&listener);
        if let Err(error) = &accepted {
            // The connection is still waiting and would be reported in each round.
            if !is_short {
                failure::remark(format_args!("connections are not served now: {error}"));
            }
            thread::sleep(PAUSE);
        }
        is_short = accepted.is_err();
    }
    Ok(())
}

/// Reads the rules again. After a mistake, the old rules stay in force.
fn reload(path: Option<&Path>, flows: Option<&Flows>, snapshots: &Snapshots) {
    let (Some(path), Some(flows)) = (path, flows) else {
        return failure::remark("nothing to read again: there is no --rules");
    };
    let loaded = flows.load(path);
    // Requests that arrive after the message was printed get the new rules.
    snapshots.forget();
    match loaded {
        Ok(()) => {
            let are = match flows.len() {
                1 => "1 rule is".to_owned(),
                number => format!("{number} rules are"),
            };
            failure::remark(format_args!("{}: {are} in force", path.display()));
        }
        Err(failure) => failure::remark(format_args!("{failure}; the rules of before stay in force")),
    }
}

/// The text of a snapshot in one format.
struct Text(Arc<Snapshot>, Form);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.text(self.1).as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_the_loopback_interface() {
        assert_eq!(address("9979").map(|at| at.to_string()), Ok("127.0.0.1:9979".to_owned()));
        assert_eq!(address("[::1]:1").map(|at| at.to_string()), Ok("[::1]:1".to_owned()));
        assert_eq!(address("0.0.0.0:0").map(|at| at.to_string()), Ok("0.0.0.0:0".to_owned()));
        for text in ["", ":9979", "localhost:9979", "1.2.3.4", "127.0.0.1:65536", "65536", "::1:1:x"] {
            assert!(address(text).is_err_and(|why| why.contains("127.0.0.1:9979")), "{text}");
        }
    }
}
