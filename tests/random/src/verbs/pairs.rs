//! Queue pairs: creation, states, attributes, groups and destruction.

use std::time::Duration;

use uverbs::abi::types::qp_state;
use uverbs::abi::write::QueryQpResp;
use uverbs::{
    AccessFlags, Attributes, Completion, CompletionQueue, ConnectionOptions, Context, Counted, QpAttrMask,
    QpState, QueuePairBuilder, Route,
};

use super::memory::{ACCESS, rights};
use super::{done, ends, verb};
use crate::each_pair;
use crate::language::Arg::{Bits, End, Has, May, New, One, Word};
use crate::language::Kind::{Completions, Counter, Domain, Handle, Membership, Shared};
use crate::language::{Kind, NONE, Verb};
use crate::world::{Miss, Pair, Played, World};

/// Options for a GID that leads back to this device: that of an IPv4 address if there is one.
pub(super) fn options(context: &Context) -> Result<ConnectionOptions, Miss> {
    let gids = context.gid_table()?;
    let of_ipv4 = |raw: &[u8; 16]| raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let gid = gids.iter().find(|gid| of_ipv4(&gid.raw)).or_else(|| gids.first());
    Ok(ConnectionOptions::new(1, gid.map_or(0, |gid| gid.index as u8)))
}

/// The same route on InfiniBand, where a local identifier addresses a port: everything that is sent stays on this one.
fn with_lid(w: &World, mut route: Route) -> Route {
    route.lid = w.machine.lid;
    route
}

/// Access rights and MTU as queries return them. mlx5 returns only remote rights, those for reads and atomic operations only if there is
/// room for these (`set_qpc_atomic_flags`, qp.c), and an MTU only if the queue pair is connected and ready.
fn told(w: &World, pair: &Pair, is: &QueryQpResp) -> (u32, u8) {
    if !w.machine.tells_as_mlx5 {
        return (is.qp_access_flags, is.path_mtu);
    }
    let (all, write) = (rights(0) - rights(1) - AccessFlags::MW_BIND, AccessFlags::REMOTE_WRITE);
    let kept = if is.max_dest_rd_atomic > 0 { all } else { write };
    let is_ready = (qp_state::RTR..=qp_state::SQE).contains(&is.qp_state);
    let has_mtu = matches!(pair, Pair::Rc(_) | Pair::Uc(_)) && is_ready;
    (is.qp_access_flags & kept.bits(), if has_mtu { is.path_mtu } else { 0 })
}

/// The open device of a completion queue, found by trying all that are open.
fn context_of(w: &World, number: u64) -> Result<&Context, Miss> {
    w.contexts.get(number)
}

fn build<'a, T: uverbs::QpType>(
    mut builder: QueuePairBuilder<'a, T>,
    w: &'a World,
    a: &[u64],
) -> Result<QueuePairBuilder<'a, T>, Miss> {
    if a[4] != NONE {
        builder = builder.receive_cq(w.completions.get(a[4])?);
    }
    if a[5] != NONE {
        builder = builder.srq(w.shared.get(a[5])?);
    }
    builder = builder.send_depth(a[6] as u32).receive_depth(a[7] as u32).segments(a[8] as u32);
    Ok(builder.inline(a[9] as u32).cookie(a[0]))
}

const DEPTHS: crate::language::Arg = One(&[4, 0, 1, 2, 16, 100, 2000, 1 << 24]);

fn create(w: &mut World, a: &[u64]) -> Played {
    w.pairs.free(a[0])?;
    let (domain, cq): (_, &CompletionQueue) = (w.domains.get(a[2])?, w.completions.get(a[3])?);
    if a[1] < 3 {
        if a[4] != NONE {
            w.completions.get(a[4])?;
        }
        if a[5] != NONE {
            w.shared.get(a[5])?;
        }
        w.machine.has_messages()?;
    }
    let pair = match a[1] {
        0 => Pair::Rc(build(domain.rc(cq), w, a)?.create()?),
        1 => Pair::Uc(build(domain.uc(cq), w, a)?.create()?),
        2 => Pair::Ud(build(domain.ud(cq), w, a)?.create()?),
        3 => Pair::Raw(build(domain.raw_packet(cq), w, a)?.create()?),
        4 => Pair::Raw(build(domain.raw_packet(cq), w, a)?.connect(1)?),
        5 => Pair::Raw(build(domain.raw_packet(cq), w, a)?.strip_vlan().create()?),
        _ => Pair::Raw(build(domain.raw_packet(cq), w, a)?.large_sends(64).create()?),
    };
    let capacity = each_pair!(&pair, qp => qp.capacity());
    let has = |wanted: u64, is: u32| u64::from(is) >= wanted;
    let is_enough = has(a[6], capacity.sends)
        && (a[5] != NONE || has(a[7], capacity.receives))
        && has(a[8], capacity.send_segments)
        && has(a[9], capacity.inline);
    w.numbers.push((pair.number(), a[0] as usize));
    w.pairs.put(a[0], pair);
    Ok(is_enough.to_string())
}

