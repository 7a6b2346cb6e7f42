//! Completion channels, completion queues and shared receive queues.

use std::time::Duration;

use uverbs::{Completion, ReceiveRequest, Status, WcFlags};

use super::memory::{LENGTHS, OFFSETS};
use super::{done, ends, verb};
use crate::language::Arg::{End, Has, May, New, One};
use crate::language::Kind::{Channel, Completions, Context, Domain, Region, Shared, Window};
use crate::language::{NONE, Verb};
use crate::world::{Miss, Pair, World};

/// A completion as text. The fields of a failed one except its status have no meaning.
pub(super) fn describe(w: &World, completion: &Completion) -> String {
    let (id, from) = (completion.wr_id, w.place_of(completion.qp_num));
    if let Err(status) = completion.ok() {
        return format!("{id} {from} {status:?}");
    }
    let is_receive = completion.is_receive();
    let len = if is_receive { completion.len } else { 0 };
    let flags = completion.flags.bits();
    let immediate = if flags & 2 != 0 { completion.immediate } else { 0 };
    // The identifier of the own port is shown like that of a port without one.
    let lid = Some(completion.source_lid()).filter(|lid| *lid != w.machine.lid).unwrap_or(0);
    // Immediate data is at the place at which mlx5 returns the index of the key (`handle_responder`, cq.c).
    let comes_alone = flags & (WcFlags::WITH_IMM | WcFlags::WITH_INVALIDATE).bits() == 0;
    let path = (if comes_alone { completion.pkey_index() } else { 0 }, lid);
    format!("{id} {from} {} {len} {flags:#x} {immediate} {path:?}", completion.opcode)
}

