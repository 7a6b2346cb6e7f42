//! The command channel: shared memory by which it is established, then queues for requests and answers.

use vpci::bytes::{Bytes as _, BytesMut as _};

use crate::command::{self, Command};
use crate::device::Device;
use crate::queue::{Cq, Eq, Wq, event};
use crate::region::{Pages, Region};

/// The number of both work queues, and those of the event queue and the completion queue.
const QUEUE: u32 = 2;
const EQ: u32 = 0;
const CQ: u32 = 0;
const PAGE: u32 = 4096;
/// The kernel's own page of doorbells.
pub(crate) const DOORBELL: u32 = 0;

/// Whether it is the number of a queue of the channel.
pub(crate) fn is_own(queue: u32) -> bool {
    queue == QUEUE
}

// The last word of the shared memory.
const ESTABLISH: u32 = 1;
const DESTROY: u32 = 2;
const ANSWER: u32 = 1 << 7;
const FAILED: u32 = 1 << 8;

/// The channel.
#[derive(Debug, Default)]
pub(crate) struct Hwc {
    pub(crate) shared: [u8; 32],
    requests: Wq,
    pub(crate) receives: Wq,
    is_there: bool,
    /// The domain and the key of the channel's memory.
    pd: u32,
    key: u32,
}

impl Device {
    /// Words of the shared memory are written. The last one starts what they say.
    pub(crate) fn write_shared(&mut self, at: usize, data: &[u8]) {
        self.hwc.shared.put(at, data);
        if at + data.len() < self.hwc.shared.len() {
            return;
        }
        let shared = self.hwc.shared;
        let word = shared.u32(28);
        let kind = word & 7;
        let done = match kind {
            ESTABLISH => self.establish(&shared),
            DESTROY => {
                self.drop_objects();
                true
            }
            _ => false,
        };
        let answer = kind | ANSWER | if done { 0 } else { FAILED };
        self.hwc.shared.put_u32(28, answer);
    }

    fn establish(&mut self, shared: &[u8; 32]) -> bool {
        self.drop_objects();
        let upper = shared.u16(24);
        let page = |index: u32| {
            let low = shared.u64(index as usize * 6) & 0xffff_ffff_ffff;
            Pages::one((u64::from(upper >> (4 * index) & 0xf) << 48 | low) << 12)
        };
        let vector = shared.u16(26).into();
        let eq = self.eqs.insert(u32::MAX, Eq::new(page(0), PAGE, vector, DOORBELL));
        let cq = self.cqs.insert(u32::MAX, Cq::new(page(1), PAGE, EQ, DOORBELL).armed());
        let (Some(EQ), Some(CQ)) = (eq, cq) else { return false };
        self.hwc.receives = Wq::new(page(2), PAGE, DOORBELL);
        self.hwc.requests = Wq::new(page(3), PAGE, DOORBELL);
        let Some(pd) = self.pds.insert(u32::MAX, ()) else { return false };
        let all = Region { pd: pd.into(), base: 0, pages: None, access: u32::MAX };
        let Some(key) = self.regions.insert(u32::MAX, all).map(command::local_key) else { return false };
        (self.hwc.pd, self.hwc.key, self.hwc.is_there) = (pd, key, true);
        self.hwc.shared = *shared;
        self.post_event(EQ, event::INIT_EQ, EQ | DOORBELL << 16);
        let largest = PAGE;
        let told =
            [(1, CQ), (2, QUEUE), (3, QUEUE), (4, 1), (5, largest), (6, largest), (7, self.limits.max_cq)];
        for (kind, value) in told.into_iter().chain([(8, pd), (9, key)]) {
            self.post_event(EQ, event::INIT_DATA, value | kind << 24);
        }
        self.post_event(EQ, event::INIT_DONE, 0);
        true
    }

    /// The driver has written requests.
    pub(crate) fn ring_command(&mut self, position: u32) {
        self.hwc.requests.set_producer(position);
        while self.hwc.is_there {
            match self.hwc.requests.take(&self.memory) {
                Ok(Some(wqe)) => {
                    let Some(piece) = wqe.pieces.first() else { return };
                    let mut bytes = vec![0; piece.len.min(PAGE) as usize];
                    let read = self.memory.read(piece.address, &mut bytes);
                    self.note_fault(read);
                    let (answer, command) = self.execute(Command::parse(bytes));
                    self.answer(&answer);
                    self.trace.record(command, answer);
                }
                Ok(None) => return,
                Err(why) => return self.complain(format!("command channel: {why}")),
            }
        }
    }

    fn answer(&mut self, answer: &[u8]) {
        let wqe = match self.hwc.receives.take(&self.memory) {
            Ok(Some(wqe)) => wqe,
            Ok(None) => return self.complain("command channel: no room for an answer".to_owned()),
            Err(why) => return self.complain(format!("command channel: {why}")),
        };
        let Some(piece) = wqe.pieces.first().filter(|piece| piece.len as usize >= answer.len()) else {
            return self.complain("command channel: too little room for an answer".to_owned());
        };
        let written = self.memory.write(piece.address, answer);
        self.note_fault(written);
        let mut data = [0; 32];
        data.put_u32(12, wqe.at);
        data.put_u32(24, answer.len() as u32);
        self.post_completion(CQ, &data, QUEUE, false);
    }
}