fn connect(w: &mut World, a: &[u64]) -> Played {
    let context = context_of(w, a[5])?;
    w.pairs.get(a[0])?;
    w.pairs.get(a[1])?;
    let mut options = options(context)?.access(rights(a[2]));
    // Short times, because a guest waits for them: 4 ms.
    (options.rnr_timer, options.timeout, options.rnr_retries, options.retries) =
        (5, 10, a[3] as u8, a[4] as u8);
    let psn = |at: u64| at as u32 * 1000 + 7;
    let remote = each_pair!(w.pairs.get(a[1])?, qp => qp.endpoint(&options, psn(a[1]))?);
    let local = each_pair!(w.pairs.get(a[0])?, qp => qp.endpoint(&options, psn(a[0]))?);
    match w.pairs.get_mut(a[0])? {
        Pair::Rc(qp) => qp.connect(&options, &local, &remote)?,
        Pair::Uc(qp) => qp.connect(&options, &local, &remote)?,
        Pair::Ud(qp) => qp.activate(&options, 0x1111, psn(a[0]))?,
        Pair::Raw(qp) => qp.bring_up(1)?,
    }
    done(())
}

const STATES: [QpState; 7] = [
    QpState::Init,
    QpState::ReadyToReceive,
    QpState::ReadyToSend,
    QpState::SendQueueDrain,
    QpState::SendQueueError,
    QpState::Error,
    QpState::Reset,
];
const STATE_WORDS: &[&str] = &["init", "rtr", "rts", "sqd", "sqe", "err", "reset"];

/// The attributes that each of the first states requires, for each type of queue pair; the bits are those of `modify`.
const USUAL: [[u64; 4]; 3] = [[0x7, 0x7, 0x4003, 1], [0x1f8, 0x78, 0, 0], [0x3e00, 0x200, 0x200, 0]];

fn modify(w: &mut World, a: &[u64]) -> Played {
    let context = context_of(w, a[5])?;
    let pair = w.pairs.get(a[0])?;
    let column = match pair {
        Pair::Rc(_) => 0,
        Pair::Uc(_) => 1,
        Pair::Ud(_) => 2,
        Pair::Raw(_) => 3,
    };
    // The chosen bits remove usual attributes, or add unusual ones.
    let mask = USUAL.get(a[1] as usize).map_or(0, |row| row[column]) ^ a[2];
    let odd = a[3] != 0;
    let pick = |normal: u32, strange: u32| if odd { strange } else { normal };
    // A device without GIDs has queue pairs that do not need one.
    let route = || -> Result<Route, Miss> {
        let options = options(context)?;
        let gid = context.gid(1, options.gid_index.into())?.raw;
        Ok(with_lid(w, Route::new(pick(1, 7) as u8, options.gid_index, gid)))
    };
    let mut attributes = Attributes::to(STATES[a[1] as usize]);
    for bit in 0..15 {
        if mask & (1 << bit) == 0 {
            continue;
        }
        attributes = match bit {
            0 => attributes.port(pick(1, 2) as u8),
            1 => attributes.pkey_index(pick(0, 500) as u16),
            2 => attributes.access(rights(a[4])),
            3 => attributes.route(&route()?),
            4 => attributes.path_mtu(pick(3, 6) as u8),
            5 => attributes.destination(pick(pair.number(), 1 << 24)),
            6 => attributes.receive_psn(pick(7, 1 << 24)),
            7 => attributes.incoming_reads(pick(1, 255) as u8),
            8 => attributes.rnr_timer(pick(5, 32) as u8),
            9 => attributes.send_psn(pick(7, 1 << 24)),
            10 => attributes.timeout(pick(10, 32) as u8),
            11 => attributes.retries(pick(1, 8) as u8),
            12 => attributes.rnr_retries(pick(1, 8) as u8),
            13 => attributes.outgoing_reads(pick(1, 255) as u8),
            _ => attributes.qkey(pick(0x1111, 0)),
        };
    }
    each_pair!(w.pairs.get_mut(a[0])?, qp => qp.modify(&attributes)?);
    w.settle();
    done(())
}

