//! Requests of queue pairs.

use uverbs::{
    Datagram, MULTICAST_QP, Operation, QpType, QueuePair, ReceiveRequest, Remote, SendRequest, UcOperation,
};

use super::memory::{LENGTHS, OFFSETS};
use super::{done, verb};
use crate::each_pair;
use crate::language::Arg::{Bits, Has, One, Word};
use crate::language::Kind::{Handle, Pair as Pairs, Region, Window};
use crate::language::Verb;
use crate::world::{Miss, Pair, Played, World};

const IMMEDIATE: u32 = 0xabcd;
const OPERATIONS: &[&str] = &["send", "write", "read", "send-imm", "write-imm", "send-inv", "swap", "add"];

fn operation(word: u64, remote: Remote) -> Operation {
    match OPERATIONS[word as usize] {
        "write" => Operation::Write(remote),
        "read" => Operation::Read(remote),
        "send-imm" => Operation::SendImmediate(IMMEDIATE),
        "write-imm" => Operation::WriteImmediate(remote, IMMEDIATE),
        "send-inv" => Operation::SendInvalidate(remote.rkey),
        "swap" => Operation::CompareSwap { remote, compare: 0, swap: 5 },
        "add" => Operation::FetchAdd { remote, add: 3 },
        _ => Operation::Send,
    }
}

/// The source of a request: region, offset, length, flags, and the number of requests.
struct From<'a> {
    w: &'a World,
    a: &'a [u64],
}

impl From<'_> {
    fn post<T: QpType>(&self, qp: &mut QueuePair<T>, operation: T::Operation<'_>) -> Result<(), Miss>
    where
        for<'b> T::Operation<'b>: Copy,
    {
        let a = self.a;
        let region = self.w.regions.get(a[0])?;
        let range = a[1] as usize..a[1].saturating_add(a[2]) as usize;
        let mut bytes = vec![0; (a[2] as usize).min(1 << 16)];
        let segments = [region.segment(range)?];
        let make = |at: u64| {
            let mut request = SendRequest::new(100 + at, operation, &segments);
            if a[3] & 8 != 0 {
                request = SendRequest::inline(100 + at, operation, &bytes);
            }
            if a[3] & 1 == 0 {
                request = request.signaled();
            }
            if a[3] & 2 != 0 {
                request = request.solicited();
            }
            if a[3] & 4 != 0 {
                request = request.fenced();
            }
            request
        };
        let requests: Vec<_> = (0..a[4]).map(make).collect();
        let posted = qp.post_send(&requests);
        drop(requests);
        bytes.clear();
        posted.map_err(Miss::from)
    }
}

fn post(w: &mut World, pair: u64, word: u64, remote: Remote, a: &[u64]) -> Played {
    let mut pair_taken = w.pairs.take(pair)?;
    let from = From { w, a };
    let operation = operation(word, remote);
    let posted = match &mut pair_taken {
        Pair::Rc(qp) => from.post(qp, operation),
        Pair::Uc(qp) => match operation {
            Operation::Send => from.post(qp, UcOperation::Send),
            Operation::SendImmediate(value) => from.post(qp, UcOperation::SendImmediate(value)),
            Operation::Write(remote) => from.post(qp, UcOperation::Write(remote)),
            Operation::WriteImmediate(remote, value) => {
                from.post(qp, UcOperation::WriteImmediate(remote, value))
            }
            _ => Err(Miss::Absent),
        },
        _ => Err(Miss::Absent),
    };
    w.pairs.put(pair, pair_taken);
    w.settle();
    posted.and_then(done)
}

const TIMES: crate::language::Arg = One(&[1, 2, 5]);

