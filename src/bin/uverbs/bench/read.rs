//! `uverbs bench read`: the latency of reading counters.

use std::time::Duration;

use uverbs::ErrorKind;

use super::bulk::Bulk;
use super::clock::{self, Floor};
use super::kind::Kind;
use super::mode::Mode;
use super::options::{Amount, Results, kernel, nothing};
use super::panels;
use super::progress::Progress;
use super::report::{self, About, Row};
use super::rig::{Reads, Rig};
use super::run::{self, Setting};
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::stop::Stop;
use crate::target::{Named, Target};
use crate::units;

/// Maximum number of counters objects: one per address.
const MOST_COUNTERS: i64 = 1 << 20;

/// Options of `uverbs bench read`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    device: Named,
    /// How to read; several modes separated by commas.
    #[arg(long, value_name = "MODE", default_value = "volatile", value_delimiter = ',')]
    mode: Vec<Mode>,
    /// Number of counters objects; each sample reads all of them. Several numbers, separated by commas, are measured in turn.
    #[arg(long, value_name = "N", default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=MOST_COUNTERS))]
    counters: Vec<u32>,
    /// Threads that read at the same time.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    #[command(flatten)]
    amount: Amount,
    /// Samples of all threads per second, at intended times: 1000, 10k, 1.5M. A sample is measured from its intended time, so a
    /// pause shows in all samples that it delayed.
    #[arg(long, value_name = "RATE", value_parser = sample_rate, conflicts_with = "batch")]
    open_loop: Option<u64>,
    /// Reads between two readings of the clock; their mean is the sample.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Age at which the mode snapshot asks the device again.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = units::duration)]
    max_age: Duration,
    /// Refresh the snapshots with a thread that reads the device at this interval.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    refresh: Option<Duration>,
    /// The port, from 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    port: u8,
    #[command(flatten)]
    results: Results,
}

/// A rate that has an interval.
fn sample_rate(text: &str) -> Result<u64, String> {
    let rate =
        units::rate(text)?.ok_or("an open loop needs a rate; without --open-loop there is none")?.get();
    if rate > 1_000_000_000 { Err("the maximum is 1G".to_owned()) } else { Ok(rate) }
}

impl Args {
    fn setting(&self) -> Setting {
        Setting {
            rate: self.open_loop,
            limit: self.amount.limit(),
            warm_up: self.amount.warmup,
            batch: self.batch,
            cpus: self.amount.cpus(),
        }
    }
}

pub(super) fn run(args: &Args, trace: bool) -> Outcome {
    let target = args.device.find(trace)?;
    args.results.check()?;
    let stop = Stop::on_signals()?;
    let mut rig = Rig::new(&target, args.port)?;
    let measured = measure(&mut rig, &target, args, &stop);
    let released = rig.release().map_err(Failure::from);
    // Results that were measured before an error are not reported.
    let (about, rows) = match measured {
        Ok(measured) => measured,
        Err(error) => return failure::first([Err(error), released]),
    };
    failure::first([tell(args, &about, &rows), released])
}

/// Measures every mode with every number of counters, until a signal arrives.
fn measure(rig: &mut Rig, target: &Target, args: &Args, stop: &Stop) -> Outcome<(About, Vec<Row>)> {
    let setting = args.setting();
    let mut counts = args.counters.clone();
    counts.sort_unstable();
    counts.dedup();
    let (modes, lenient) = Mode::meant(&args.mode);
    // Threads inherit this setting and are then moved to their own processors.
    if let Some(cpu) = setting.cpus.first() {
        run::pin(*cpu)?;
    }
    let about = About {
        device: target.device.name().to_owned(),
        driver: target.device.driver(),
        kind: Kind::of(&target.device),
        kernel: kernel(),
        clock: clock::name(),
        floor: Floor::measure()?,
        refused: clock::refused(&rig.context)?,
        threads: args.threads,
        rate: args.open_loop,
        batch: args.batch,
        cpus: setting.cpus.clone(),
    };
    let settings = (counts.len() * modes.len()) as u64;
    let mut progress = Progress::new(setting.limit, settings);
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
                    failure::remark(format_args!("{} left out: {error}", mode.name()));
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
    // A measurement that ended before its first sample has no result.
    rows.retain(|row| row.result.measured.latency.count() > 0);
    if rows.is_empty() { Err(nothing(stop)) } else { Ok((about, rows)) }
}

/// Measures one mode with this number of counters.
fn one(
    rig: &Rig,
    target: &Target,
    args: &Args,
    mode: Mode,
    count: u32,
    run: impl FnOnce(Vec<Reads<'_>>) -> Outcome<run::Measurements>,
) -> Outcome<run::Measurements> {
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

/// Writes the results to all requested places.
fn tell(args: &Args, about: &About, rows: &[Row]) -> Outcome {
    let lines = report::json(about, rows)?;
    let name = |row: &Row| format!("{}-{}", row.mode.name(), row.counters);
    let tallies: Vec<_> = rows.iter().map(|row| (name(row), &row.result.measured.latency)).collect();
    args.results.write(&lines, &report::table(about, rows), || panels::figure(about, rows), &tallies)
}
