//! Commands about sets of counters of queues.

use super::Status;
use crate::bits::{Bits, BitsMut};
use crate::device::Device;
use crate::ifc::counter::{alloc_q_counter_out, query_q_counter_in};
use crate::object::{Handle, Kind};

/// The set with a number, as queues name it: none for 0.
pub(super) fn named(number: u32) -> Option<Handle> {
    (number != 0).then(|| Handle(Kind::CounterSet, number.into()))
}

pub(super) fn alloc(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let number = device.objects.create(Kind::CounterSet, Vec::new())?;
    device.counter_sets.insert(number);
    output.set(alloc_q_counter_out::counter_set_id, number);
    Ok(())
}

/// Frees a set that no queue is in.
pub(super) fn dealloc(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let number = input.num(alloc_q_counter_out::counter_set_id);
    device.objects.destroy(Handle(Kind::CounterSet, number.into()))?;
    device.counter_sets.remove(number);
    Ok(())
}

pub(super) fn query(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let number = input.num(query_q_counter_in::counter_set_id);
    device.objects.expect(Handle(Kind::CounterSet, number.into()))?;
    let clear = input.is(query_q_counter_in::clear);
    device.counter_sets.read(number, clear).ok_or(Status::BadResource)?.show(output);
    Ok(())
}
