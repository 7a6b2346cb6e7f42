//! Counters in bulk, of mlx5.

use std::time::Duration;

use uverbs::mlx5::{CounterPool, Totals};
use uverbs::{AnyRule, mlx5};

use super::{done, ends, verb};
use crate::language::Arg::{End, Has, New, One, Word};
use crate::language::Kind::{Context, Pair as Pairs, Pool, PoolCounter, PoolFlow, Snapshot};
use crate::language::Verb;
use crate::world::{Miss, Pair};

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb("pool", 1, &[New(Pool), Has(Context), One(&[4, 0, 1, 128, 1 << 20])], |w, a| {
            w.pools.free(a[0])?;
            let pool = CounterPool::new(w.contexts.get(a[1])?, a[2] as usize)?;
            let is_enough = pool.capacity() as u64 >= a[2] && pool.available() == pool.capacity();
            w.pools.put(a[0], pool);
            Ok(is_enough.to_string())
        }),
        verb("pool-take", 2, &[New(PoolCounter), Has(Pool)], |w, a| {
            w.pool_counters.free(a[0])?;
            let counter = w.pools.get(a[1])?.take()?;
            let is_inside = counter.index() < w.pools.get(a[1])?.capacity();
            w.pool_counters.put(a[0], counter);
            Ok(is_inside.to_string())
        }),
        verb("pool-read", 2, &[Has(PoolCounter)], |w, a| {
            let totals = w.pool_counters.get(a[0])?.read()?;
            Ok(format!("{} {}", totals.packets, totals.bytes))
        }),
        verb("pool-read-all", 1, &[Has(Pool), Has(PoolCounter)], |w, a| {
            let counters = [w.pool_counters.get(a[1])?.clone()];
            let mut reader = w.pools.get(a[0])?.reader();
            let of = reader.read()?.of(&counters[0]).map(|totals| totals.packets);
            let mut totals = [Totals::default(); 1];
            reader.read_all(&counters, &mut totals)?;
            Ok(format!("{of:?} {}", totals[0].packets))
        }),
        verb("pool-queries", 1, &[Has(Pool)], |w, a| {
            let mut queries = w.pools.get(a[0])?.queries()?;
            let number = queries.start()?;
            let is_there = queries.wait(Some(Duration::from_secs(5)))?;
            let answer = queries.try_next()?;
            Ok(format!("{is_there} {}", answer.is_some_and(|(of, _)| of == number)))
        }),
        verb("pool-snapshot", 1, &[New(Snapshot), Has(PoolCounter)], |w, a| {
            w.snapshots.free(a[0])?;
            let snapshot = w.pool_counters.get(a[1])?.snapshot();
            w.snapshots.put(a[0], snapshot);
            done(())
        }),
        verb(
            "pool-flow",
            2,
            &[New(PoolFlow), Has(PoolCounter), Has(Pairs), Word(&["any", "dst-1", "udp", "ip", "drop"])],
            |w, a| {
                w.pool_flows.free(a[0])?;
                let text = ["any", "ether dst 02:00:00:00:00:01", "udp", "ip", "drop"][a[3] as usize];
                let Ok(AnyRule::Normal(rule)) = AnyRule::parse(text, 1) else { return Err(Miss::Absent) };
                let Pair::Raw(qp) = w.pairs.get(a[2])? else { return Err(Miss::Absent) };
                let counter = w.pool_counters.get(a[1])?;
                let flow: mlx5::PoolFlow = counter.create_flow(qp, &rule)?;
                let is_same = flow.counter().index() == counter.index();
                w.pool_flows.put(a[0], flow);
                Ok(is_same.to_string())
            },
        ),
        verb("drop-pool-counter", 1, &[End(PoolCounter)], |w, a| done(w.pool_counters.take(a[0])?)),
    ],
    &ends!(Pool, pools, "destroy-pool", "drop-pool"),
    &ends!(PoolFlow, pool_flows, "destroy-pool-flow", "drop-pool-flow"),
];
