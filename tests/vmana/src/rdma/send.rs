//! The requests of a connection, as the driver writes them.

use uverbs::raw::roce::Remote;
use vpci::bytes::Bytes as _;
use vpci::transport::{Piece, Send, Status, Work};

use super::TRAILER;
use super::host::{Needed, region};
use super::qp::Qp;
use crate::device::Device;
use crate::queue::{OVERSIZED, Wqe};

/// The types of requests (`enum wqe_opcode_types` of libmana's gdma.h).
mod kind {
    pub(super) const SEND: u32 = 2;
    pub(super) const SEND_IMMEDIATE: u32 = 3;
    pub(super) const WRITE: u32 = 5;
    pub(super) const WRITE_IMMEDIATE: u32 = 6;
    pub(super) const READ: u32 = 7;
}

/// Maximum length of a message in bytes.
const LONGEST: u64 = 16 << 20;
/// What the driver writes behind the ring: this word first.
const SIGNATURE: u32 = u32::from_le_bytes(*b"RLBK");

/// Why a request is not executed: what the tests are told, and how it ends.
type Broken = (String, Status);

fn broken(what: &str) -> Broken {
    (what.to_owned(), Status::LocalOperation)
}

impl Device {
    /// Takes the next request of a connection, if there is room for it; false if not.
    pub(super) fn take_request(&mut self, qp: &mut Qp) -> bool {
        if !qp.connection.as_ref().is_some_and(|connection| connection.has_room()) {
            return false;
        }
        let wqe = match qp.requests.take(&self.memory) {
            Ok(None) => return false,
            Ok(Some(wqe)) => Ok(wqe),
            Err(why) => Err(broken(&why)),
        };
        if let Ok(wqe) = &wqe
            && qp.requests.is_empty()
            && let Err(why) = self.check_trailer(qp, wqe)
        {
            self.complain(format!("queue pair {:#x}: {why}", qp.numbers.receive));
        }
        let request = wqe.and_then(|wqe| self.request(qp, &wqe));
        let Some(connection) = &mut qp.connection else { return false };
        match request {
            Ok(send) => connection.post(send),
            Err((what, status)) => {
                // The packet that fails is the one after the last.
                let next = connection.numbers().0;
                connection.post_broken(u64::from(next) << 32 | u64::from(next), status);
                if !what.is_empty() {
                    self.complain(format!("queue pair {:#x}: {what}", qp.numbers.receive));
                }
            }
        }
        true
    }

    /// The driver names the newest request behind the ring before the doorbell. Meanwhile it may have written more.
    fn check_trailer(&self, qp: &Qp, last: &Wqe) -> Result<(), String> {
        let trailer: [u8; TRAILER as usize] =
            qp.requests.behind(&self.memory).map_err(|fault| fault.to_string())?;
        let newest = last.at / 32;
        match (trailer.u32(0), trailer.u32(4), trailer.u32(12)) {
            (SIGNATURE, TRAILER, right) if qp.requests.may_be_ahead(right.wrapping_sub(newest)) => Ok(()),
            found => Err(format!("behind the ring is {found:x?} instead of request {newest:#x}")),
        }
    }

    fn request(&mut self, qp: &mut Qp, wqe: &Wqe) -> Result<Send, Broken> {
        let first = wqe.oob.u32(0);
        let (kind, psn) = (first & 0x1f, first >> 8);
        let next = qp.connection.as_ref().map_or(0, |connection| connection.numbers().0);
        if psn != next {
            return Err(broken(&format!("a request has packet number {psn:#x} instead of {next:#x}")));
        }
        if wqe.unit != qp.attributes.mtu || wqe.words < 6 {
            return Err(broken("a request has packets of another size, or too little out of band"));
        }
        let consumes = matches!(kind, kind::SEND | kind::SEND_IMMEDIATE | kind::WRITE_IMMEDIATE);
        if wqe.checks != consumes || (wqe.words == OVERSIZED) != (kind == kind::WRITE_IMMEDIATE) {
            return Err(broken("a request has other flags than its type"));
        }
        let remote = Remote {
            address: u64::from(wqe.oob.u32(8)) << 32 | u64::from(wqe.oob.u32(12)),
            key: wqe.oob.u32(16),
            len: wqe.oob.u32(20),
        };
        let immediate = wqe.oob.u32(8);
        let work = match kind {
            kind::SEND => Work::Send(None),
            kind::SEND_IMMEDIATE => Work::Send(Some(immediate)),
            kind::WRITE => Work::Write(remote, None),
            kind::WRITE_IMMEDIATE => Work::Write(remote, Some(wqe.more.u32(0))),
            kind::READ => Work::Read(remote),
            _ => return Err(broken(&format!("a request of type {kind}"))),
        };
        let to = if kind == kind::READ { self.read_places(qp, psn)? } else { Vec::new() };
        let len =
            if kind == kind::READ { to.iter().map(|piece| u64::from(piece.len)).sum() } else { wqe.len() };
        let is_remote = matches!(kind, kind::WRITE | kind::WRITE_IMMEDIATE | kind::READ);
        if len > LONGEST || is_remote && u64::from(remote.len) != len {
            return Err(broken("a request of another length than its pieces, or too long"));
        }
        let data = if kind == kind::READ { Vec::new() } else { self.gather(qp, wqe)? };
        let span = (len as u32).div_ceil(qp.attributes.mtu).max(1);
        let last = psn.wrapping_add(span - 1) & 0xff_ffff;
        Ok(Send {
            token: u64::from(psn) << 32 | u64::from(last),
            work,
            data,
            to,
            solicited: first >> 7 & 1 == 1,
            fence: first >> 5 & 1 == 1,
        })
    }

    /// Where the answer to a read goes: a request of the requester's receive queue.
    fn read_places(&mut self, qp: &mut Qp, psn: u32) -> Result<Vec<Piece>, Broken> {
        let wqe = qp.reads.take(&self.memory).map_err(|why| broken(&why))?;
        let wqe = wqe.ok_or_else(|| broken("a read without a place for its answer"))?;
        if wqe.oob.u32(0) & 0xff_ffff != psn || !wqe.checks {
            return Err(broken("the place for an answer is that of another read"));
        }
        let pieces = wqe.pieces.iter().filter(|piece| piece.len > 0);
        Ok(pieces.map(|piece| Piece { address: piece.address, len: piece.len, key: piece.key }).collect())
    }

    /// The bytes of a message.
    fn gather(&self, qp: &Qp, wqe: &Wqe) -> Result<Vec<u8>, Broken> {
        let refused = || (String::new(), Status::LocalProtection);
        let mut data = Vec::with_capacity(wqe.len() as usize);
        for piece in wqe.pieces.iter().filter(|piece| piece.len > 0) {
            let place = Piece { address: piece.address, len: piece.len, key: piece.key };
            let needed = Needed { access: 0, is_remote: false };
            let region = region(&self.regions, qp.pd, place, needed).ok_or_else(refused)?;
            let begin = data.len();
            data.resize(begin + piece.len as usize, 0);
            region.read(&self.memory, piece.address, &mut data[begin..]).map_err(|_| refused())?;
        }
        Ok(data)
    }
}
