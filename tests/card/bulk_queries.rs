//! Asynchronous reads of a pool of counters.

use std::time::Duration;

use crate::common::*;
use uverbs::mlx5::{CounterPool, PoolCounter, PoolQueries, Totals};
use uverbs::{ErrorKind, Result};

/// The next answer, for which the firmware has 20 seconds.
#[track_caller]
fn answer(queries: &mut PoolQueries, counter: &PoolCounter) -> (u64, Result<Totals>) {
    loop {
        assert!(queries.wait(Some(Duration::from_secs(20))).unwrap(), "no answer");
        match queries.try_next() {
            Ok(Some((number, values))) => return (number, Ok(values.of(counter).unwrap())),
            Ok(None) => {}
            Err(error) => return (0, Err(error)),
        }
    }
}

#[test]
fn reads_that_nobody_waits_for_answer_in_their_order() {
    on_every_bulk_device(|target, wire, raw| {
        let pool = CounterPool::new(&raw.context, 1000).unwrap();
        let flow = pool.take().unwrap().create_flow(&raw.qp, &to(1)).unwrap();
        let mut queries = pool.queries().unwrap();
        assert!(queries.try_next().unwrap().is_none(), "nothing was asked");
        // An answer of zeros is not accepted.
        assert_eq!(queries.start().unwrap(), 1);
        let (count, first) = commands(target, "QUERY_FLOW_COUNTER", || answer(&mut queries, flow.counter()));
        assert_eq!(first, (1, Ok(Totals::default())));
        assert!(count >= 1 || target.control.is_none());

        wire.inject(&frame(mac(1), 60));
        let (count, ()) = commands(target, "QUERY_FLOW_COUNTER", || {
            for number in 2..=4 {
                assert_eq!(queries.start().unwrap(), number);
            }
            for number in 2..=4 {
                assert_eq!(answer(&mut queries, flow.counter()), (number, Ok(totals(1, 60))));
            }
        });
        assert!(count == 3 || target.control.is_none(), "{count} commands");
        assert!(queries.try_next().unwrap().is_none());

        // Answers that were not taken are discarded with the file.
        queries.start().unwrap();
        drop(queries);
        assert_eq!(pool.reader().read().unwrap().of(flow.counter()), Some(totals(1, 60)));
    });
}

/// Linux 6.1 enables interrupts in the handler that reports such a failure (cmd_status_log, cmd.c), and logs a warning.
#[test]
fn a_read_that_nobody_waits_for_fails_alone() {
    on_every_bulk_device(|target, wire, raw| {
        if kernel().starts_with("6.1.") {
            return skip(target, "this kernel complains of itself when such a read fails");
        }
        let Some(control) = &target.control else {
            return skip(target, "its firmware cannot be told to fail");
        };
        let pool = CounterPool::new(&raw.context, 8).unwrap();
        let flow = pool.take().unwrap().create_flow(&raw.qp, &to(1)).unwrap();
        wire.inject(&frame(mac(1), 60));
        let mut queries = pool.queries().unwrap();
        control.ask("fail QUERY_FLOW_COUNTER 3 1 0x99");
        queries.start().unwrap();
        let error = answer(&mut queries, flow.counter()).1.unwrap_err();
        assert!(error.hint().unwrap().contains("status 0x3, syndrome 0x99"), "{error}");
        queries.start().unwrap();
        assert_eq!(answer(&mut queries, flow.counter()), (2, Ok(totals(1, 60))));
    });
}

#[test]
fn no_more_than_a_mebibyte_of_answers_is_under_way() {
    on_every_bulk_device(|_, _, raw| {
        let pool = CounterPool::new(&raw.context, CounterPool::MAX).unwrap();
        let counter = pool.take().unwrap();
        let mut queries = pool.queries().unwrap();
        // Answers that have arrived and were not taken count too, so the result does not depend on the speed of the firmware.
        let begun = (0..17).map_while(|_| queries.start().ok()).count();
        assert_eq!(begun, 16);
        refuses(queries.start(), ErrorKind::Exhausted, EAGAIN, "take their answers first");
        for number in 1..=16 {
            assert_eq!(answer(&mut queries, &counter), (number, Ok(Totals::default())));
        }
        assert_eq!(queries.start().unwrap(), 17);
        answer(&mut queries, &counter).1.unwrap();
    });
}

#[cfg(feature = "tokio")]
#[test]
fn a_task_reads_a_pool_and_a_read_that_it_gave_up_is_passed_over() {
    use tokio::time::timeout;
    use uverbs::mlx5::AsyncPoolReader;

    on_every_bulk_device(|target, wire, raw| {
        let pool = CounterPool::new(&raw.context, 100).unwrap();
        let flow = pool.take().unwrap().create_flow(&raw.qp, &to(1)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut reader = AsyncPoolReader::new(pool.queries().unwrap()).unwrap();
            wire.inject(&frame(mac(1), 60));
            if let Some(control) = &target.control {
                control.ask("delay 300 QUERY_FLOW_COUNTER");
                assert!(timeout(Duration::from_millis(1), reader.read()).await.is_err(), "it takes its time");
                control.heal();
            }
            wire.inject(&frame(mac(1), 60));
            let read = timeout(Duration::from_secs(20), reader.read()).await.expect("it ends");
            assert_eq!(read.unwrap().of(flow.counter()), Some(totals(2, 120)));
        });
    });
}