/// All completions of a queue as text. They are in no order between queue pairs, nor between sends and receives of one.
fn in_order(w: &World, mut all: Vec<Completion>) -> String {
    all.sort_by_key(|completion| (w.place_of(completion.qp_num), (200..400).contains(&completion.wr_id)));
    let texts: Vec<_> = all.iter().map(|completion| describe(w, completion)).collect();
    format!("{} {}", texts.len(), texts.join("; "))
}

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb("channel", 1, &[New(Channel), Has(Context)], |w, a| {
            w.channels.free(a[0])?;
            let channel = w.contexts.get(a[1])?.create_comp_channel()?;
            w.channels.put(a[0], channel);
            done(())
        }),
        verb("drop-channel", 1, &[End(Channel)], |w, a| done(w.channels.take(a[0])?)),
        verb("channel-wait", 1, &[Has(Channel)], |w, a| {
            w.settle();
            let is_there = w.channels.get(a[0])?.wait(Some(Duration::ZERO))?;
            Ok(is_there.to_string())
        }),
        verb("channel-next", 2, &[Has(Channel)], |w, a| {
            w.settle();
            Ok(match w.channels.get(a[0])?.next_event()? {
                Some(cookie) => format!("q{cookie}"),
                None => "nothing".to_owned(),
            })
        }),
        verb(
            "cq",
            3,
            &[
                New(Completions),
                Has(Context),
                One(&[16, 0, 1, 2, 3, 64, 255, 65535, 1 << 30]),
                May(Channel),
                One(&[0, 1, 99]),
            ],
            |w, a| {
                w.completions.free(a[0])?;
                let context = w.contexts.get(a[1])?;
                let mut builder = context.cq(a[2] as u32).vector(a[4] as u32).cookie(a[0]);
                if a[3] != NONE {
                    builder = builder.channel(w.channels.get(a[3])?);
                }
                let cq = builder.create()?;
                w.completions.put(a[0], cq);
                done(())
            },
        ),
        verb("cq-plain", 1, &[New(Completions), Has(Context), One(&[16, 0, 1, 100])], |w, a| {
            w.completions.free(a[0])?;
            let cq = w.contexts.get(a[1])?.create_cq(a[2] as u32)?;
            let is_enough = u64::from(cq.capacity()) >= a[2];
            w.completions.put(a[0], cq);
            Ok(is_enough.to_string())
        }),
        verb("poll", 8, &[Has(Completions), One(&[16, 1, 2, 0])], |w, a| {
            let (at, most) = (a[0], a[1] as usize);
            w.settle();
            let all = w.collect(|w, all| {
                let mut batch = Completion::batch::<16>();
                loop {
                    let found = w.completions.get_mut(at)?.poll(&mut batch[..most]);
                    all.extend_from_slice(&batch[..found]);
                    if found == 0 {
                        return Ok(());
                    }
                }
            })?;
            // A window learns from completions that it was invalidated.
            for (_, window) in w.windows.iter() {
                window.remote();
            }
            Ok(in_order(w, all))
        }),
        // A completion shows that the peer has invalidated the key.
        verb("poll-invalidated", 1, &[Has(Completions), Has(Window)], |w, a| {
            let (at, window) = (a[0], a[1]);
            w.settle();
            let all = w.collect(|w, all| {
                let mut batch = Completion::batch::<4>();
                loop {
                    let found = w.completions.get_mut(at)?.poll(&mut batch);
                    all.extend_from_slice(&batch[..found]);
                    if found == 0 {
                        return Ok(());
                    }
                }
            })?;
            let window = w.windows.get_mut(window)?;
            let seen = all.iter().filter(|completion| window.invalidated(completion)).count();
            let failed = all.iter().filter(|completion| completion.status != Status::Success).count();
            Ok(format!("{} {seen} {failed}", all.len()))
        }),
        verb("cq-resize", 1, &[Has(Completions), One(&[32, 0, 1, 4, 255, 1 << 30])], |w, a| {
            w.settle();
            done(w.completions.get_mut(a[0])?.resize(a[1] as u32)?)
        }),
        verb("notify", 2, &[Has(Completions), One(&[0, 1])], |w, a| {
            done(w.completions.get(a[0])?.notify(a[1] == 1)?)
        }),
        verb("moderate", 1, &[Has(Completions), One(&[1, 0, 65535]), One(&[1, 0, 65535])], |w, a| {
            done(w.completions.get(a[0])?.moderate(a[1] as u16, a[2] as u16)?)
        }),
        verb(
            "srq",
            2,
            &[
                New(Shared),
                Has(Domain),
                One(&[16, 0, 1, 3, 1 << 30]),
                One(&[1, 0, 2, 99]),
                One(&[0, 1, 4, 17]),
            ],
            |w, a| {
                w.shared.free(a[0])?;
                let domain = w.domains.get(a[1])?;
                w.machine.has_messages()?;
                let builder = domain.srq(a[2] as u32).segments(a[3] as u32).limit(a[4] as u32);
                let srq = builder.cookie(a[0]).create()?;
                let is_enough = u64::from(srq.capacity()) >= a[2] && u64::from(srq.segments()) >= a[3];
                w.shared.put(a[0], srq);
                Ok(is_enough.to_string())
            },
        ),
        verb("srq-plain", 1, &[New(Shared), Has(Domain), One(&[16, 0, 1])], |w, a| {
            w.shared.free(a[0])?;
            let domain = w.domains.get(a[1])?;
            w.machine.has_messages()?;
            let srq = domain.create_srq(a[2] as u32)?;
            w.shared.put(a[0], srq);
            done(())
        }),
        verb("srq-query", 1, &[Has(Shared)], |w, a| {
            let srq = w.shared.get(a[0])?;
            Ok(format!("{}", srq.query()?.srq_limit))
        }),
        verb("srq-arm", 1, &[Has(Shared), One(&[1, 0, 2, 16, 17, 1 << 20])], |w, a| {
            done(w.shared.get(a[0])?.arm(a[1] as u32)?)
        }),
        verb("srq-resize", 1, &[Has(Shared), One(&[32, 0, 1, 4, 1 << 30])], |w, a| {
            done(w.shared.get_mut(a[0])?.resize(a[1] as u32)?)
        }),
        verb("srq-recv", 4, &[Has(Shared), Has(Region), OFFSETS, LENGTHS, One(&[1, 2, 20])], |w, a| {
            let segment = w.regions.get(a[1])?.segment(a[2] as usize..a[2].saturating_add(a[3]) as usize)?;
            let segments = [segment];
            let requests: Vec<_> = (0..a[4]).map(|at| ReceiveRequest::new(300 + at, &segments)).collect();
            let is_datagram = w.pairs.iter().any(|(_, pair)| matches!(pair, Pair::Ud(_)));
            let header = w.regions.get(a[1])?.address().wrapping_add(a[2]);
            let posted = w.shared.get_mut(a[0])?.post_receive(&requests);
            w.headers.extend((is_datagram && posted.is_ok()).then_some(header));
            w.settle();
            posted.map_err(Miss::from).and_then(done)
        }),
    ],
    &ends!(Completions, completions, "destroy-cq", "drop-cq"),
    &ends!(Shared, shared, "destroy-srq", "drop-srq"),
];
