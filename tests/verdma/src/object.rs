//! Pages of doorbells, addresses, and what the device counts.

use crate::bytes::{Bytes as _, BytesMut as _};
use crate::command::Refusal;
use crate::device::{Device, FIRST_PAGE, LAST_PAGE};
use crate::qp::Path;

/// A page of doorbells of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DoorbellPage {
    Sends,
    Receives { completions: u16 },
    Completions { receives: u16 },
}

/// The counters of the port, in the order of the kernel's names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) requests: u64,
    pub(crate) sent: [u64; 2],
    pub(crate) received: [u64; 2],
    pub(crate) sends_dropped: u64,
    pub(crate) receives_dropped: u64,
}

/// The mark of an answer that the device writes to memory, `ERDMA_HW_RESP_MAGIC`.
const MAGIC: u16 = 0x5566;

impl Statistics {
    /// Requests, packets, bytes and packets that were dropped; then the same of what arrived. Nothing is limited by a rate.
    pub(crate) fn list(&self) -> [u64; 11] {
        let ([packets, bytes], [arrived, octets]) = (self.sent, self.received);
        [
            self.requests,
            packets,
            bytes,
            self.sends_dropped,
            0,
            0,
            arrived,
            octets,
            self.receives_dropped,
            0,
            0,
        ]
    }
}

impl Device {
    pub(crate) fn get_statistics(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let (to, room) = (command.u64(16), command.u32(24));
        let mut answer = [0; 16 + 11 * 8];
        if room < answer.len() as u32 {
            return Err(Refusal::Invalid);
        }
        answer.put_u16(0, MAGIC);
        for (at, value) in (16..).step_by(8).zip(self.statistics.list()) {
            answer.put_u64(at, value);
        }
        self.memory.write(to, &answer).map_err(|_| Refusal::Invalid)
    }

    /// Three pages for a process; the answer has their numbers.
    pub(crate) fn allocate_pages(&mut self, command: &[u8]) -> Result<[u64; 2], Refusal> {
        if command.u32(8) & 7 != 7 || self.flags & 8 == 0 {
            return Err(Refusal::Invalid);
        }
        let mut free = (FIRST_PAGE..=LAST_PAGE).filter(|page| !self.pages.contains_key(page));
        let found = (free.next(), free.next(), free.next());
        let (Some(sends), Some(receives), Some(completions)) = found else { return Err(Refusal::Full) };
        self.pages.insert(sends, DoorbellPage::Sends);
        self.pages.insert(receives, DoorbellPage::Receives { completions });
        self.pages.insert(completions, DoorbellPage::Completions { receives });
        Ok([u64::from(receives) << 48 | u64::from(completions) << 32 | u64::from(sends), 0])
    }

    pub(crate) fn free_pages(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let [receives, sends, completions] = [12, 14, 18].map(|at| command.u16(at));
        let is_it = self.pages.get(&sends) == Some(&DoorbellPage::Sends)
            && self.pages.get(&receives) == Some(&DoorbellPage::Receives { completions });
        let in_use = self.qps.values().any(|qp| qp.pages.is_some_and(|pages| pages[0] == sends))
            || self.cqs.values().any(|cq| cq.page == Some(completions));
        match (is_it, in_use) {
            (false, _) => Err(Refusal::Unknown),
            (true, true) => Err(Refusal::InUse),
            (true, false) => {
                self.pages.retain(|page, _| ![sends, receives, completions].contains(page));
                Ok(())
            }
        }
    }

    pub(crate) fn set_gid(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let cfg = command.u32(8);
        let index = cfg as u16;
        if cfg >> 31 == 1 {
            return self.gids.remove(&index).map(drop).ok_or(Refusal::Unknown);
        }
        self.gids.insert(index, command.array(12));
        Ok(())
    }

    pub(crate) fn create_address(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let number = command.u32(12);
        if self.addresses.contains_key(&number) {
            return Err(Refusal::InUse);
        }
        self.addresses.insert(number, Path::parse(&command[16..]));
        Ok(())
    }

    pub(crate) fn destroy_address(&mut self, command: &[u8]) -> Result<(), Refusal> {
        self.addresses.remove(&command.u32(12)).map(drop).ok_or(Refusal::Unknown)
    }
}
