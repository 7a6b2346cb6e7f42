//! Events: the queue of asynchronous events, and those of completions.

use vpci::{Fault, Memory};

use crate::bytes::{Bytes as _, BytesMut as _};
use crate::device::Device;

/// Groups of asynchronous events, `efa_admin_aenq_group`.
pub(crate) const GROUPS: [(&str, u16); 4] =
    [("fatal", 1), ("warning", 2), ("notification", 3), ("keep-alive", 4)];

const AENQ_ENTRY: u64 = 64;
const EQ_ENTRY: u64 = 16;

/// The queue of asynchronous events.
#[derive(Debug, Default)]
pub(crate) struct Aenq {
    produced: u16,
    /// The driver's position.
    pub(crate) consumer: u16,
    /// A bit for each group that the driver has enabled.
    pub(crate) enabled: u32,
}

impl Aenq {
    pub(crate) fn begin(&mut self) {
        (self.produced, self.consumer) = (0, 0);
    }
}

/// A queue of completion events.
#[derive(Debug)]
pub(crate) struct Eq {
    base: u64,
    depth: u16,
    vector: u8,
    produced: u32,
    is_armed: bool,
    /// An event has arrived without an interrupt.
    has_waiting: bool,
}

impl Eq {
    /// The queue that CREATE_EQ describes; `None` if it is malformed.
    pub(crate) fn new(payload: &[u8]) -> Option<Self> {
        let (depth, vector, words) = (payload.u16(0), payload.u8(2), payload.u8(3));
        let wants_completions = payload.u32(12) & 1 == 1;
        (depth > 0 && u64::from(words) * 4 == EQ_ENTRY && wants_completions).then(|| Self {
            base: payload.u64(4),
            depth,
            vector,
            produced: 0,
            is_armed: false,
            has_waiting: false,
        })
    }

    pub(crate) fn vector(&self) -> u8 {
        self.vector
    }

    /// Writes an event. Returns whether the driver must be interrupted.
    fn post(&mut self, memory: &Memory, cq: u16) -> Result<bool, Fault> {
        let depth = u32::from(self.depth);
        let (slot, lap) = (self.produced % depth, self.produced / depth);
        let mut entry = [0; EQ_ENTRY as usize];
        entry.put_u32(0, (lap + 1) & 1); // the phase; type 0 is a completion
        entry.put_u16(8, cq);
        memory.publish_word(self.base.wrapping_add(u64::from(slot) * EQ_ENTRY), &entry, 0)?;
        // Only the parity of the round matters.
        self.produced = (self.produced + 1) % (2 * depth);
        self.has_waiting = !self.is_armed;
        Ok(std::mem::take(&mut self.is_armed))
    }

    /// Arms the queue. Returns whether the driver must be interrupted immediately.
    fn arm(&mut self) -> bool {
        self.is_armed = !self.has_waiting;
        std::mem::take(&mut self.has_waiting)
    }
}

impl Device {
    pub(crate) fn arm_eq(&mut self, number: u16, arms: bool) {
        let Some(eq) = self.eqs.get_mut(number.into()).filter(|_| arms) else { return };
        if eq.arm() {
            let vector = eq.vector.into();
            self.interrupts.raise(vector);
        }
    }

    /// Notifies the driver of a completion.
    pub(crate) fn completion_event(&mut self, eq: u16, cq: u16) {
        self.statistics.completion_events += 1;
        let Some(eq) = self.eqs.get_mut(eq.into()) else { return };
        match eq.post(&self.memory, cq) {
            Ok(true) => {
                let vector = eq.vector.into();
                self.interrupts.raise(vector);
            }
            Ok(false) => {}
            Err(fault) => self.note_fault(Err(fault)),
        }
    }

    /// Notifies the driver of an event. Returns whether the driver has enabled it and there was room.
    pub(crate) fn asynchronous_event(&mut self, group: u16, syndrome: u16) -> bool {
        let caps = self.registers.aenq_caps;
        let (depth, vector) = (caps as u16, caps >> 24);
        let aenq = &mut self.aenq;
        let is_full = aenq.produced.wrapping_sub(aenq.consumer) >= depth;
        if self.registers.aenq_base == 0 || is_full || aenq.enabled >> group & 1 == 0 {
            return false;
        }
        let (slot, lap) = (aenq.produced % depth, aenq.produced / depth);
        let mut entry = [0; AENQ_ENTRY as usize];
        entry.put_u16(0, group);
        entry.put_u16(2, syndrome);
        entry.put_u8(4, (lap + 1) as u8 & 1);
        aenq.produced = aenq.produced.wrapping_add(1);
        let at = self.registers.aenq_base.wrapping_add(u64::from(slot) * AENQ_ENTRY);
        let result = self.memory.publish_word(at, &entry, 4);
        self.note_fault(result);
        if !self.registers.is_masked {
            self.interrupts.raise(vector);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_comes_while_the_queue_is_not_armed_waits() {
        let memory = Memory::zeroed(&[(0x1000, 4096)]);
        let mut payload = [0; 60];
        payload.put_u16(0, 2);
        payload.put(2, &[1, 4]);
        payload.put_u64(4, 0x1000);
        assert!(Eq::new(&payload).is_none());
        payload.put_u32(12, 1);
        let mut eq = Eq::new(&payload).unwrap();
        assert!(!eq.arm());
        assert_eq!([eq.post(&memory, 7), eq.post(&memory, 8)], [Ok(true), Ok(false)]);
        assert!(eq.arm());
        assert!(!eq.arm());
        // The third event is at the first place again, with the other phase.
        assert_eq!(eq.post(&memory, 9), Ok(true));
        let mut ring = [0; 32];
        memory.read(0x1000, &mut ring).unwrap();
        assert_eq!([ring.u32(0), ring.u32(8), ring.u32(16), ring.u32(24)], [0, 9, 1, 8]);
    }
}
