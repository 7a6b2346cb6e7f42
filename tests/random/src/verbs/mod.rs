//! The operations of steps. A verb is a row of a table: its name, how often it is chosen, its arguments, and its function.

mod awaited;
mod connections;
mod contexts;
mod counters;
mod counting;
mod faults;
mod flows;
mod memory;
mod pairs;
mod pools;
mod posts;
mod queues;
mod soft;
mod watched;
mod windows;
mod work_queues;

use crate::language::{Arg, Verb};
use crate::world::{Played, World};

const fn verb(
    name: &'static str,
    weight: u32,
    args: &'static [Arg],
    play: fn(&mut World, &[u64]) -> Played,
) -> Verb {
    Verb { name, args, weight, play }
}

/// Two verbs: one destroys an object and returns the result, the other only drops it.
macro_rules! ends {
    ($kind:ident, $places:ident, $destroy:literal, $drop:literal) => {
        [
            verb($destroy, 3, &[$crate::language::Arg::End($crate::language::Kind::$kind)], |w, a| {
                w.$places.destroy(a[0], |object| object.destroy())
            }),
            verb($drop, 2, &[$crate::language::Arg::End($crate::language::Kind::$kind)], |w, a| {
                drop(w.$places.take(a[0])?);
                Ok(String::new())
            }),
        ]
    };
}
use ends;

/// All verbs.
pub(crate) fn all() -> impl Iterator<Item = &'static Verb> {
    let tables: [&[&[Verb]]; 16] = [
        contexts::VERBS,
        memory::VERBS,
        windows::VERBS,
        queues::VERBS,
        pairs::VERBS,
        posts::VERBS,
        counters::VERBS,
        flows::VERBS,
        counting::VERBS,
        work_queues::VERBS,
        pools::VERBS,
        faults::VERBS,
        watched::VERBS,
        soft::VERBS,
        awaited::VERBS,
        connections::VERBS,
    ];
    tables.into_iter().flatten().flat_map(|table| table.iter())
}

/// Something was done, without a visible result.
fn done<T>(_: T) -> Played {
    Ok(String::new())
}
