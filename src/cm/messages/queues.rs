//! The queues and the memory of one side.

use uverbs_abi::types::AccessFlags;

use super::Terms;
use super::flow::SPARE;
use super::wire::{HEAD, Head};
use crate::device::context::Context;
use crate::driver::completion::Completion;
use crate::kernel::error::{Error, Result};
use crate::verbs::cq::{CompletionChannel, CompletionQueue};
use crate::verbs::mr::MemoryRegion;
use crate::verbs::qp::{Operation, QueuePair, Rc, SendRequest};
use crate::verbs::work::ReceiveRequest;

const OP: &str = "cm.messages";

/// Buffers for what is sent but is not a message of the program.
pub(super) const CONTROLS: u32 = 4;

/// Repetitions of a first message over iWARP, for which the other side has receives.
pub(super) const NUDGES: u32 = 3;

/// The number of a send; receives have the number of their buffer.
pub(super) const SEND: u64 = 1 << 32;

/// The completion queue, and the buffers: those of receives first.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) cq: CompletionQueue,
    memory: MemoryRegion,
    pub(super) receives: u32,
    stride: usize,
}

impl Queues {
    /// The queues, their channel, and a queue pair that uses them.
    pub(super) fn new(
        context: &Context,
        terms: Terms,
        is_iwarp: bool,
    ) -> Result<(Self, CompletionChannel, QueuePair<Rc>)> {
        let depth = u32::from(terms.depth);
        let receives = depth + SPARE + if is_iwarp { NUDGES } else { 0 };
        let sends = depth + CONTROLS;
        let stride = u64::from(terms.size).saturating_add(HEAD as u64).next_multiple_of(64);
        let too_large = || Error::beyond(OP, "bytes of all messages", stride, usize::MAX);
        let len = stride.saturating_mul((receives + sends).into());
        let (stride, len) =
            usize::try_from(stride).ok().zip(usize::try_from(len).ok()).ok_or_else(too_large)?;
        let channel = context.create_comp_channel()?;
        let cq = context.cq(receives + sends).channel(&channel).create()?;
        let pd = context.alloc_pd()?;
        let memory = pd.register(len, AccessFlags::LOCAL_WRITE)?;
        let qp = pd.rc(&cq).send_depth(sends).receive_depth(receives).create()?;
        Ok((Self { cq, memory, receives, stride }, channel, qp))
    }

    /// Takes completions. Returns how many.
    pub(super) fn poll(&mut self, batch: &mut [Completion]) -> usize {
        self.cq.poll(batch)
    }

    /// Posts the receive of a buffer.
    pub(super) fn receive(&self, qp: &mut QueuePair<Rc>, buffer: u32) -> Result<()> {
        let from = buffer as usize * self.stride;
        let room = [self.memory.segment(from..from + self.stride)?];
        qp.post_receive(&[ReceiveRequest::new(buffer.into(), &room)])
    }

    /// The head of a message that was received.
    pub(super) fn head(&self, buffer: u32) -> Result<Option<Head>> {
        let mut head = [0; HEAD];
        self.memory.read(buffer as usize * self.stride, &mut head)?;
        Ok(Head::decode(head))
    }

    /// The contents of a message that was received, `len` bytes with its head.
    pub(super) fn contents(&self, buffer: u32, len: u32, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        bytes.resize((len as usize).saturating_sub(HEAD), 0);
        self.memory.read(buffer as usize * self.stride + HEAD, bytes)
    }

    /// Sends a message from a buffer.
    pub(super) fn send(&self, qp: &mut QueuePair<Rc>, buffer: u32, head: Head, bytes: &[u8]) -> Result<()> {
        let from = (self.receives + buffer) as usize * self.stride;
        self.memory.write(from, &head.encode())?;
        self.memory.write(from + HEAD, bytes)?;
        let piece = [self.memory.segment(from..from + HEAD + bytes.len())?];
        let request = SendRequest::new(SEND | u64::from(buffer), Operation::Send, &piece).signaled();
        qp.post_send(&[request])
    }
}
