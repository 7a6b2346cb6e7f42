//! The request that was begun last, until all its parts are set.
//!
//! Beginning an operation only records it: the call that sets its data writes the whole request. Separate functions do everything else:
//! data that is set again, an address that is set after the data, an operation without data.

use std::borrow::Borrow;

use uverbs::Remote;
use uverbs::abi::types::SendFlags;
use uverbs::raw::{Address, Data, FrameHead, InlineParts, Opcode, Refused, SendQueue, Sge, ToAddress, ToSrq};

use crate::answer::{Answer, Code, EINVAL, ENOMEM};
use crate::post::{Sending, no_large};
use crate::providers::rings::Rings;
use crate::qp::Qp;
use crate::request::{Buffers, Bytes, Request, head, head_of};

pub(super) type NoPieces = std::iter::Empty<Sge>;
pub(super) type NoBytes = std::iter::Empty<&'static [u8]>;

/// The progress of the request that was begun last.
#[repr(u8)]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd)]
pub(super) enum Stage {
    /// There is none.
    #[default]
    Nothing,
    /// It is in its slot, and its parts are written by the shortest path: see [`super::parts`].
    Short,
    /// It is in its slot, and has all its parts.
    Written,
    // The stages below require another step before the next operation.
    /// A send, which is written when its data is set.
    Send,
    /// A write or a read, which is written when its data is set: at [`Begun::remote`].
    Write,
    Read,
    /// Another operation, which is written when its data is set, as recorded in [`Begun`].
    Other,
    /// A datagram to [`Begun::to`], which is written when its data is set; and one whose address is not set.
    Addressed,
    Datagram,
    /// It is in its slot, but its address is not set.
    Unaddressed,
    /// A large send in its slot whose data is not set; and one that has all its parts.
    Large,
    LargeWritten,
    /// A call has failed: nothing of the batch will be posted.
    Failed,
}

/// State between `wr_start` and `wr_complete`. Requests that are complete are in their slots.
pub(crate) struct Begun {
    /// The request that was begun last, until it is written.
    pub(super) wr_id: u64,
    pub(super) flags: SendFlags,
    pub(super) opcode: Opcode<'static>,
    remote: Remote,
    pub(super) to: To,
    /// The immediate data of a datagram.
    immediate: Option<u32>,
    pub(super) stage: Stage,
    /// For a large send: the length of the header, and the number of bytes after it in each frame except the last.
    pub(super) large: (usize, u16),
    /// The first error.
    pub(super) error: Code,
}

/// The destination of a datagram.
#[derive(Clone, Copy, Default)]
pub(super) struct To {
    pub(super) ah: Address,
    pub(super) qp_num: u32,
    pub(super) qkey: u32,
}

impl Default for Begun {
    fn default() -> Self {
        Self {
            wr_id: 0,
            flags: SendFlags::empty(),
            opcode: Opcode::Send,
            remote: Remote { address: 0, rkey: 0 },
            to: To::default(),
            immediate: None,
            stage: Stage::Nothing,
            large: (0, 0),
            error: EINVAL,
        }
    }
}

impl Begun {
    #[cold]
    #[inline(never)]
    pub(super) fn fail(&mut self, code: Code) {
        if self.stage != Stage::Failed {
            (self.stage, self.error) = (Stage::Failed, code);
        }
    }

    #[inline(always)]
    pub(super) fn note(&mut self, answer: Answer) {
        if let Err(code) = answer {
            self.fail(code);
        }
    }

    /// The operation of a request at this stage, which is not written yet.
    #[inline(always)]
    pub(super) fn operation(&self, stage: Stage) -> Opcode<'static> {
        match stage {
            Stage::Send => Opcode::Send,
            Stage::Write => Opcode::Write(self.remote),
            Stage::Read => Opcode::Read(self.remote),
            Stage::Addressed => self.datagram(&self.to).into(),
            Stage::Datagram => self.datagram(&To::default()).into(),
            _ => self.opcode,
        }
    }

    #[inline(always)]
    fn datagram<'a>(&self, To { ah, qp_num, qkey }: &'a To) -> ToAddress<'a> {
        ToAddress { ah, qp_num: *qp_num, qkey: *qkey, immediate: self.immediate }
    }

    /// Begins a request. Only the call that sets its data determines whether the data is inline.
    #[inline(always)]
    pub(super) fn begin(&mut self, qp: &Qp, stage: Stage) {
        self.wr_id = qp.c.wr_id.get();
        self.flags = qp.flags(qp.c.wr_flags.get() & !SendFlags::INLINE.bits());
        self.stage = stage;
    }
}

