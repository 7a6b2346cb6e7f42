//! Commands for flow counters, individually or in rows.

use super::Status;
use crate::bits::{Bits, BitsMut, Field};
use crate::device::Device;
use crate::ifc::command::{
    alloc_flow_counter_in, alloc_flow_counter_out, query_flow_counter_in, query_flow_counter_out,
    traffic_counter,
};
use crate::object::{Handle, Kind};

/// Size of one counter in an answer in bytes.
const COUNTER: usize = 16;

/// Number of counters in a command: one, or 128 times a power of two.
fn bulk(input: &[u8]) -> Result<u32, Status> {
    let log = input.num(alloc_flow_counter_in::flow_counter_bulk_log_size);
    let bits = input.num(alloc_flow_counter_in::flow_counter_bulk);
    match (log, bits) {
        (0, 0) => Ok(1),
        (1..=15, 0) => Ok(1 << log),
        (0, bits) if bits.is_power_of_two() => Ok(bits * 128),
        _ => Err(Status::BadParameter),
    }
}

pub(super) fn alloc(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let count = bulk(input)?;
    let first = device.objects.create_range(Kind::Counter, count.into(), Vec::new())?;
    device.counters.insert(first, count);
    output.set(alloc_flow_counter_out::flow_counter_id, first);
    Ok(())
}

/// Frees a counter with all counters that were created with it.
pub(super) fn dealloc(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let first = input.num(alloc_flow_counter_out::flow_counter_id);
    let count = device.objects.destroy_range(Handle(Kind::Counter, first.into()))?;
    device.counters.remove(first, count as u32);
    Ok(())
}

/// Reads as many counters as the command says; one if it says zero.
pub(super) fn query(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let first = input.num(query_flow_counter_in::flow_counter_id);
    let count = input.num(query_flow_counter_in::num_of_counters).max(1);
    let clear = input.is(query_flow_counter_in::clear);
    let Field { offset, .. } = query_flow_counter_out::flow_statistics;
    if output.len() < offset / 8 + count as usize * COUNTER {
        return Err(Status::BadOutputLength);
    }
    for i in 0..count {
        device.objects.expect(Handle(Kind::Counter, first.wrapping_add(i).into()))?;
        let counter = device.counters.read(first.wrapping_add(i), clear).ok_or(Status::BadResource)?;
        let base = Field::new(offset + i as usize * COUNTER * 8, 0);
        output.set(traffic_counter::packets.within(base), counter.packets);
        output.set(traffic_counter::octets.within(base), counter.octets);
    }
    Ok(())
}
