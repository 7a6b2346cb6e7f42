//! `uverbs bench wait`: how long a thread takes to wake up that waits for a completion counter.

mod object;
mod report;
mod turns;

use self::object::Object;
use self::report::{About, Row};
use self::turns::Setting;
use super::clock::{self, Floor};
use super::options::{Amount, Results, kernel, nothing};
use super::pace::Limit;
use super::progress::Progress;
use super::run::pin;
use crate::Outcome;
use crate::stop::Stop;

/// Options of `uverbs bench wait`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to wait with; several with commas between.
    #[arg(long, value_name = "NAME", default_value = "unspecified", value_delimiter = ',')]
    wait_object: Vec<Object>,
    #[command(flatten)]
    amount: Amount,
    #[command(flatten)]
    results: Results,
}

/// Measures every wait object, until a signal, and tells.
pub(super) fn run(args: &Args) -> Outcome {
    args.results.check()?;
    let stop = Stop::on_signals()?;
    let limit = args.amount.limit();
    let warm_up = args.amount.warmup.map_or_else(|| limit.warm_up(), Limit::Samples);
    let setting = Setting { warm_up, limit, cpus: args.amount.cpus() };
    // The threads inherit it and are then moved to their own.
    if let Some(cpu) = setting.cpus.first() {
        pin(*cpu)?;
    }
    let about = About {
        kernel: kernel(),
        clock: clock::name(),
        floor: Floor::measure()?,
        cpus: setting.cpus.clone(),
    };
    let objects = Object::meant(&args.wait_object);
    let mut progress = Progress::new(limit, objects.len() as u64);
    let mut rows = Vec::new();
    for object in objects {
        if stop.is_set() {
            break;
        }
        progress.begin(object.name().to_owned());
        let [warm_up, measured] = turns::run(object, &setting, &stop, &progress)?;
        progress.end(measured.latency.count());
        // Of one that ended before its first sample there is nothing to tell.
        if measured.latency.count() > 0 {
            rows.push(Row { object, warm_up, measured });
        }
    }
    progress.clear();
    if rows.is_empty() {
        return Err(nothing(&stop));
    }
    let tallies: Vec<_> =
        rows.iter().map(|row| (row.object.name().to_owned(), &row.measured.latency)).collect();
    let lines = report::lines(&about, &rows)?;
    args.results.write(&lines, &report::text(&about, &rows), || report::figure(&about, &rows), &tallies)
}