/// Completions that arrive while a queue pair is drained have no meaningful order among the queues.
fn drain(w: &mut World, a: &[u64]) -> Played {
    // Other queue pairs may complete in the same queues.
    w.settle();
    let mut first = w.completions.take(a[1])?;
    let mut second = if a[2] != NONE && a[2] != a[1] { w.completions.take(a[2]).ok() } else { None };
    let mut texts = Vec::new();
    let mut all = Vec::new();
    let drained = match w.pairs.get_mut(a[0]) {
        Ok(pair) => {
            let mut queues: Vec<&mut CompletionQueue> = vec![&mut first];
            queues.extend(second.as_mut());
            let timeout = Duration::from_millis(if w.machine.soft.is_some() { 3 } else { 300 });
            each_pair!(pair, qp => qp.drain(&mut queues, timeout, |completion| all.push(completion)))
                .map_err(Miss::from)
        }
        Err(miss) => Err(miss),
    };
    // The sender notices later.
    w.settle();
    w.expected = w.expected.map(|count| count.saturating_sub(all.len()));
    let others = w.collect(|_, others| {
        for queue in [Some(&mut first), second.as_mut()].into_iter().flatten() {
            let mut batch = Completion::batch::<16>();
            while let found @ 1.. = queue.poll(&mut batch) {
                others.extend_from_slice(&batch[..found]);
            }
        }
        Ok(())
    });
    all.extend(others.into_iter().flatten());
    texts.extend(all.iter().map(|completion| super::queues::describe(w, completion)));
    texts.sort();
    w.completions.put(a[1], first);
    if let Some(second) = second {
        w.completions.put(a[2], second);
    }
    drained?;
    Ok(format!("{} {}", texts.len(), texts.join("; ")))
}

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb(
            "qp",
            5,
            &[
                New(Kind::Pair),
                Word(&["rc", "uc", "ud", "raw", "raw-up", "raw-strip", "raw-large"]),
                Has(Domain),
                Has(Completions),
                May(Completions),
                May(Shared),
                DEPTHS,
                DEPTHS,
                One(&[1, 0, 2, 16, 17, 1000]),
                One(&[0, 1, 64, 400, 1 << 20]),
            ],
            create,
        ),
        verb(
            "connect",
            4,
            &[Has(Kind::Pair), Has(Kind::Pair), ACCESS, One(&[0, 1, 7]), One(&[1, 0, 7]), Has(Kind::Context)],
            connect,
        ),
        verb(
            "modify",
            3,
            &[Has(Kind::Pair), Word(STATE_WORDS), Bits(15), One(&[0, 1]), ACCESS, Has(Kind::Context)],
            modify,
        ),
        // As the verb before, with exactly the attributes that the state requires.
        verb("usual", 3, &[Has(Kind::Pair), Word(STATE_WORDS), Has(Kind::Context)], |w, a| {
            modify(w, &[a[0], a[1], 0, 0, 0, a[2]])
        }),
        verb("qp-reset", 1, &[Has(Kind::Pair)], |w, a| {
            each_pair!(w.pairs.get_mut(a[0])?, qp => qp.reset()?);
            w.settle();
            done(())
        }),
        verb("qp-fail", 2, &[Has(Kind::Pair)], |w, a| {
            each_pair!(w.pairs.get_mut(a[0])?, qp => qp.to_error()?);
            w.settle();
            done(())
        }),
        verb("qp-state", 3, &[Has(Kind::Pair)], |w, a| {
            w.settle();
            let state = each_pair!(w.pairs.get(a[0])?, qp => qp.state()?);
            Ok(format!("{state:?}"))
        }),
        verb("qp-query", 2, &[Has(Kind::Pair)], |w, a| {
            w.settle();
            let pair = w.pairs.get(a[0])?;
            let is = each_pair!(pair, qp => qp.query(QpAttrMask::all())?);
            let ((rights, path_mtu), dest) = (told(w, pair, &is), w.place_of(is.dest_qp_num));
            // mlx5 does not return the size of the send queue (`mlx5_ib_query_qp`, qp.c).
            let receives = is.max_recv_wr > 0;
            Ok(format!(
                "{} {} {:#x} {} {} {} {} {dest} {receives}",
                is.qp_state, path_mtu, rights, is.rnr_retry, is.retry_cnt, is.timeout, is.min_rnr_timer
            ))
        }),
        verb("drain", 2, &[Has(Kind::Pair), Has(Completions), May(Completions)], drain),
        verb(
            "join",
            1,
            &[New(Membership), Has(Kind::Pair), One(&[1, 2, 0]), One(&[0, 1, 0xc000])],
            |w, a| {
                w.memberships.free(a[0])?;
                let mut gid = [0; 16];
                // The third is not a group.
                (gid[0], gid[15]) = (if a[2] == 0 { 0xfe } else { 0xff }, a[2] as u8);
                let Pair::Ud(qp) = w.pairs.get(a[1])? else { return Err(Miss::Absent) };
                let membership = qp.join_multicast(&gid, a[3] as u16)?;
                let is_same = membership.gid() == gid;
                w.memberships.put(a[0], membership);
                Ok(is_same.to_string())
            },
        ),
        verb("leave", 1, &[End(Membership)], |w, a| {
            w.memberships.destroy(a[0], |membership| membership.leave())
        }),
        verb("drop-membership", 1, &[End(Membership)], |w, a| done(w.memberships.take(a[0])?)),
        verb("count-on", 2, &[Has(Kind::Pair), Has(Counter), Bits(7)], |w, a| {
            let counted = Counted::from_bits_retain(((a[2] & 63) | ((a[2] >> 6) << 16)) as u32);
            let counter = w.counting.get(a[1])?;
            done(each_pair!(w.pairs.get_mut(a[0])?, qp => qp.bind_counter(counter, counted)?))
        }),
        verb("destroy-qp", 3, &[End(Kind::Pair)], |w, a| {
            fn back<T>(wrap: impl Fn(T) -> Pair) -> impl Fn((T, uverbs::Error)) -> (Pair, uverbs::Error) {
                move |(qp, error)| (wrap(qp), error)
            }
            let destroyed = w.pairs.destroy(a[0], |pair| match pair {
                Pair::Rc(qp) => qp.destroy().map_err(back(Pair::Rc)),
                Pair::Uc(qp) => qp.destroy().map_err(back(Pair::Uc)),
                Pair::Ud(qp) => qp.destroy().map_err(back(Pair::Ud)),
                Pair::Raw(qp) => qp.destroy().map_err(back(Pair::Raw)),
            });
            w.settle();
            destroyed
        }),
        verb("drop-qp", 2, &[End(Kind::Pair)], |w, a| {
            drop(w.pairs.take(a[0])?);
            w.settle();
            done(())
        }),
        verb(
            "ah",
            2,
            &[New(Handle), Has(Domain), Has(Kind::Context), Word(&["here", "port", "gid-index", "gid"])],
            |w, a| {
                w.handles.free(a[0])?;
                w.domains.get(a[1])?;
                let context = context_of(w, a[2])?;
                let options = options(context)?;
                let gid = context.gid(1, options.gid_index.into())?.raw;
                let mut route = with_lid(w, Route::new(1, options.gid_index, gid));
                match a[3] {
                    1 => route.port = 2,
                    2 => route.gid_index = 200,
                    3 => route.gid = [0; 16],
                    _ => {}
                }
                let domain = w.domains.get(a[1])?;
                w.machine.has_messages()?;
                let handle = domain.create_ah(&route)?;
                w.handles.put(a[0], handle);
                done(())
            },
        ),
        // The route back to the sender of a datagram, from the header before it in memory.
        verb(
            "ah-back",
            1,
            &[New(Handle), Has(Domain), Has(Kind::Context), Has(Kind::Region), One(&[0, 64])],
            |w, a| {
                w.handles.free(a[0])?;
                let mut header = [0; 40];
                w.regions.get(a[3])?.read(a[4] as usize, &mut header)?;
                let route = with_lid(w, Route::back(1, &context_of(w, a[2])?.gid_table()?, &header)?);
                let domain = w.domains.get(a[1])?;
                w.machine.has_messages()?;
                let handle = domain.create_ah(&route)?;
                w.handles.put(a[0], handle);
                done(())
            },
        ),
    ],
    &ends!(Handle, handles, "destroy-ah", "drop-ah"),
];
