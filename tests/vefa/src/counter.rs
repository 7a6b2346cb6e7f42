//! Event counters: values in a user's memory that the device increases.

use crate::admin::Status;
use crate::bytes::Bytes as _;
use crate::device::Device;

/// Bits of events that can be counted. The first of each two counts successes and the other failures.
pub(crate) mod counted {
    pub(crate) const SEND: u32 = 0;
    pub(crate) const RECEIVE: u32 = 2;
    pub(crate) const READ: u32 = 4;
    pub(crate) const WRITE: u32 = 6;
    pub(crate) const REMOTE_READ: u32 = 8;
    pub(crate) const REMOTE_WRITE: u32 = 9;
}

/// An event counter.
#[derive(Debug)]
pub(crate) struct Counter {
    /// The address to which its value is written.
    pub(crate) address: u64,
    pub(crate) value: u64,
    /// Queue pairs whose events it counts.
    pub(crate) users: u32,
}

impl Device {
    /// Adds to a value: to `value`, or to that of the counter. After the maximum comes 0.
    pub(crate) fn change_counter(&mut self, number: u32, value: Option<u64>, more: u64) {
        let end = self.limits.max_counter_value;
        let Some(counter) = self.counters.get_mut(number) else { return };
        let (sum, overflows) = value.unwrap_or(counter.value).overflowing_add(more);
        counter.value = if overflows || sum > end { sum.wrapping_sub(end).wrapping_sub(1) } else { sum };
        let result = self.memory.write(counter.address, &counter.value.to_le_bytes());
        self.note_fault(result);
    }

    /// An event of a queue pair.
    pub(crate) fn count_event(&mut self, handle: u32, event: u32) {
        let Some(qp) = self.qps.get(handle) else { return };
        let counting: Vec<_> = qp
            .counting
            .iter()
            .filter(|(_, events)| events >> event & 1 == 1)
            .map(|(number, _)| *number)
            .collect();
        counting.into_iter().for_each(|number| self.change_counter(number, None, 1));
    }

    pub(crate) fn create_counter(&mut self, payload: &[u8]) -> Result<u32, Status> {
        let (uar, address) = (payload.u16(0), payload.u64(4));
        if !self.uars.has(uar.into()) || !address.is_multiple_of(8) {
            return Err(Status::Illegal);
        }
        let counter = Counter { address, value: 0, users: 0 };
        self.counters.insert(self.limits.max_event_counters, counter).ok_or(Status::Exhausted)
    }

    pub(crate) fn destroy_counter(&mut self, payload: &[u8]) -> Result<(), Status> {
        let number = payload.u32(0);
        match self.counters.get(number) {
            Some(counter) if counter.users > 0 => Err(Status::Busy),
            _ => self.counters.remove(number).map(drop).ok_or(Status::Illegal),
        }
    }

    pub(crate) fn modify_counter(&mut self, payload: &[u8]) -> Result<(), Status> {
        let (number, operation, value) = (payload.u32(0), payload.u8(4), payload.u64(12));
        if !self.counters.has(number) || value > self.limits.max_counter_value {
            return Err(Status::Illegal);
        }
        match operation {
            0 => self.change_counter(number, Some(value), 0),
            1 => self.change_counter(number, None, value),
            _ => return Err(Status::Illegal),
        }
        Ok(())
    }

    /// Makes a counter count events of a queue pair, none of which may already be counted.
    pub(crate) fn attach_counter(&mut self, payload: &[u8]) -> Result<(), Status> {
        let (number, kind, handle, events) = (payload.u32(0), payload.u8(4), payload.u32(8), payload.u32(12));
        let known = self.limits.counter_events;
        let qp = self.qps.get_mut(handle).ok_or(Status::Illegal)?;
        let counter = self.counters.get_mut(number).ok_or(Status::Illegal)?;
        let taken = qp.counting.iter().fold(0, |taken, (_, events)| taken | events);
        if kind != 0 || events & !known != 0 || events & taken != 0 {
            return Err(Status::Illegal);
        }
        qp.counting.push((number, events));
        counter.users += 1;
        Ok(())
    }

    pub(crate) fn detach_counter(&mut self, payload: &[u8]) -> Result<(), Status> {
        let (number, kind, handle, events) = (payload.u32(0), payload.u8(4), payload.u32(8), payload.u32(12));
        let qp = self.qps.get_mut(handle).filter(|_| kind == 0).ok_or(Status::Illegal)?;
        let place =
            qp.counting.iter().position(|counting| *counting == (number, events)).ok_or(Status::Illegal)?;
        qp.counting.remove(place);
        self.release_counter(number);
        Ok(())
    }

    /// A queue pair no longer uses a counter.
    pub(crate) fn release_counter(&mut self, number: u32) {
        if let Some(counter) = self.counters.get_mut(number) {
            counter.users = counter.users.saturating_sub(1);
        }
    }
}
