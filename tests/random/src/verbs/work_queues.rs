//! Work queues, their tables, and queue pairs that spread received frames over them.

use uverbs::{HashFields, ReceiveRequest, RssBuilder, WorkQueueState};

use super::memory::{LENGTHS, OFFSETS};
use super::{done, ends, verb};
use crate::language::Arg::{Has, May, New, One, Word};
use crate::language::Kind::{Completions, Context, Domain, Region, Rss, Table, WorkQueue};
use crate::language::{NONE, Verb};

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb(
            "wq",
            1,
            &[
                New(WorkQueue),
                Has(Domain),
                Has(Completions),
                One(&[16, 0, 1, 1 << 20]),
                One(&[1, 0, 99]),
                One(&[0, 1]),
            ],
            |w, a| {
                w.work_queues.free(a[0])?;
                let builder = w.domains.get(a[1])?.work_queue(w.completions.get(a[2])?).cookie(a[0]);
                let builder = builder.depth(a[3] as u32).segments(a[4] as u32);
                let queue = if a[5] == 0 { builder.create()? } else { builder.strip_vlan().create()? };
                let is_enough = u64::from(queue.capacity()) >= a[3] && u64::from(queue.segments()) >= a[4];
                w.numbers.push((queue.number(), 100 + a[0] as usize));
                w.work_queues.put(a[0], queue);
                Ok(is_enough.to_string())
            },
        ),
        verb("wq-modify", 2, &[Has(WorkQueue), Word(&["ready", "reset", "error"])], |w, a| {
            let state = [WorkQueueState::Ready, WorkQueueState::Reset, WorkQueueState::Error][a[1] as usize];
            done(w.work_queues.get_mut(a[0])?.modify(state)?)
        }),
        verb("wq-recv", 2, &[Has(WorkQueue), Has(Region), OFFSETS, LENGTHS, One(&[1, 2, 20])], |w, a| {
            let segment = w.regions.get(a[1])?.segment(a[2] as usize..a[2].saturating_add(a[3]) as usize)?;
            let segments = [segment];
            let requests: Vec<_> = (0..a[4]).map(|at| ReceiveRequest::new(400 + at, &segments)).collect();
            done(w.work_queues.get_mut(a[0])?.post_receive(&requests)?)
        }),
        verb(
            "table",
            1,
            &[New(Table), Has(Context), Has(WorkQueue), May(WorkQueue), One(&[2, 0, 1, 3])],
            |w, a| {
                w.tables.free(a[0])?;
                let first = w.work_queues.get(a[2])?;
                let second = if a[3] == NONE { first } else { w.work_queues.get(a[3])? };
                let queues: Vec<_> = (0..a[4]).map(|at| if at % 2 == 0 { first } else { second }).collect();
                let table = w.contexts.get(a[1])?.create_indirection_table(&queues)?;
                let is_same = table.numbers().len() as u64 == a[4];
                w.tables.put(a[0], table);
                Ok(is_same.to_string())
            },
        ),
        verb(
            "rss",
            1,
            &[New(Rss), Has(Domain), Has(Table), Word(&["ip", "none", "udp", "wrong"])],
            |w, a| {
                w.rss.free(a[0])?;
                let fields = match a[3] {
                    0 => HashFields::IPV4,
                    1 => HashFields::empty(),
                    2 => HashFields::UDP | HashFields::IPV4,
                    // For IPv4 and IPv6 together.
                    _ => HashFields::IPV4 | HashFields::IPV6,
                };
                let rss = w
                    .domains
                    .get(a[1])?
                    .rss(w.tables.get(a[2])?)
                    .hash(fields)
                    .key(RssBuilder::KEY)
                    .create()?;
                w.rss.put(a[0], rss);
                done(())
            },
        ),
    ],
    &ends!(WorkQueue, work_queues, "destroy-wq", "drop-wq"),
    &ends!(Table, tables, "destroy-table", "drop-table"),
    &ends!(Rss, rss, "destroy-rss", "drop-rss"),
];
