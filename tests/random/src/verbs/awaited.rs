//! Waiting by futures.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;
use uverbs::mlx5::AsyncPoolReader;
use uverbs::{AsyncEvent, Error, Events, Sampler};

use super::verb;
use crate::language::Arg::Has;
use crate::language::Kind::{Channel, Context, Pool, Snapshot};
use crate::language::Verb;

/// An event that has happened is found within this time.
const MOMENT: Duration = Duration::from_millis(1);

fn block_on<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Takes events until none arrives for a moment, in the order of their numbers.
macro_rules! all_of {
    ($source:expr, $moment:expr, $number:expr) => {{
        let (source, moment) = ($source, $moment);
        block_on(async {
            let events = Events::new(source)?;
            let mut all = Vec::new();
            while let Ok(event) = timeout(moment, events.next()).await {
                all.push($number(event?));
            }
            all.sort();
            Ok(format!("{} {all:?}", all.len()))
        })?
    }};
}

pub(super) const VERBS: &[&[Verb]] = &[&[
    verb("events-awaited", 1, &[Has(Context)], |w, a| {
        w.settle();
        let context = w.contexts.get(a[0])?.clone();
        Ok(all_of!(context, w.patience.max(MOMENT), |event: AsyncEvent| event.kind.number()))
    }),
    verb("channel-awaited", 1, &[Has(Channel)], |w, a| {
        w.settle();
        let channel = w.channels.get(a[0])?.clone();
        Ok(all_of!(channel, w.patience.max(MOMENT), |cookie: u64| cookie))
    }),
    // The first tick comes immediately, the second in an hour.
    verb("sampler-awaited", 1, &[Has(Snapshot)], |w, a| {
        let mut sampler = Sampler::new(Duration::from_secs(3600));
        sampler.add(w.snapshots.get(a[0])?);
        block_on(async {
            let _ = timeout(w.patience.max(MOMENT), sampler.run()).await;
            Ok(())
        })?;
        let report = sampler.report();
        Ok(format!("{} {} {} {}", report.rounds, report.refreshed, report.failed, report.ended))
    }),
    verb("pool-awaited", 1, &[Has(Pool)], |w, a| {
        let pool = w.pools.get(a[0])?;
        let queries = pool.queries()?;
        let capacity = pool.capacity();
        let is_whole = block_on(async {
            let mut reader = AsyncPoolReader::new(queries)?;
            let values = timeout(Duration::from_secs(5), reader.read()).await;
            values.map_or(Ok(false), |values| Ok(values?.raw().len() >= capacity))
        })?;
        Ok(format!("{is_whole} {}", pool.context().has_devx()))
    }),
]];