pub(super) const VERBS: &[&[Verb]] = &[&[
    verb("recv", 6, &[Has(Pairs), Has(Region), OFFSETS, LENGTHS, TIMES], |w, a| {
        let segment = w.regions.get(a[1])?.segment(a[2] as usize..a[2].saturating_add(a[3]) as usize)?;
        let segments = [segment];
        let requests: Vec<_> = (0..a[4]).map(|at| ReceiveRequest::new(200 + at, &segments)).collect();
        let is_datagram = matches!(w.pairs.get(a[0]), Ok(Pair::Ud(_)));
        let header = w.regions.get(a[1])?.address().wrapping_add(a[2]);
        let posted = each_pair!(w.pairs.get_mut(a[0])?, qp => qp.post_receive(&requests));
        w.headers.extend((is_datagram && posted.is_ok()).then_some(header));
        w.settle();
        posted.map_err(Miss::from).and_then(done)
    }),
    // A message, to a place in a region of the peer.
    verb(
        "send",
        8,
        &[Has(Pairs), Word(OPERATIONS), Has(Region), OFFSETS, Has(Region), OFFSETS, LENGTHS, Bits(4), TIMES],
        |w, a| {
            let region = w.regions.get(a[2])?;
            let Remote { address, rkey } = region.remote();
            let remote = Remote { address: address.wrapping_add(a[3]), rkey };
            post(w, a[0], a[1], remote, &a[4..])
        },
    ),
    // The same, through a window.
    verb(
        "send-window",
        4,
        &[Has(Pairs), Word(OPERATIONS), Has(Window), OFFSETS, Has(Region), OFFSETS, LENGTHS, Bits(4), TIMES],
        |w, a| {
            let remote = w.windows.get(a[2])?.remote().ok_or(Miss::Absent)?;
            let remote = Remote { address: remote.address.wrapping_add(a[3]), rkey: remote.rkey };
            post(w, a[0], a[1], remote, &a[4..])
        },
    ),
    verb(
        "datagram",
        5,
        &[
            Has(Pairs),
            Has(Handle),
            Has(Pairs),
            One(&[0x1111, 0, 0x8000_1111]),
            Word(&["plain", "imm", "group"]),
            Has(Region),
            OFFSETS,
            LENGTHS,
            Bits(4),
            TIMES,
        ],
        |w, a| {
            let qp_num = if a[4] == 2 { MULTICAST_QP } else { w.pairs.get(a[2])?.number() };
            let mut pair = w.pairs.take(a[0])?;
            let from = From { w, a: &a[5..] };
            let posted = match (&mut pair, w.handles.get(a[1])) {
                (Pair::Ud(qp), Ok(to)) => {
                    let immediate = (a[4] == 1).then_some(IMMEDIATE);
                    from.post(qp, Datagram { to, qp_num, qkey: a[3] as u32, immediate })
                }
                _ => Err(Miss::Absent),
            };
            w.pairs.put(a[0], pair);
            w.settle();
            posted.and_then(done)
        },
    ),
    // An Ethernet frame, to one of three addresses.
    verb("frame", 4, &[Has(Pairs), Has(Region), One(&[1, 2, 3]), LENGTHS, Bits(4)], |w, a| {
        w.own_memory()?;
        let len = a[3] as usize;
        let region = w.regions.get(a[1])?;
        region.write(0, &super::flows::frame(a[2], 64))?;
        let segments = [region.segment(0..len)?];
        let Pair::Raw(qp) = w.pairs.get_mut(a[0])? else { return Err(Miss::Absent) };
        let mut request = SendRequest::frame(100, &segments);
        if a[4] & 1 == 0 {
            request = request.signaled();
        }
        if a[4] & 8 != 0 {
            request = request.checksums();
        }
        qp.post_send(&[request])?;
        w.settle();
        done(())
    }),
    verb("large-frame", 1, &[Has(Pairs), Has(Region), One(&[1000, 0, 1, 16000]), LENGTHS], |w, a| {
        let region = w.regions.get(a[1])?;
        let segments = [region.segment(0..a[3] as usize)?];
        let Pair::Raw(qp) = w.pairs.get_mut(a[0])? else { return Err(Miss::Absent) };
        let header = super::flows::frame(1, 54);
        qp.post_send(&[SendRequest::large_send(100, &header, a[2] as u16, &segments).signaled()])?;
        w.settle();
        done(())
    }),
]];
