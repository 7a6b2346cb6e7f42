//! The user's side of rings, by hand.

use std::sync::atomic::Ordering;

use uverbs::soft::RawConnection;
use uverbs::transport::Mapping;
use uverbs_abi::ids::{cq, qp};
use uverbs_abi::ioctl::UHW_OUT;
use uverbs_abi::rxe::{CreateCqResp, CreateQpResp, DmaInfo, Mminfo, RecvWqe, SendWqe, SendWr, Sge};
use uverbs_abi::types::{SendFlags, wr_opcode};
use uverbs_abi::write::{PostSend, Wc, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::{answer, create_cq, create_qp, done, write};
use uverbs::soft::{RawAttr, RawCommand};

const PRODUCER: usize = 128;
const CONSUMER: usize = 256;
const SLOTS: usize = 384;

#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) map: Mapping,
}

impl Ring {
    fn open(file: &RawConnection, info: Mminfo) -> Self {
        Self { map: file.map(info.offset, info.size as usize).unwrap() }
    }

    pub(crate) fn mask(&self) -> u32 {
        self.map.load(4, Ordering::Relaxed)
    }

    fn place(&self, index: u32) -> usize {
        SLOTS + ((index as usize) << self.map.load(0, Ordering::Relaxed))
    }

    /// Fills the next slot and shows it.
    pub(crate) fn put(&self, parts: &[&[u8]]) {
        let index = self.map.load(PRODUCER, Ordering::Relaxed);
        assert!(self.map.write(self.place(index), &parts.concat()));
        self.map.store(PRODUCER, (index + 1) & self.mask(), Ordering::Release);
    }

    /// Takes the oldest completion.
    pub(crate) fn take(&self) -> Option<Wc> {
        let index = self.map.load(CONSUMER, Ordering::Relaxed);
        if index == self.map.load(PRODUCER, Ordering::Acquire) {
            return None;
        }
        let mut wc = Wc::new_zeroed();
        assert!(self.map.read(self.place(index), wc.as_mut_bytes()));
        self.map.store(CONSUMER, (index + 1) & self.mask(), Ordering::Release);
        Some(wc)
    }
}

/// A completion queue with its ring.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) handle: u32,
    pub(crate) ring: Ring,
}

impl Cq {
    pub(crate) fn new(file: &RawConnection, cqe: u32, channel: Option<i32>) -> Self {
        let mut command = create_cq(cqe);
        if let Some(fd) = channel {
            command = command.with(RawAttr::handle(cq::create::COMP_CHANNEL, fd as u64));
        }
        let made = done(file, command);
        let CreateCqResp { mi } = answer(&made, UHW_OUT);
        Self { handle: made.data(cq::create::HANDLE) as u32, ring: Ring::open(file, mi) }
    }

    /// All completions in the queue: work request and status.
    pub(crate) fn drain(&self) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| self.ring.take()).map(|wc| (wc.wr_id, wc.status)).collect()
    }
}

/// A queue pair with its rings.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) handle: u32,
    pub(crate) number: u32,
    pub(crate) sends: Ring,
    pub(crate) receives: Ring,
}

impl Qp {
    pub(crate) fn new(file: &RawConnection, pd: u32, cq: &Cq) -> Self {
        Self::make(file, create_qp(pd, cq.handle))
    }

    /// The same with this command.
    pub(crate) fn make(file: &RawConnection, command: RawCommand) -> Self {
        let made = done(file, command);
        let CreateQpResp { rq_mi, sq_mi } = answer(&made, UHW_OUT);
        Self {
            handle: made.data(qp::create::HANDLE) as u32,
            number: answer(&made, qp::create::RESP_QP_NUM),
            sends: Ring::open(file, sq_mi),
            receives: Ring::open(file, rq_mi),
        }
    }

    pub(crate) fn post_receive(&self, wr_id: u64, pieces: &[Sge]) {
        let dma = DmaInfo { num_sge: pieces.len() as u32, ..DmaInfo::new_zeroed() };
        let wqe = RecvWqe { wr_id, dma, ..RecvWqe::new_zeroed() };
        self.receives.put(&[wqe.as_bytes(), pieces.as_bytes()]);
    }

    pub(crate) fn post_send(&self, wr_id: u64, flags: SendFlags, pieces: &[Sge]) {
        let wr = SendWr { wr_id, opcode: wr_opcode::SEND, send_flags: flags.bits(), ..SendWr::new_zeroed() };
        let dma = DmaInfo { num_sge: pieces.len() as u32, ..DmaInfo::new_zeroed() };
        let wqe = SendWqe { wr, dma, ..SendWqe::new_zeroed() };
        self.sends.put(&[wqe.as_bytes(), pieces.as_bytes()]);
    }

    pub(crate) fn post_inline(&self, wr_id: u64, frame: &[u8]) {
        let flags = (SendFlags::INLINE | SendFlags::SIGNALED).bits();
        let wr = SendWr { wr_id, opcode: wr_opcode::SEND, send_flags: flags, ..SendWr::new_zeroed() };
        let dma = DmaInfo { length: frame.len() as u32, ..DmaInfo::new_zeroed() };
        let wqe = SendWqe { wr, dma, ..SendWqe::new_zeroed() };
        self.sends.put(&[wqe.as_bytes(), frame]);
    }

    pub(crate) fn ring_doorbell(&self, file: &RawConnection) {
        let request = PostSend { qp_handle: self.handle, wqe_size: 56, ..PostSend::new_zeroed() };
        done(file, write(cmd::POST_SEND, &request, 4));
    }
}
