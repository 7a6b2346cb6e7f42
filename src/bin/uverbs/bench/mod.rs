//! `uverbs bench`: measurements.

mod bulk;
mod clock;
mod hgrm;
mod kind;
mod mode;
mod pace;
mod plot;
mod progress;
mod report;
mod rig;
mod run;
mod tally;

use std::path::PathBuf;
use std::time::Duration;

use uverbs::ErrorKind;

use self::bulk::Bulk;
use self::clock::Floor;
use self::kind::Kind;
use self::mode::Mode;
use self::pace::Limit;
use self::progress::Progress;
use self::report::{About, Row};
use self::rig::{Reads, Rig};
use self::run::Setting;
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::output::Output;
use crate::stop::Stop;
use crate::target::Target;
use crate::units;

/// Samples if nothing is said.
const SAMPLES: u64 = 100_000;
/// Most counters objects: as many as there are addresses for.
const MOST_COUNTERS: i64 = 1 << 20;

/// What can be measured.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// The latency of reading counters.
    Read(ReadArgs),
}

/// Options of `uverbs bench read`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadArgs {
    /// The device: a name such as mlx5_0, a node such as /dev/infiniband/uverbs0, or soft0.
    #[arg(long, value_name = "DEV")]
    device: String,
    /// How to read; several with commas between.
    #[arg(long, value_name = "MODE", default_value = "volatile", value_delimiter = ',')]
    mode: Vec<Mode>,
    /// Counters objects; each sample reads all of them. Several numbers with commas between are measured in turn.
    #[arg(long, value_name = "N", default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=MOST_COUNTERS))]
    counters: Vec<u32>,
    /// Threads that read at the same time.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Samples of all threads that are measured; 100000 if neither this nor --duration is given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "duration")]
    samples: Option<u64>,
    /// Measure for so long: 10s, 500ms.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    duration: Option<Duration>,
    /// Samples of each thread before, told apart; a tenth if not given, 1000 or a second at most.
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,
    /// Samples of all threads a second, at intended times: 1000, 10k, 1.5M. A sample's time counts from its intended
    /// time, so that a pause shows in all samples that it held up.
    #[arg(long, value_name = "RATE", value_parser = sample_rate, conflicts_with = "batch")]
    open_loop: Option<u64>,
    /// Reads between two looks at the clock; their mean is the sample.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Where the threads run, in turn: CPU numbers with commas between, ranges such as 2-5.
    #[arg(long, value_name = "LIST", value_parser = units::cpus)]
    cpu: Option<units::Cpus>,
    /// Age from which on the mode snapshot asks the device again.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = units::duration)]
    max_age: Duration,
    /// Keep the snapshots fresh by a thread that reads the device at this interval.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    refresh: Option<Duration>,
    /// The port, from 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    port: u8,
    /// Write one JSON object a line for each mode and number of counters: to the file, else in place of the table.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Draw the figures into an SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write the percentile distribution in HdrHistogram's format; of several measurements, each to a file with the
    /// mode and the number of counters in its name.
    #[arg(long, value_name = "FILE")]
    hgrm: Option<PathBuf>,
}

/// A rate that has an interval.
fn sample_rate(text: &str) -> Result<u64, String> {
    let rate =
        units::rate(text)?.ok_or("an open loop needs a rate; without --open-loop there is none")?.get();
    if rate > 1_000_000_000 { Err("1G is the most".to_owned()) } else { Ok(rate) }
}

impl ReadArgs {
    fn setting(&self) -> Setting {
        let limit = match self.duration {
            Some(time) => Limit::Time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            None => Limit::Samples(self.samples.unwrap_or(SAMPLES)),
        };
        let cpus = self.cpu.as_ref().map(|list| list.0.clone()).unwrap_or_default();
        Setting { rate: self.open_loop, limit, warm_up: self.warmup, batch: self.batch, cpus }
    }
}

pub(crate) fn run(command: &Command, trace: bool) -> Outcome {
    let Command::Read(args) = command;
    let target = Target::find(&args.device, trace)?;
    let stop = Stop::on_signals()?;
    let mut rig = Rig::new(&target, args.port)?;
    let measured = measure(&mut rig, &target, args, &stop);
    let released = rig.release().map_err(Failure::from);
    // What could be measured before an error is worth nothing without it.
    let (about, rows) = match measured {
        Ok(measured) => measured,
        Err(error) => return failure::first([Err(error), released]),
    };
    failure::first([tell(args, &about, &rows), released])
}

