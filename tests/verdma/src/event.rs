//! Event queues: that of commands, those of completions, and that of asynchronous events.

use vpci::{Fault, Memory};

use crate::bytes::BytesMut as _;
use crate::device::Device;

const ENTRY: u64 = 16;
/// The bit of the doorbell that arms, and the driver's position in it.
const ARM: u64 = 1 << 31;
const POSITION: u64 = 0xff_ffff;

/// An event queue.
#[derive(Debug)]
pub(crate) struct Eq {
    base: u64,
    depth: u32,
    vector: u8,
    produced: u32,
    /// The next event interrupts. So does the first: the driver does not arm before it (`erdma_ceq_init_one`, erdma_eq.c).
    is_armed: bool,
}

impl Eq {
    /// `None` if the number of entries is not a power of two.
    pub(crate) fn new(base: u64, depth: u32, vector: u8) -> Option<Self> {
        depth.is_power_of_two().then_some(Self { base, depth, vector, produced: 0, is_armed: true })
    }

    /// Writes an event. Returns whether the driver must be interrupted.
    fn post(&mut self, memory: &Memory, words: [u32; 3]) -> Result<bool, Fault> {
        let mut entry = [0; ENTRY as usize];
        let owner = u32::from(self.produced & self.depth == 0) << 31;
        entry.put_u32(0, words[0] | owner);
        entry.put_u32(4, words[1]);
        entry.put_u32(8, words[2]);
        let slot = u64::from(self.produced & (self.depth - 1));
        memory.publish_word(self.base.wrapping_add(slot * ENTRY), &entry, 0)?;
        self.produced = self.produced.wrapping_add(1);
        Ok(std::mem::take(&mut self.is_armed))
    }

    /// Returns whether the driver must be interrupted at once: it has not seen all.
    fn ring(&mut self, doorbell: u64) -> bool {
        let has_more = doorbell & POSITION != u64::from(self.produced) & POSITION;
        let arms = doorbell & ARM != 0;
        self.is_armed = arms && !has_more;
        arms && has_more
    }
}

/// The number under which the queue of asynchronous events is kept.
pub(crate) const ASYNCHRONOUS: u8 = 0xff;
/// The queue of commands.
pub(crate) const COMMANDS: u8 = 0;

impl Device {
    /// Writes an event.
    pub(crate) fn event(&mut self, number: u8, words: [u32; 3]) {
        let Some(eq) = self.eqs.get_mut(&number) else {
            return self.complain(format!("an event for queue {number}, which is not there"));
        };
        let vector = eq.vector.into();
        match eq.post(&self.memory, words) {
            Ok(true) => self.interrupts.raise(vector),
            Ok(false) => {}
            Err(fault) => self.complain(fault.to_string()),
        }
    }

    pub(crate) fn ring_eq(&mut self, number: u8, doorbell: u64) {
        let Some(eq) = self.eqs.get_mut(&number) else { return };
        if eq.ring(doorbell) {
            let vector = eq.vector.into();
            self.interrupts.raise(vector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_interrupts_while_the_queue_is_armed() {
        let memory = Memory::zeroed(&[(0x1000, 4096)]);
        assert!(Eq::new(0x1000, 3, 1).is_none());
        let mut eq = Eq::new(0x1000, 2, 1).unwrap();
        assert_eq!(eq.post(&memory, [7, 0, 0]), Ok(true));
        assert_eq!(eq.post(&memory, [8, 0, 0]), Ok(false));
        assert!(eq.ring(ARM | 1), "one was not seen");
        assert!(!eq.ring(ARM | 2));
        assert_eq!(eq.post(&memory, [9, 5, 6]), Ok(true));
        let mut ring = [0; 32];
        memory.read(0x1000, &mut ring).unwrap();
        // The third is in the first place, with the owner of the second round.
        let word = |at: usize| u32::from_le_bytes(ring[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(4), word(8), word(16)], [9, 5, 6, 8 | 1 << 31]);
    }
}
