//! Under loom every interleaving and every outcome that the memory model allows: `RUSTFLAGS="--cfg uverbs_loom" cargo test --lib latch`.
//! Otherwise real threads run, also under Miri.

#[cfg(uverbs_loom)]
use loom::{sync::Arc, thread};
#[cfg(not(uverbs_loom))]
use std::{sync::Arc, thread};

use super::*;

#[cfg(uverbs_loom)]
const LAST: u64 = 3;
#[cfg(all(not(uverbs_loom), miri))]
const LAST: u64 = 100;
#[cfg(all(not(uverbs_loom), not(miri)))]
const LAST: u64 = 100_000;

#[cfg(uverbs_loom)]
fn everywhere(body: fn()) {
    let mut model = loom::model::Builder::new();
    // All interleavings with at most this many switches where a thread does not have to wait.
    model.preemption_bound = Some(3);
    model.check(body);
}

#[cfg(not(uverbs_loom))]
fn everywhere(body: fn()) {
    body();
}

/// The `n`th published value.
fn nth(n: u64) -> (Entry, [u64; 2]) {
    (Entry { ticks: n, ns: 10 * n }, [100 * n, 1000 * n])
}

fn latch() -> Arc<Latch> {
    Arc::new(Latch::new(2, nth(0).0))
}

/// Reads once. The value must be from a single publication, and not older than the last one seen.
fn look(latch: &Latch, last: &mut u64) {
    if let Some((epoch, entry, values)) = latch.try_read(|all| all.array()) {
        assert_eq!((entry, values), nth(epoch), "torn");
        assert!(epoch >= *last, "epoch {epoch} after {last}");
        *last = epoch;
    }
}

#[test]
fn a_reader_sees_whole_publications_and_never_an_older_one() {
    everywhere(|| {
        let latch = latch();
        let readers = [0; if cfg!(uverbs_loom) { 1 } else { 2 }].map(|_| {
            let latch = latch.clone();
            thread::spawn(move || {
                let mut last = 0;
                let mut looks = 0;
                // Loom tries all orders, so two reads are enough; otherwise read until the writer is done.
                while if cfg!(uverbs_loom) { looks < 2 } else { last < LAST } {
                    look(&latch, &mut last);
                    looks += 1;
                }
            })
        });
        for n in 1..=LAST {
            let (entry, values) = nth(n);
            latch.publish(entry, &values);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        let mut last = LAST;
        look(&latch, &mut last);
        assert_eq!(latch.try_read(|all| all.array()).unwrap(), (LAST, nth(LAST).0, nth(LAST).1));
    });
}

#[test]
fn what_was_published_before_is_seen() {
    everywhere(|| {
        let latch = latch();
        let (entry, values) = nth(1);
        latch.publish(entry, &values);
        let reader = latch.clone();
        let reader = thread::spawn(move || {
            let mut last = 1;
            look(&reader, &mut last);
        });
        let (entry, values) = nth(2);
        latch.publish(entry, &values);
        reader.join().unwrap();
    });
}

#[test]
fn who_has_no_room_for_all_values_gets_none() {
    everywhere(|| {
        let latch = latch();
        assert_eq!(latch.try_read(|all| all.array::<1>()), None);
        assert_eq!(latch.try_read(|all| all.copy(&mut [0; 3])), None);
        let mut values = [7; 2];
        assert_eq!(latch.try_read(|all| all.copy(&mut values)), Some((0, nth(0).0, ())));
        assert_eq!((values, latch.len()), ([0, 0], 2));
    });
}
