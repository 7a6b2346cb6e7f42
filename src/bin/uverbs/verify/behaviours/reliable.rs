//! Scalable reliable datagrams, on devices that have them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use uverbs::{
    AccessFlags, AddressHandle, Completion, CompletionQueue, ConnectionOptions, Context, ErrorKind,
    MemoryRegion, ProtectionDomain, QpState, QueuePair, ReceiveRequest, Route, SendRequest, Srd, SrdDatagram,
    SrdOperation, Status,
};

use super::ground::LIMIT;
use super::{ENOMEM, Ground, Held, Optional, refused, same, same_bytes};

const QKEY: u32 = 0x1234_5678;
/// Number of requests of each queue.
const DEPTH: u32 = 16;

/// A queue pair with everything that belongs to it.
struct Party {
    qp: QueuePair<Srd>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
    port: u8,
}

impl Party {
    fn new(ground: &Ground<'_>, context: &Context) -> Held<Self> {
        let (pd, port) = (context.alloc_pd()?, ground.port);
        let cq = context.create_cq(64).optional()?;
        let builder = pd.srd(&cq).send_depth(DEPTH).receive_depth(DEPTH).segments(2).inline(32);
        let qp = builder.create().optional()?;
        let memory = pd.register(8192, AccessFlags::LOCAL_WRITE)?;
        let mut party = Self { qp, cq, memory, pd, port };
        party.activate()?;
        Ok(party)
    }

    fn activate(&mut self) -> Held {
        Ok(self.qp.activate(&ConnectionOptions::new(self.port, 0), QKEY, 0)?)
    }

    /// The address of a queue pair of the same device.
    fn way(&self) -> Held<AddressHandle> {
        let gid = self.pd.context().gid(self.port, 0)?.raw;
        Ok(self.pd.create_ah(&Route::new(self.port, 0, gid))?)
    }

    fn receive(&mut self, wr_id: u64, range: Range<usize>) -> Held {
        let segments = [self.memory.segment(range)?];
        Ok(self.qp.post_receive(&[ReceiveRequest::new(wr_id, &segments)])?)
    }

    /// This many completions.
    fn completions(&mut self, ground: &Ground<'_>, count: usize) -> Held<Vec<Completion>> {
        let (start, mut all) = (Instant::now(), Vec::new());
        while all.len() < count {
            ground.within(start, &format!("wait for {count} completions"), all.len())?;
            let mut batch = Completion::batch::<8>();
            let found = self.cq.poll(&mut batch);
            all.extend(batch.into_iter().take(found));
        }
        Ok(all)
    }

    /// One completion, which must have this number and be a success.
    fn ends(&mut self, ground: &Ground<'_>, wr_id: u64) -> Held<Completion> {
        let completion = self.completions(ground, 1)?.first().copied().unwrap_or_default();
        same("a completion", (completion.wr_id, completion.status), (wr_id, Status::Success))?;
        Ok(completion)
    }
}

/// A datagram from one party to another.
fn datagram<'a>(to: &'a AddressHandle, other: &Party, operation: SrdOperation) -> SrdDatagram<'a> {
    SrdDatagram { to, qp_num: other.qp.number(), qkey: QKEY, operation }
}

pub(crate) fn messages_come_in_whole_with_their_numbers(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let (mut one, mut two) = (Party::new(ground, &context)?, Party::new(ground, &context)?);
    let to = one.way()?;
    one.memory.write(0, b"hello, other side")?;
    two.receive(20, 4096..4200)?;
    let halves = [one.memory.segment(0..5)?, one.memory.segment(5..17)?];
    let message = datagram(&to, &two, SrdOperation::SendImmediate(77));
    one.qp.post_send(&[SendRequest::new(10, message, &halves).signaled()])?;
    same("the sender's is a receive", one.ends(ground, 10)?.is_receive(), false)?;
    let came = two.ends(ground, 20)?;
    same("the length", came.len, 17_u32)?;
    let seen = (u32::from_be(came.immediate), came.source_qp == one.qp.number());
    same("immediate data, and whether the sender is named", seen, (77, true))?;
    let mut bytes = [0; 17];
    two.memory.read(4096, &mut bytes)?;
    same_bytes("the message", &bytes, b"hello, other side")?;

    two.receive(21, 0..64)?;
    let inline = SendRequest::inline(11, datagram(&to, &two, SrdOperation::Send), b"inline").signaled();
    one.qp.post_send(&[inline])?;
    one.ends(ground, 11)?;
    same("the length of inline bytes", two.ends(ground, 21)?.len, 6_u32)
}

pub(crate) fn many_messages_go_round_the_rings_and_each_completes_once(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let (mut one, mut two) = (Party::new(ground, &context)?, Party::new(ground, &context)?);
    let to = one.way()?;
    for round in 0..40_u64 {
        let ids: Vec<_> = (0..u64::from(DEPTH)).map(|i| round * 100 + i).collect();
        for wr_id in &ids {
            two.receive(*wr_id, 4096..4200)?;
        }
        let segments = [one.memory.segment(0..8)?];
        let message = datagram(&to, &two, SrdOperation::Send);
        let request = |wr_id: &u64| SendRequest::new(*wr_id, message, &segments).signaled();
        let requests: Vec<_> = ids.iter().map(request).collect();
        one.qp.post_send(&requests)?;
        let full = one.qp.post_send(&requests[..1]);
        refused("post to a full queue", full, ErrorKind::Exhausted, ENOMEM, "no room")?;
        for party in [&mut one, &mut two] {
            let found = party.completions(ground, ids.len())?;
            for completion in &found {
                same("a status", completion.status, Status::Success)?;
            }
            let numbers: BTreeSet<_> = found.iter().map(|found| found.wr_id).collect();
            same("the numbers of completions", numbers, ids.iter().copied().collect::<BTreeSet<_>>())?;
        }
    }
    Ok(())
}

pub(crate) fn a_drain_waits_for_everything_and_a_reset_begins_anew(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let (mut one, mut two) = (Party::new(ground, &context)?, Party::new(ground, &context)?);
    let to = one.way()?;
    for wr_id in 30..34 {
        one.receive(wr_id, 0..64)?;
    }
    let mut ended = Vec::new();
    let queues = &mut [&mut one.cq];
    one.qp.drain(queues, LIMIT, |completion| ended.push((completion.wr_id, completion.status)))?;
    let flushed: Vec<_> = (30..34).map(|wr_id| (wr_id, Status::Flushed)).collect();
    same("what was drained", ended, flushed)?;
    same("the state", one.qp.state()?, QpState::Error)?;
    one.qp.reset()?;
    one.activate()?;
    two.receive(20, 0..64)?;
    let segments = [one.memory.segment(0..8)?];
    let message = datagram(&to, &two, SrdOperation::Send);
    one.qp.post_send(&[SendRequest::new(1, message, &segments).signaled()])?;
    one.ends(ground, 1)?;
    two.ends(ground, 20).map(drop)
}