/// The errno for an operation with too many pieces or bytes; libmlx5 returns ENOMEM.
pub(crate) fn too_many(qp: &Qp) -> Code {
    if qp.is_like_libmlx5 { ENOMEM } else { EINVAL }
}

/// Begins a send. False, with nothing done, if the previous operation must be finished first.
#[inline(always)]
pub(super) fn begin_send(qp: &Qp) -> bool {
    let begin = |sending: &mut Sending, _| {
        let is_done = sending.begun.stage <= Stage::Written;
        if is_done {
            sending.begun.begin(qp, Stage::Send);
        }
        is_done
    };
    qp.sends.held(begin).unwrap_or(false)
}

/// Begins an operation.
#[inline(always)]
fn begin(qp: &Qp, stage: Stage, note: impl FnOnce(&mut Begun) -> Answer) {
    let begin = |sending: &mut Sending, _| {
        if sending.begun.stage > Stage::Written && !finish(qp, sending) {
            return;
        }
        let begun = &mut sending.begun;
        begun.begin(qp, stage);
        let noted = note(begun);
        begun.note(noted);
    };
    qp.sends.held(begin);
}

/// Any operation except a send, a write, a read and a datagram.
#[inline(always)]
pub(super) fn message(qp: &Qp, opcode: impl FnOnce() -> Answer<Opcode<'static>>) {
    begin(qp, Stage::Other, |begun| {
        begun.opcode = opcode()?;
        Ok(())
    });
}

/// A write or a read.
#[inline(always)]
pub(super) fn remote(qp: &Qp, stage: Stage, remote: Remote) {
    begin(qp, stage, |begun| {
        begun.remote = remote;
        Ok(())
    });
}

/// A datagram, whose address is set later.
#[inline(always)]
pub(super) fn datagram(qp: &Qp, immediate: Option<u32>) {
    begin(qp, Stage::Datagram, |begun| {
        begun.immediate = immediate;
        Ok(())
    });
}

/// Completes the request that was begun last, which gets no more parts. False if the batch has failed.
#[cold]
#[inline(never)]
pub(super) fn finish(qp: &Qp, sending: &mut Sending) -> bool {
    let answer = match sending.begun.stage {
        Stage::Nothing | Stage::Short | Stage::Written | Stage::LargeWritten => Ok(()),
        Stage::Failed => return false,
        Stage::Send | Stage::Write | Stage::Read | Stage::Other | Stage::Addressed => {
            set(qp, sending, Given::Nothing)
        }
        Stage::Datagram | Stage::Unaddressed | Stage::Large => Err(EINVAL),
    };
    sending.begun.stage = Stage::Nothing;
    sending.begun.note(answer);
    answer.is_ok()
}

/// The requests that a path handles: sends; writes; reads; all of these; datagrams whose address is set; or any.
pub(super) const SENDS: u8 = 0;
pub(super) const WRITES: u8 = 1;
pub(super) const READS: u8 = 2;
pub(super) const MESSAGING: u8 = 3;
pub(super) const DATAGRAMS: u8 = 4;
pub(super) const ANY: u8 = 5;

/// Writes a request with its data, if it is not written yet. False, with nothing done, if this needs the longer path.
#[inline(always)]
pub(super) fn put<'b, R: Rings, const KIND: u8, const OF: u8, const LOOKS: bool, P, B>(
    qp: &Qp,
    data: &Data<P, B>,
) -> bool
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: InlineParts<'b>,
{
    let put = |sending: &mut Sending, here| {
        let Sending { queue, begun, .. } = sending;
        let stage = begun.stage;
        match (OF, stage) {
            (SENDS, Stage::Send) | (WRITES, Stage::Write) | (READS, Stage::Read) => {}
            (MESSAGING | ANY, Stage::Send) | (MESSAGING | ANY, Stage::Write | Stage::Read) => {}
            // A datagram with immediate data takes the path for any request.
            (DATAGRAMS, Stage::Addressed) if begun.immediate.is_none() => {}
            (ANY, Stage::Addressed | Stage::Other) => {}
            _ => return false,
        }
        let Some(mut step) = queue.get_mut().ok().and_then(|queue| queue.one::<R, LOOKS, KIND>(Some(here)))
        else {
            return false;
        };
        let flags =
            if matches!(data, Data::Inline(_)) { begun.flags | SendFlags::INLINE } else { begun.flags };
        // Before the data is copied, so that nothing is left to do after the copy.
        begun.stage = Stage::Written;
        let wr_id = begun.wr_id;
        let mut write = |opcode: &Opcode<'_>| step.put(wr_id, flags, opcode, None, data).is_ok();
        let is_put = match OF {
            DATAGRAMS => {
                let to = ToAddress { immediate: None, ..begun.datagram(&begun.to) };
                step.put(wr_id, flags, &to, None, data).is_ok()
            }
            SENDS => write(&Opcode::Send),
            WRITES => write(&Opcode::Write(begun.remote)),
            READS => write(&Opcode::Read(begun.remote)),
            MESSAGING if stage == Stage::Send => write(&Opcode::Send),
            MESSAGING if stage == Stage::Write => write(&Opcode::Write(begun.remote)),
            MESSAGING => write(&Opcode::Read(begun.remote)),
            _ => write(&begun.operation(stage)),
        };
        if !is_put {
            begun.stage = stage;
        }
        is_put
    };
    qp.sends.held(put).unwrap_or(false)
}

