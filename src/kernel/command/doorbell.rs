//! The doorbell of a send ring in shared memory, which is rung with each post.

use uverbs_abi::ids::device::{self, invoke_write};
use uverbs_abi::ioctl::{Attr, IoctlHdr};
use uverbs_abi::rxe::SendWqe;
use uverbs_abi::write::{CmdHdr, PostSend, PostSendResp, cmd};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{Command, MANDATORY};

/// `POST_SEND` without a request: it makes the kernel read the ring (ib_uverbs_post_send, uverbs_cmd.c; rxe_post_send, rxe_verbs.c; Linux
/// 6.1). Like a [`Command`], it can be passed on but not created outside the crate.
///
/// It is the one command that the crate sends by write(2), as libibverbs does: the kernel and the C library do less for it than for an
/// ioctl. The kernel accepts a write only from the credentials that opened the file, and answers EACCES otherwise
/// (`ib_safe_file_access`, rdma_core.h): a program that has changed its user, for example. The ioctl has no such check, so from then on
/// the doorbell is an ioctl.
#[derive(Debug)]
pub struct Doorbell {
    written: Written,
    response: PostSendResp,
    driver_id: u32,
    /// Whether the kernel refuses this process's writes.
    by_ioctl: bool,
    /// False after a command that succeeded without an answer. A write has no mark of its answer: its success is all that there is.
    is_answered: bool,
}

/// The command as a write has it.
#[repr(C)]
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct Written {
    header: CmdHdr,
    request: PostSend,
}

/// Header and attributes as the ioctl reads them.
#[repr(C)]
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub(crate) struct Lowered {
    header: IoctlHdr,
    command: Attr,
    request: Attr,
    response: Attr,
}

impl Doorbell {
    /// For the queue pair `handle` of a device with the driver `driver_id`.
    #[inline]
    pub(crate) fn new(driver_id: u32, handle: u32) -> Self {
        let header = CmdHdr {
            command: cmd::POST_SEND,
            in_words: (size_of::<Written>() / 4) as u16,
            out_words: (size_of::<PostSendResp>() / 4) as u16,
        };
        let wqe_size = size_of::<SendWqe>() as u32;
        let request = PostSend { qp_handle: handle, wqe_size, ..PostSend::new_zeroed() };
        Self {
            written: Written { header, request },
            response: PostSendResp::new_zeroed(),
            driver_id,
            by_ioctl: false,
            is_answered: true,
        }
    }

    /// An ordinary command that does this, for a transport without a special function.
    pub(crate) fn as_command<'a>(&'a mut self, op: &'static str) -> Command<'a> {
        let mut command = Command::write(op, cmd::POST_SEND);
        command
            .for_driver(self.driver_id)
            .input(invoke_write::CORE_IN, &self.written.request)
            .output(invoke_write::CORE_OUT, self.response.as_mut_bytes());
        command
    }

    /// Stores whether the command of [`Doorbell::as_command`] was answered.
    pub(crate) fn mark(&mut self, answered: bool) {
        self.is_answered = answered;
    }

    /// Whether what succeeded was answered.
    #[inline]
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Whether it is sent by the ioctl, because the kernel refused a write.
    #[inline]
    pub(crate) fn is_by_ioctl(&self) -> bool {
        self.by_ioctl
    }

    /// Sends it by the ioctl from now on.
    #[cold]
    pub(crate) fn send_by_ioctl(&mut self) {
        self.by_ioctl = true;
    }

    /// The bytes of the write. The address in them is valid while this is not moved.
    #[inline]
    pub(crate) fn lower_to_write(&mut self) -> &[u8] {
        self.written.request.response = (&raw mut self.response).expose_provenance() as u64;
        self.written.as_bytes()
    }

    /// Header and attributes for the ioctl. The addresses in them are valid while this is not moved.
    #[cold]
    pub(crate) fn lower(&mut self) -> Lowered {
        let attr = |attr_id, len: usize, data| Attr { attr_id, len: len as u16, data, ..MANDATORY };
        // The ioctl does not use the address in the request; a command in a trace has none.
        self.written.request.response = 0;
        let request = std::ptr::from_ref(&self.written.request).expose_provenance() as u64;
        let response = (&raw mut self.response).expose_provenance() as u64;
        Lowered {
            header: IoctlHdr {
                length: size_of::<Lowered>() as u16,
                object_id: device::OBJECT,
                method_id: device::method::INVOKE_WRITE,
                num_attrs: 3,
                driver_id: self.driver_id,
                reserved1: 0,
                reserved2: 0,
            },
            command: attr(invoke_write::WRITE_CMD, 8, cmd::POST_SEND.into()),
            request: attr(invoke_write::CORE_IN, size_of::<PostSend>(), request),
            response: attr(invoke_write::CORE_OUT, size_of::<PostSendResp>(), response),
        }
    }
}
