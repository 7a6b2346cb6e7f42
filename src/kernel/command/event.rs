//! The request for an event of a completion queue: a command with exactly two attributes, because programs that wait for events send it
//! each time.

use uverbs_abi::ids::device::{self, invoke_write};
use uverbs_abi::ioctl::{Attr, IoctlHdr};
use uverbs_abi::write::{ReqNotifyCq, cmd};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Command, MANDATORY, inline};

/// `REQ_NOTIFY_CQ` through `INVOKE_WRITE` (ib_uverbs_req_notify_cq, uverbs_cmd.c, Linux 6.1), with its request inline. Like a [`Command`],
/// it can be passed on but not created outside the crate.
#[derive(Debug)]
pub struct EventRequest(Wire);

/// Header and attributes as the ioctl reads them.
#[repr(C)]
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct Wire {
    header: IoctlHdr,
    command: Attr,
    request: Attr,
}

impl EventRequest {
    /// For the completion queue `cq_handle` of a device with the driver `driver_id`: requests an event for its next completion, or for
    /// its next solicited one.
    #[inline]
    pub(crate) fn new(driver_id: u32, cq_handle: u32, solicited_only: bool) -> Self {
        let header = IoctlHdr {
            length: size_of::<Wire>() as u16,
            object_id: device::OBJECT,
            method_id: device::method::INVOKE_WRITE,
            num_attrs: 2,
            driver_id,
            reserved1: 0,
            reserved2: 0,
        };
        let request = ReqNotifyCq { cq_handle, solicited_only: solicited_only.into() };
        let (command, len) = (cmd::REQ_NOTIFY_CQ.into(), size_of::<ReqNotifyCq>() as u16);
        let wire = Wire {
            header,
            command: Attr { attr_id: invoke_write::WRITE_CMD, len: 8, data: command, ..MANDATORY },
            request: Attr {
                attr_id: invoke_write::CORE_IN,
                len,
                data: inline(request.as_bytes()),
                ..MANDATORY
            },
        };
        Self(wire)
    }

    /// The request for an event as an ordinary command, for a transport without a special function.
    pub(crate) fn as_command(&self, op: &'static str) -> Command<'_> {
        let mut command = Command::write(op, cmd::REQ_NOTIFY_CQ);
        command.for_driver(self.0.header.driver_id).input(invoke_write::CORE_IN, &self.0.request.data);
        command
    }

    /// Header and attributes as the ioctl reads them. They contain no address.
    #[inline]
    pub(crate) fn lower(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_ordinary_command_is() {
        for solicited_only in [false, true] {
            let mut request = EventRequest::new(4, 0x0102_0304, solicited_only);
            let mut command = request.as_command("cq.notify");
            let ordinary = command.lower().to_vec();
            drop(command);
            let short = request.lower();
            assert_eq!(short, &ordinary[..short.len()]);
        }
    }
}