/// The data that a request gets, for any path.
#[derive(Clone, Copy)]
pub(super) enum Given<'a> {
    Nothing,
    Pieces(&'a [Sge]),
    /// Bytes that are copied immediately, whose pointers are checked.
    Bytes(&'a Buffers),
    /// The bytes of an operation that has data of its own.
    Own(&'a Buffers),
}

impl Given<'_> {
    fn head(self) -> Answer<FrameHead> {
        match self {
            // The first bytes are zeros.
            Self::Nothing => Ok(FrameHead::default()),
            Self::Pieces(pieces) => head(pieces),
            Self::Bytes(bytes) => head_of(Bytes::Buffers(bytes.clone()).flatten()),
            Self::Own(_) => Err(EINVAL),
        }
    }
}

/// Sets the data in every other case, and replaces data that was set before.
fn set(qp: &Qp, sending: &mut Sending, given: Given<'_>) -> Answer {
    let (is_inline, data) = match given {
        Given::Nothing => (false, Data::Pieces([].iter())),
        Given::Pieces(pieces) => (false, Data::Pieces(pieces.iter())),
        Given::Bytes(bytes) => (true, Data::Inline(Bytes::Buffers(bytes.clone()))),
        Given::Own(bytes) => (false, Data::Inline(Bytes::Buffers(bytes.clone()))),
    };
    let Sending { queue, begun, .. } = sending;
    let queue = queue.get_mut()?;
    let operation = ToSrq(begun.operation(begun.stage), 0);
    let (operation, wants_head, next) = match begun.stage {
        Stage::Nothing | Stage::Failed => return Err(EINVAL),
        Stage::Send | Stage::Write | Stage::Read | Stage::Other | Stage::Addressed => {
            (Some(operation), queue.wants_head(), Stage::Written)
        }
        Stage::Datagram => (Some(operation), false, Stage::Unaddressed),
        Stage::Short | Stage::Written => (None, queue.wants_head(), begun.stage),
        Stage::Unaddressed => (None, false, Stage::Unaddressed),
        Stage::Large | Stage::LargeWritten => {
            check_large(qp, queue, begun.large, is_inline, data.len())?;
            (None, false, Stage::LargeWritten)
        }
    };
    begun.stage = next;
    let (wr_id, head) = (begun.wr_id, if wants_head { Some(given.head()?) } else { None });
    let flags = if is_inline { begun.flags | SendFlags::INLINE } else { begun.flags };
    Request { wr_id, flags, operation, head, data }.put(queue).map_err(|refused| match refused {
        Refused::TooLarge => too_many(qp),
        refused => refused.into(),
    })
}

#[inline(never)]
pub(super) fn set_data(qp: &Qp, given: Given<'_>) {
    qp.sends.held(|sending, _| {
        let answer = set(qp, sending, given);
        sending.begun.note(answer);
    });
}

/// Refuses a large send that the device or the queue pair does not support. Its data is never inline.
#[cold]
#[inline(never)]
fn check_large(
    qp: &Qp,
    queue: &SendQueue,
    (header, mss): (usize, u16),
    is_inline: bool,
    length: u64,
) -> Answer {
    if is_inline {
        return Err(EINVAL);
    }
    qp.qp.lock()?.get()?.check_large(queue.wants_head(), header, mss, length).map_err(no_large)
}