/// Measures every mode with every number of counters, until a signal.
fn measure(rig: &mut Rig, target: &Target, args: &ReadArgs, stop: &Stop) -> Outcome<(About, Vec<Row>)> {
    let setting = args.setting();
    let mut counts = args.counters.clone();
    counts.sort_unstable();
    counts.dedup();
    let (modes, lenient) = Mode::meant(&args.mode);
    // Threads inherit it and are then moved to their own.
    if let Some(cpu) = setting.cpus.first() {
        run::pin(*cpu)?;
    }
    let about = About {
        device: target.device.name().to_owned(),
        driver: target.device.driver(),
        kind: Kind::of(&target.device),
        kernel: kernel(),
        clock: clock::name(),
        floor: Floor::measure(&rig.context)?,
        threads: args.threads,
        rate: args.open_loop,
        batch: args.batch,
        cpus: setting.cpus.clone(),
    };
    let settings = (counts.len() * modes.len()) as u64;
    let samples = match setting.limit {
        Limit::Samples(samples) => Some(samples.saturating_mul(settings)),
        Limit::Time(_) => None,
    };
    let mut progress = Progress::new(samples, settings);
    let mut rows = Vec::new();
    let mut missing = Vec::new();
    for count in counts {
        rig.grow(args.port, count)?;
        for mode in &modes {
            if stop.is_set() || missing.contains(mode) {
                continue;
            }
            progress.begin(format!("{}, {count} counters", mode.name()));
            let result = match one(rig, target, args, *mode, count, |reads| {
                run::run(reads, &setting, stop, &mut progress)
            }) {
                Err(Failure::Uverbs(error)) if lenient && error.kind() == ErrorKind::Unsupported => {
                    eprintln!("uverbs: {} left out: {error}", mode.name());
                    missing.push(*mode);
                    continue;
                }
                result => result?,
            };
            progress.end(result.measured.latency.count());
            rows.push(Row { mode: *mode, counters: count, result });
        }
    }
    progress.clear();
    // Of one that ended before its first sample there is nothing to tell.
    rows.retain(|row| row.result.measured.latency.count() > 0);
    Ok((about, rows))
}

/// Has one mode measured with so many counters.
fn one(
    rig: &Rig,
    target: &Target,
    args: &ReadArgs,
    mode: Mode,
    count: u32,
    run: impl FnOnce(Vec<Reads<'_>>) -> Outcome<run::Result>,
) -> Outcome<run::Result> {
    if mode == Mode::Bulk {
        let bulk = Bulk::new(target, args.port, count)?;
        let result = run((0..args.threads).map(|_| bulk.reads()).collect());
        let released = bulk.release();
        let result = result?;
        released?;
        return Ok(result);
    }
    let _sampler = match args.refresh {
        Some(interval) if mode == Mode::Snapshot => Some(rig.sampler(count, interval)?),
        _ => None,
    };
    run((0..args.threads).map(|_| rig.reads(mode, count, args.max_age)).collect::<Outcome<_>>()?)
}

/// Writes what was measured wherever it is wanted.
fn tell(args: &ReadArgs, about: &About, rows: &[Row]) -> Outcome {
    let mut output = Output::new();
    let lines = report::json(about, rows)?;
    let told = match &args.json {
        Some(path) if path.as_os_str() == "-" => output.text(lines),
        Some(path) => write(path, &lines).and_then(|()| output.text(report::table(about, rows))),
        None => output.text(report::table(about, rows)),
    };
    let drawn = match &args.plot {
        Some(path) if !rows.is_empty() => plot::figure(about, rows).and_then(|svg| write(path, &svg)),
        _ => Ok(()),
    };
    let listed = args.hgrm.as_ref().map_or(Ok(()), |path| {
        rows.iter().try_for_each(|row| {
            let path = if rows.len() == 1 { path.clone() } else { hgrm::path(path, row) };
            write(&path, &hgrm::text(&row.result.measured.latency))
        })
    });
    failure::first([told, drawn, listed])
}

fn write(path: &PathBuf, text: &str) -> Outcome {
    std::fs::write(path, text).map_err(|error| Failure::File(path.display().to_string(), error))
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
