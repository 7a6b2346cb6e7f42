//! Errors: the device's codes, and what the driver is told when a queue pair fails.
//!
//! The driver gets one completion for each half of the queue pair that has requests, and flushes the others by itself.

use vpci::bytes::BytesMut as _;
use vpci::transport::Status;

use super::qp::{Kind, Qp, kind, state};
use crate::device::Device;

/// Codes of errors (`enum mana_error_code` of libmana 65).
pub(super) mod code {
    pub(in crate::rdma) const READ_RESPONSE_LENGTH: u32 = 0x10f;
    pub(in crate::rdma) const MESSAGE_LENGTH: u32 = 0x102;
    pub(in crate::rdma) const RECEIVE_KEY: u32 = 0x143;
    pub(in crate::rdma) const NAK_INVALID: u32 = 0x161;
    pub(in crate::rdma) const NAK_ACCESS: u32 = 0x162;
    pub(in crate::rdma) const NAK_OPERATION: u32 = 0x163;
    pub(in crate::rdma) const NAK_NOT_READY: u32 = 0x164;
    pub(in crate::rdma) const RETRIES: u32 = 0x1c6;
    /// Not empty when it was disabled.
    pub(in crate::rdma) const NOT_EMPTY: u32 = 0x1c7;
    pub(in crate::rdma) const SEND_KEY: u32 = 0x206;
    pub(in crate::rdma) const MALFORMED: u32 = 0x211;
}

/// The code with which a request ends, if not well.
pub(super) fn code_of_send(status: Status) -> Option<u32> {
    Some(match status {
        Status::Success => return None,
        Status::LocalProtection => code::SEND_KEY,
        Status::BadResponse => code::READ_RESPONSE_LENGTH,
        Status::RemoteInvalidRequest => code::NAK_INVALID,
        Status::RemoteAccess => code::NAK_ACCESS,
        Status::RemoteOperation => code::NAK_OPERATION,
        Status::RetriesExceeded => code::RETRIES,
        Status::UnreadyRetriesExceeded => code::NAK_NOT_READY,
        Status::Flushed => code::NOT_EMPTY,
        Status::LocalLength | Status::LocalOperation => code::MALFORMED,
    })
}

/// The code with which a receive ends, if not well.
pub(super) fn code_of_receive(status: Status) -> Option<u32> {
    Some(match status {
        Status::Success => return None,
        Status::LocalLength => code::MESSAGE_LENGTH,
        Status::Flushed => code::NOT_EMPTY,
        _ => code::RECEIVE_KEY,
    })
}

/// The first request and the first receive that have failed: codes, and the request's first packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    pub(super) sends: Option<(u32, u32)>,
    pub(super) receives: Option<u32>,
}

impl Device {
    /// A request of this side or of the peer has failed.
    pub(super) fn fail(&mut self, qp: &mut Qp, ends: Ends) {
        if ends.sends.is_none() && ends.receives.is_none() {
            self.tell_fatal(qp);
        }
        self.rdma.counts.failed(ends.sends.map(|(code, _)| code));
        self.end_qp(qp, ends);
    }

    /// Moves a queue pair to the error state.
    pub(super) fn end_qp(&mut self, qp: &mut Qp, mut ends: Ends) {
        qp.state = state::ERROR;
        let flushed = self.run(qp, |connection, around, _| connection.flush(around));
        ends.sends = ends.sends.or(flushed.sends);
        ends.receives = ends.receives.or(flushed.receives);
        if !qp.requests.is_empty() {
            let next =
                qp.connection.as_ref().map_or(qp.attributes.sq_psn, |connection| connection.numbers().0);
            ends.sends.get_or_insert((code::NOT_EMPTY, next));
        }
        if !qp.receives.is_empty() {
            ends.receives.get_or_insert(code::NOT_EMPTY);
        }
        if qp.kind == Kind::Connected {
            self.post_errors(qp, ends);
        }
    }

    fn post_errors(&mut self, qp: &Qp, ends: Ends) {
        let entry = |code: u32, psn: u32| {
            let mut data = [0; 20];
            data.put_u32(0, u32::from(kind::ERROR) | code << 8);
            data.put_u32(8, psn & 0xff_ffff);
            data
        };
        if let Some((code, psn)) = ends.sends {
            self.post_completion(qp.cqs[0], &entry(code, psn), qp.numbers.send, true);
        }
        if let Some(code) = ends.receives {
            self.post_completion(qp.cqs[1], &entry(code, 0), qp.numbers.receive, false);
        }
    }
}
