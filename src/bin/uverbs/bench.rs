//! `uverbs bench`: measurements.

use std::fmt;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;
use uverbs::{Eth, FlowRule, ReadCountersFlags};

use crate::Outcome;
use crate::job::Job;
use crate::output::Output;
use crate::samples::{histogram, record};
use crate::target::Target;

/// An address that no packet is for: the rule takes nothing away from anybody.
const NOBODY: [u8; 6] = [0x02, 0, 0, 0, 0, 0xfe];
/// Pairs of clock reads that the timer's own cost is the median of.
const TIMER_SAMPLES: u64 = 10_000;

/// What can be measured.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// The latency of reading the two counters of a flow.
    Read(ReadArgs),
}

/// Options of `uverbs bench read`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadArgs {
    /// The device: a name such as mlx5_0, a node such as /dev/infiniband/uverbs0, or soft0.
    #[arg(long, value_name = "DEV")]
    device: String,
    /// Reads that are measured.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    samples: u64,
    /// Reads before them that are not.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    warmup: u64,
    /// The port, from 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    port: u8,
    /// How to read.
    #[arg(long, default_value = "volatile")]
    mode: Mode,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// How to read.
#[derive(Clone, Copy, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    /// Ask the device.
    Volatile,
    /// Tell the driver that cached values will do. Up to Linux 7.2 no driver has any.
    DriverCached,
}

impl Mode {
    fn flags(self) -> ReadCountersFlags {
        match self {
            Self::Volatile => ReadCountersFlags::empty(),
            Self::DriverCached => ReadCountersFlags::PREFER_CACHED,
        }
    }
}

pub(crate) fn run(command: &Command, trace: bool) -> Outcome {
    let Command::Read(args) = command;
    let target = Target::find(&args.device, trace)?;
    let rule = FlowRule::normal(args.port).eth(Eth::any().dst(NOBODY));
    let mut job = Job::start(&target, args.port, rule, args.mode.flags(), false)?;
    let measured = measure(&mut job, args);
    let released = job.release();
    let report = Report {
        device: target.device.name().to_owned(),
        driver: target.device.driver(),
        kernel: kernel(),
        note: target.soft.as_ref().map(|_| "soft device: no hardware involved"),
        mode: args.mode,
        samples: args.samples,
        warmup: args.warmup,
        timer_overhead_ns: timer(),
        latency_ns: Latency::of(&measured?),
    };
    released?;
    let mut output = Output::new();
    if args.json { output.json(&report) } else { output.text(&report) }
}

fn measure(job: &mut Job, args: &ReadArgs) -> Outcome<Histogram<u64>> {
    let mut histogram = histogram()?;
    for _ in 0..args.warmup {
        job.reader.read()?;
    }
    for _ in 0..args.samples {
        let start = Instant::now();
        job.reader.read()?;
        record(&mut histogram, start);
    }
    Ok(histogram)
}

/// What the two looks at the clock cost that each sample contains; the median, in ns.
fn timer() -> u64 {
    let Ok(mut histogram) = histogram() else { return 0 };
    for _ in 0..TIMER_SAMPLES {
        record(&mut histogram, Instant::now());
    }
    histogram.value_at_quantile(0.5)
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

#[derive(Serialize)]
struct Report {
    device: String,
    driver: &'static str,
    kernel: String,
    note: Option<&'static str>,
    mode: Mode,
    samples: u64,
    warmup: u64,
    timer_overhead_ns: u64,
    latency_ns: Latency,
}

#[derive(Serialize)]
struct Latency {
    min: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    #[serde(rename = "p99.9")]
    p999: u64,
    max: u64,
    mean: f64,
    stddev: f64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let quantile = |quantile| histogram.value_at_quantile(quantile);
        Self {
            min: histogram.min(),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: histogram.max(),
            mean: histogram.mean(),
            stddev: histogram.stdev(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Volatile => "volatile",
            Mode::DriverCached => {
                "driver-cached (up to Linux 7.2 no driver has a cache: the same as volatile)"
            }
        };
        let note = self.note.map(|note| format!("; {note}")).unwrap_or_default();
        writeln!(f, "device   {}, driver {}{note}", self.device, self.driver)?;
        writeln!(f, "kernel   {}", self.kernel)?;
        writeln!(f, "mode     {mode}")?;
        writeln!(f, "samples  {} after {} to warm up", self.samples, self.warmup)?;
        writeln!(f, "timer    {} ns, contained in each sample", self.timer_overhead_ns)?;
        let Latency { min, p50, p90, p99, p999, max, mean, stddev } = &self.latency_ns;
        writeln!(f, "latency of a read in ns:")?;
        for (name, value) in
            [("min", min), ("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p999), ("max", max)]
        {
            writeln!(f, "  {name:6} {value}")?;
        }
        writeln!(f, "  mean   {mean:.1}")?;
        writeln!(f, "  stddev {stddev:.1}")
    }
}
