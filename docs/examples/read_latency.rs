//! Measures how long a read of flow counters takes, for each of the three ways to read them.
//!
//! `cargo run --release --example read_latency [DEVICE]`: `soft0`, or a device such as `mlx5_0`, which needs CAP_NET_RAW. `uverbs bench read` measures
//! more: several counters, threads and ages, with histograms.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use uverbs::{Eth, FlowRule, Point, Result, SoftDevice};

const READS: usize = 10_000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("read_latency: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let context = match std::env::args().nth(1).filter(|name| name != "soft0") {
        Some(name) => uverbs::devices()?.named(&name)?.open()?,
        None => SoftDevice::default().open()?,
    };
    let cq = context.create_cq(64)?;
    let qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;
    let counters = context.create_counters()?;
    counters.attach(Point::Packets, 0)?;
    counters.attach(Point::Bytes, 1)?;
    let rule = FlowRule::normal(1).eth(Eth::any().dst([2, 0, 0, 0, 0, 1])).count(&counters);
    let flow = qp.create_flow(&rule)?;

    let mut values = [0; 2];
    measure("counters.read, asks the device", || counters.read(&mut values))?;
    let mut reader = flow.reader()?;
    measure("reader.read, asks it by a prepared command", || reader.read().map(drop))?;
    let snapshot = flow.snapshot()?;
    measure("snapshot.read_cached, at most 10 ms old", || {
        snapshot.read_cached::<2>(Duration::from_millis(10)).map(drop)
    })
}

/// Prints the median and the 99th percentile of [`READS`] calls. Each sample includes the two readings of the clock, some 20 ns.
fn measure(what: &str, mut read: impl FnMut() -> Result<()>) -> Result<()> {
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let begun = Instant::now();
        read()?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let [half, most] = [READS / 2, READS * 99 / 100].map(|at| times[at]);
    println!("{what}: median {half:?}, 99th percentile {most:?}");
    Ok(())
}
