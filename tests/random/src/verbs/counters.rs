//! Flow counters, and their readers, snapshots and samplers.

use std::time::{Duration, Instant};

use uverbs::{Point, Rates, ReadCountersFlags, Sampler as Sampling};

use super::{done, ends, verb};
use crate::language::Arg::{End, Has, New, One, Word};
use crate::language::Kind::{Context, Counters, Flow, Reader, Sampler, Snapshot};
use crate::language::Verb;

const FLAGS: &[&str] = &["none", "cached", "unknown"];

fn flags(word: u64) -> ReadCountersFlags {
    match word {
        0 => ReadCountersFlags::empty(),
        1 => ReadCountersFlags::PREFER_CACHED,
        _ => ReadCountersFlags::from_bits_retain(0x80),
    }
}

const AGES: crate::language::Arg = One(&[0, 3_600_000]);

fn age(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb("counters", 3, &[New(Counters), Has(Context)], |w, a| {
            w.counters.free(a[0])?;
            let counters = w.contexts.get(a[1])?.create_counters()?;
            w.counters.put(a[0], counters);
            done(())
        }),
        verb(
            "attach",
            5,
            &[
                Has(Counters),
                Word(&["packets", "bytes"]),
                One(&[0, 1, 2, 7, 1023, 1024, 8190, 8191, 0xffff_ffff]),
            ],
            |w, a| {
                let point = if a[1] == 0 { Point::Packets } else { Point::Bytes };
                done(w.counters.get(a[0])?.attach(point, a[2] as u32)?)
            },
        ),
        verb("read", 5, &[Has(Counters), One(&[2, 0, 1, 3, 8, 1024, 8191]), Word(FLAGS)], |w, a| {
            let mut values = vec![0; a[1] as usize];
            let counters = w.counters.get(a[0])?;
            if a[2] == 0 {
                counters.read(&mut values)?
            } else {
                counters.read_with(&mut values, flags(a[2]))?
            }
            values.truncate(8);
            Ok(format!("{values:?}"))
        }),
        verb("reader", 2, &[New(Reader), Has(Flow), Word(FLAGS)], |w, a| {
            w.readers.free(a[0])?;
            let flow = w.flows.get(a[1])?;
            let reader = if a[2] == 0 { flow.reader()? } else { flow.reader_with(flags(a[2]))? };
            w.readers.put(a[0], reader);
            done(())
        }),
        verb("reader-read", 3, &[Has(Reader)], |w, a| {
            let reader = w.readers.get_mut(a[0])?;
            let mut values = reader.read()?.to_vec();
            let is_kept = reader.values() == values;
            values.truncate(8);
            Ok(format!("{is_kept} {values:?}"))
        }),
        verb("reader-values", 1, &[Has(Reader)], |w, a| {
            let mut values = w.readers.get(a[0])?.values().to_vec();
            values.truncate(8);
            Ok(format!("{values:?}"))
        }),
        verb("drop-reader", 1, &[End(Reader)], |w, a| done(w.readers.take(a[0])?)),
        verb("snapshot", 2, &[New(Snapshot), Has(Counters)], |w, a| {
            w.snapshots.free(a[0])?;
            let snapshot = w.counters.get(a[1])?.snapshot()?;
            w.snapshots.put(a[0], snapshot);
            done(())
        }),
        verb("snapshot-of-flow", 2, &[New(Snapshot), Has(Flow)], |w, a| {
            w.snapshots.free(a[0])?;
            let snapshot = w.flows.get(a[1])?.snapshot()?;
            w.snapshots.put(a[0], snapshot);
            done(())
        }),
        verb("snapshot-read", 3, &[Has(Snapshot), AGES], |w, a| {
            let cached = w.snapshots.get(a[0])?.read_cached::<2>(age(a[1]))?;
            let is_young = a[1] != 0 || cached.age() < age(60_000) && cached.age_ns() < 60_000_000_000;
            Ok(format!("{:?} {is_young} {}", cached.values(), cached.stamp().age_at(0).as_nanos()))
        }),
        verb("snapshot-read-into", 2, &[Has(Snapshot), AGES, One(&[2, 0, 1, 3])], |w, a| {
            let mut values = vec![0; a[2] as usize];
            let seen = w.snapshots.get(a[0])?.read_cached_into(age(a[1]), &mut values)?;
            let is_young = a[1] != 0 || seen.age() < age(60_000) && seen.age_ns() < 60_000_000_000;
            Ok(format!("{values:?} {is_young} {}", seen.stamp().taken_ns() > 0))
        }),
        // With a clock of the program.
        verb("snapshot-read-at", 2, &[Has(Snapshot), One(&[0, 1_000_000_000]), AGES], |w, a| {
            let snapshot = w.snapshots.get(a[0])?;
            let mut values = [0; 2];
            let values_then = snapshot.read_at::<2>(a[1], age(a[2]))?.values();
            snapshot.read_at_into(a[1], age(a[2]), &mut values)?;
            Ok(format!("{}", values_then == values))
        }),
        verb("snapshot-latest", 2, &[Has(Snapshot)], |w, a| {
            let snapshot = w.snapshots.get(a[0])?;
            let (values, stamp) = snapshot.latest::<2>()?;
            let mut again = [0; 2];
            let is_same = snapshot.latest_into(&mut again)?.epoch() == stamp.epoch() && again == values;
            Ok(format!("{values:?} {is_same}"))
        }),
        verb("snapshot-refresh", 2, &[Has(Snapshot)], |w, a| done(w.snapshots.get(a[0])?.refresh()?)),
        verb("snapshot-facts", 2, &[Has(Snapshot)], |w, a| {
            let snapshot = w.snapshots.get(a[0])?;
            let error = snapshot.last_error().map(|error| (error.kind(), error.errno()));
            Ok(format!("{} {} {error:?}", snapshot.len(), snapshot.has_ended()))
        }),
        // How fast the values grow, with times of the program.
        verb("rates", 1, &[Has(Snapshot)], |w, a| {
            let (values, stamp) = w.snapshots.get(a[0])?.latest::<2>()?;
            let mut rates = Rates::<2>::new(age(1000));
            rates.update(stamp, values);
            let first = rates.per_second().is_none();
            rates.update_at(stamp.taken_ns() + 500_000_000, values.map(|value| value + 5));
            Ok(format!("{first} {:?} {:?}", rates.per_second(), rates.span()))
        }),
        verb("drop-snapshot", 1, &[End(Snapshot)], |w, a| done(w.snapshots.take(a[0])?)),
        verb("sampler", 1, &[New(Sampler), One(&[0, 1, 8])], |w, a| {
            w.samplers.free(a[0])?;
            let sampler = Sampling::new(age(3_600_000));
            let sampler = if a[1] == 0 { sampler } else { sampler.at_most(a[1] as usize) };
            w.samplers.put(a[0], sampler);
            done(())
        }),
        verb("sampler-add", 2, &[Has(Sampler), Has(Snapshot)], |w, a| {
            let sampler = w.samplers.get(a[0])?;
            sampler.add(w.snapshots.get(a[1])?);
            Ok(format!("{} {}", sampler.len(), sampler.is_empty()))
        }),
        verb("sampler-remove", 1, &[Has(Sampler), Has(Snapshot)], |w, a| {
            let sampler = w.samplers.get(a[0])?;
            Ok(sampler.remove(w.snapshots.get(a[1])?).to_string())
        }),
        verb("sampler-tick", 2, &[Has(Sampler)], |w, a| {
            let tick = w.samplers.get_mut(a[0])?.tick();
            Ok(format!("{} {} {}", tick.refreshed, tick.failed, tick.ended))
        }),
        verb("sampler-tick-at", 1, &[Has(Sampler), One(&[0, 10_000_000_000_000_000])], |w, a| {
            let tick = w.samplers.get_mut(a[0])?.tick_at(a[1]);
            Ok(format!("{} {} {}", tick.refreshed, tick.failed, tick.ended))
        }),
        verb("sampler-report", 1, &[Has(Sampler)], |w, a| {
            let report = w.samplers.get(a[0])?.report();
            Ok(format!("{} {} {} {}", report.rounds, report.refreshed, report.failed, report.ended))
        }),
        // A thread owns it until its end, and reads all its snapshots once.
        verb("sampler-thread", 1, &[End(Sampler), Has(Snapshot)], |w, a| {
            let snapshot = w.snapshots.get(a[1])?.clone();
            let thread = w.samplers.take(a[0])?.spawn()?;
            thread.add(&snapshot);
            let start = Instant::now();
            while thread.report().rounds == 0 && start.elapsed() < age(1000) {
                std::thread::yield_now();
            }
            // The thread has decided whether it was in that round.
            snapshot.refresh().ok();
            thread.remove(&snapshot);
            done(())
        }),
        verb("drop-sampler", 1, &[End(Sampler)], |w, a| done(w.samplers.take(a[0])?)),
    ],
    &ends!(Counters, counters, "destroy-counters", "drop-counters"),
];
