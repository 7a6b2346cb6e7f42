//! Completion counters.

use std::future::Future;
use std::pin::pin;
use std::task::{Context as Tasks, Waker};
use std::time::Duration;

use uverbs::{CompletionCounter, CounterEvents, WaitHandle, WaitObject};

use super::{done, ends, verb};
use crate::language::Arg::{Has, New, One, Word};
use crate::language::Kind::{Completions, Context, Counter};
use crate::language::Verb;
use crate::world::{Miss, World};

fn object(w: &World, word: u64) -> WaitObject {
    match word {
        1 => WaitObject::Unspecified,
        2 => WaitObject::FileDescriptor,
        3 => WaitObject::Set(w.wait_set.clone()),
        _ => WaitObject::None,
    }
}

const OBJECTS: crate::language::Arg = Word(&["none", "unspecified", "file", "set"]);
const VALUES: crate::language::Arg = One(&[1, 0, 2, 5, u64::MAX - 1]);

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb("counter", 3, &[New(Counter), OBJECTS], |w, a| {
            w.counting.free(a[0])?;
            let counter = CompletionCounter::new(object(w, a[1]))?;
            w.counting.put(a[0], counter);
            done(())
        }),
        verb(
            "counter-of",
            1,
            &[New(Counter), OBJECTS, Word(&["completions", "bytes"]), One(&[0, 1])],
            |w, a| {
                w.counting.free(a[0])?;
                let events = if a[2] == 0 { CounterEvents::Completions } else { CounterEvents::Bytes };
                let builder = CompletionCounter::builder().events(events).wait_object(object(w, a[1]));
                let counter = builder.flags(a[3]).cookie(a[0]).create()?;
                let is_same = counter.cookie() == a[0] && counter.events() == events;
                w.counting.put(a[0], counter);
                Ok(is_same.to_string())
            },
        ),
        verb("counter-on", 1, &[New(Counter), Has(Context)], |w, a| {
            w.counting.free(a[0])?;
            let counter = CompletionCounter::builder().create_on(w.contexts.get(a[1])?)?;
            w.counting.put(a[0], counter);
            done(())
        }),
        verb("counter-caps", 1, &[Has(Context)], |w, a| {
            done(w.contexts.get(a[0])?.completion_counter_caps()?)
        }),
        verb("counter-read", 5, &[Has(Counter)], |w, a| {
            w.settle();
            let counter = w.counting.get(a[0])?;
            Ok(format!("{} {}", counter.read(), counter.read_err()))
        }),
        verb("counter-add", 2, &[Has(Counter), VALUES, Word(&["value", "error"])], |w, a| {
            let counter = w.counting.get(a[0])?;
            if a[2] == 0 {
                counter.add(a[1])?
            } else {
                counter.add_err(a[1])?
            }
            done(())
        }),
        verb("counter-set", 2, &[Has(Counter), VALUES, Word(&["value", "error"])], |w, a| {
            let counter = w.counting.get(a[0])?;
            if a[2] == 0 {
                counter.set(a[1])?
            } else {
                counter.set_err(a[1])?
            }
            done(())
        }),
        verb("counter-wait", 2, &[Has(Counter), VALUES], |w, a| {
            done(w.counting.get(a[0])?.wait(a[1], Some(Duration::ZERO))?)
        }),
        verb("counter-wait-since", 1, &[Has(Counter), VALUES, One(&[0, 1])], |w, a| {
            done(w.counting.get(a[0])?.wait_since(a[1], a[2], Some(Duration::ZERO))?)
        }),
        verb("counter-task", 1, &[Has(Counter), VALUES], |w, a| {
            let mut wait = pin!(w.counting.get(a[0])?.wait_async(a[1]));
            let polled = wait.as_mut().poll(&mut Tasks::from_waker(Waker::noop()));
            Ok(match polled {
                std::task::Poll::Pending => "pending".to_owned(),
                std::task::Poll::Ready(Ok(())) => "reached".to_owned(),
                std::task::Poll::Ready(Err(error)) => return Err(error.into()),
            })
        }),
        verb("counter-arm", 1, &[Has(Counter), VALUES], |w, a| {
            Ok(w.counting.get(a[0])?.arm(a[1])?.to_string())
        }),
        verb("counter-handle", 1, &[Has(Counter)], |w, a| {
            Ok(match w.counting.get(a[0])?.wait_handle()? {
                WaitHandle::Set(set) => format!("set {:?}", set.wait(Some(Duration::ZERO)).is_ok()),
                WaitHandle::FileDescriptor(_) => "file".to_owned(),
                _ => "other".to_owned(),
            })
        }),
        verb("counter-flags", 1, &[Has(Counter), One(&[0, 1])], |w, a| {
            let counter = w.counting.get(a[0])?;
            counter.set_operation_flags(a[1]);
            Ok((counter.operation_flags() == a[1]).to_string())
        }),
        verb("progress", 3, &[Has(Completions)], |w, a| {
            let at = a[0];
            w.settle();
            let all = w.collect(|w, all| {
                let found = w.completions.get_mut(at)?.progress();
                all.extend(std::iter::repeat_n((), found));
                Ok(())
            })?;
            Ok(all.len().to_string())
        }),
        verb("progress-until", 1, &[Has(Completions), Has(Counter), VALUES], |w, a| {
            w.settle();
            let counter = w.counting.get(a[1])?;
            done(w.completions.get_mut(a[0])?.progress_until(
                counter,
                a[2],
                Some(Duration::from_millis(1)),
            )?)
        }),
        // A thread takes completions from a queue of its own, on a file of its own. It is not known whether it has armed the queue, by a
        // command, when it ends.
        verb("progress-thread", 1, &[], |w, _| {
            if w.is_child {
                return Err(Miss::Absent);
            }
            let context = w.machine.device.open()?;
            let channel = context.create_comp_channel()?;
            let cq = context.cq(4).channel(&channel).create()?;
            let progress = uverbs::Progress::start(cq, |_| {})?;
            drop(progress.stop()?);
            done(())
        }),
    ],
    &ends!(Counter, counting, "destroy-counter", "drop-counter"),
];
