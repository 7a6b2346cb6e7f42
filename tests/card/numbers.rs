//! Numbers of queue pairs that are reserved, and entries of the rate table: `mlx5::QpNumbers` and `mlx5::PacingEntry`.

use crate::common::*;
use uverbs::mlx5::{Pace, PacingEntry, QpNumbers};
use uverbs::{ErrorKind, OpenOptions, SoftDevice};

const ENOSPC: i32 = 28;

#[test]
fn reserved_numbers_are_those_of_no_queue_pair() {
    on_every_bulk_device(|target, _, raw| {
        let numbers = match QpNumbers::new(&raw.context) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return skip(target, "it reserves no numbers");
            }
            other => other.unwrap(),
        };
        let taken: Vec<_> = (0..9).map(|_| numbers.reserve().unwrap()).collect();
        let mut all: Vec<_> = taken.iter().map(|number| number.number()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 9, "each is given once");
        assert!(!all.contains(&raw.qp.number()) && all.iter().all(|number| *number < 1 << 24));
        let other = Raw::new(&raw.context);
        assert!(!all.contains(&other.qp.number()));
        // A number that was given is not given again as long as its block exists.
        let last = taken.last().map(|number| number.number());
        drop(taken);
        let next = numbers.clone().reserve().unwrap();
        assert_ne!(Some(next.number()), last);
        drop(numbers);
        assert!(next.number() > 0);
    });
}

#[test]
fn equal_rates_share_an_entry_unless_it_is_owned() {
    on_every_bulk_device(|target, _, raw| {
        let context = &raw.context;
        let pace = Pace { rate: 100_000, burst: 4096, packet: 1024 };
        let first = match PacingEntry::alloc(context, pace, false) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return skip(target, "it paces nothing"),
            other => other.unwrap(),
        };
        let equal = PacingEntry::alloc(context, pace, false).unwrap();
        let slower = PacingEntry::alloc(context, Pace { rate: 50_000, ..pace }, false).unwrap();
        let own = PacingEntry::alloc(context, pace, true).unwrap();
        let index = [&first, &equal, &slower, &own].map(PacingEntry::index);
        assert!(index[0] == index[1] && index[0] != index[2] && index[0] != index[3] && index[2] != index[3]);
        assert!(index.iter().all(|index| *index != 0), "zero is no limit");
        for rate in [0, 1] {
            let refused = PacingEntry::alloc(context, Pace { rate, ..pace }, false);
            refuses(refused.map(drop), ErrorKind::InvalidInput, EINVAL, "no such rate");
        }
        for len in [0, 49] {
            let refused = PacingEntry::with_context(context, &vec![1; len], false);
            refuses(refused.map(drop), ErrorKind::InvalidInput, EINVAL, "of this length");
        }
        own.destroy().unwrap();
        // The table ends; what is dropped is free again.
        let mut all = Vec::new();
        let error = loop {
            match PacingEntry::alloc(context, pace, true) {
                Ok(entry) => all.push(entry),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Exhausted, Some(ENOSPC)));
        all.pop();
        drop(PacingEntry::alloc(context, pace, true).unwrap());
        // Only a context that sends commands could use an entry.
        let without = OpenOptions::new().open(&target.device).unwrap();
        let refused = PacingEntry::alloc(&without, pace, false);
        refuses(refused.map(drop), ErrorKind::InvalidInput, EINVAL, "OpenOptions::devx(true)");
    });
}

#[test]
fn a_device_that_is_no_card_has_neither() {
    let context = SoftDevice::default().open().unwrap();
    let errors = [
        QpNumbers::new(&context).unwrap_err(),
        PacingEntry::alloc(&context, Pace { rate: 1_000_000, ..Pace::default() }, false).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}
