//! The doorbell of a send ring in shared memory, which is rung with each post: a command with exactly three attributes.

use uverbs_abi::ids::device::{self, invoke_write};
use uverbs_abi::ioctl::{ATTR_F_MANDATORY, ATTR_F_VALID_OUTPUT, Attr, IoctlHdr};
use uverbs_abi::rxe::SendWqe;
use uverbs_abi::write::{PostSend, PostSendResp, cmd};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{Command, MANDATORY};

/// `POST_SEND` through `INVOKE_WRITE` without a request: it makes the kernel read the ring (ib_uverbs_post_send, uverbs_cmd.c;
/// rxe_post_send, rxe_verbs.c; Linux 6.1). Like a [`Command`], it can be passed on but not created outside the crate.
#[derive(Debug)]
pub struct Doorbell {
    wire: Wire,
    request: PostSend,
    response: PostSendResp,
}

/// Header and attributes as the ioctl reads them.
#[repr(C)]
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct Wire {
    header: IoctlHdr,
    command: Attr,
    request: Attr,
    response: Attr,
}

impl Doorbell {
    /// For the queue pair `handle` of a device with the driver `driver_id`.
    #[inline]
    pub(crate) fn new(driver_id: u32, handle: u32) -> Self {
        let header = IoctlHdr {
            length: size_of::<Wire>() as u16,
            object_id: device::OBJECT,
            method_id: device::method::INVOKE_WRITE,
            num_attrs: 3,
            driver_id,
            reserved1: 0,
            reserved2: 0,
        };
        let wire = Wire {
            header,
            command: Attr {
                attr_id: invoke_write::WRITE_CMD,
                len: 8,
                data: cmd::POST_SEND.into(),
                ..MANDATORY
            },
            request: Attr { attr_id: invoke_write::CORE_IN, len: size_of::<PostSend>() as u16, ..MANDATORY },
            response: Attr {
                attr_id: invoke_write::CORE_OUT,
                len: size_of::<PostSendResp>() as u16,
                ..MANDATORY
            },
        };
        let wqe_size = size_of::<SendWqe>() as u32;
        let request = PostSend { qp_handle: handle, wqe_size, ..PostSend::new_zeroed() };
        Self { wire, request, response: PostSendResp::new_zeroed() }
    }

    /// The doorbell as an ordinary command, for a transport without a special function.
    pub(crate) fn as_command<'a>(&'a mut self, op: &'static str) -> Command<'a> {
        let mut command = Command::write(op, cmd::POST_SEND);
        command
            .for_driver(self.wire.header.driver_id)
            .input(invoke_write::CORE_IN, &self.request)
            .output(invoke_write::CORE_OUT, self.response.as_mut_bytes());
        command
    }

    /// Stores whether [`Doorbell::as_command`] was answered.
    pub(crate) fn mark(&mut self, valid: bool) {
        self.wire.response.flags = ATTR_F_MANDATORY | if valid { ATTR_F_VALID_OUTPUT } else { 0 };
    }

    /// Header and attributes as the ioctl reads them. The addresses in it are valid while this is not moved.
    #[inline]
    pub(crate) fn lower(&mut self) -> &mut [u8] {
        self.wire.request.data = std::ptr::from_ref(&self.request).expose_provenance() as u64;
        self.wire.response.data = (&raw mut self.response).expose_provenance() as u64;
        self.wire.response.flags = ATTR_F_MANDATORY;
        self.wire.as_mut_bytes()
    }

    /// Whether the kernel marked its response as written.
    #[inline]
    pub(crate) fn is_answered(&self) -> bool {
        self.wire.response.flags & ATTR_F_VALID_OUTPUT != 0
    }
}
