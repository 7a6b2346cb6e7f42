//! Commands for queues: events, completions, sends, receives.

use super::object::{NUMBER, named};
use super::{Status, queue_counter};
use crate::bits::{Bits, BitsMut};
use crate::device::Device;
use crate::ifc::command::{
    create_eq_out, create_rq_in, create_sq_in, modify_cq_in, modify_rq_in, modify_sq_in, query_cq_out,
    query_eq_out, query_rq_out, query_sq_out,
};
use crate::ifc::context::{cqc, eqc, rqc, sqc, wq};
use crate::object::{Handle, Kind};
use crate::queue::{Cq, Eq, Rq, Sq, state};

/// The objects that a ring of work requests uses: its protection domain and its doorbell page, if it has them. The driver tests the
/// doorbells with a queue that uses no memory.
pub(super) fn ring_uses(context: &[u8]) -> Vec<Handle> {
    let all = [Handle(Kind::Pd, context.wide(wq::pd)), Handle(Kind::Uar, context.wide(wq::uar_page))];
    all.into_iter().filter(|handle| handle.1 != 0).collect()
}

pub(super) fn create_eq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let eq = Eq::new(input)?;
    let number = device.objects.create(Kind::Eq, vec![Handle(Kind::Uar, eq.context.wide(eqc::uar_page))])?;
    device.eqs.insert(number, eq);
    output.set(create_eq_out::eq_number, number);
    Ok(())
}

pub(super) fn destroy_eq(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let number = input.num(create_eq_out::eq_number);
    device.objects.destroy(Handle(Kind::Eq, number.into()))?;
    device.eqs.remove(&number);
    Ok(())
}

pub(super) fn query_eq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let eq = device.eqs.get(&input.num(create_eq_out::eq_number)).ok_or(Status::BadResource)?;
    output.put(query_eq_out::eq_context_entry, &eq.context);
    Ok(())
}

pub(super) fn create_cq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let cq = Cq::new(input)?;
    let uses = vec![Handle(Kind::Eq, cq.eqn.into()), Handle(Kind::Uar, cq.context.wide(cqc::uar_page))];
    let number = device.objects.create(Kind::Cq, uses)?;
    device.cqs.insert(number, cq);
    output.set(NUMBER, number);
    Ok(())
}

pub(super) fn destroy_cq(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.destroy(named(Kind::Cq, input))?;
    device.cqs.remove(&input.num(NUMBER));
    Ok(())
}

pub(super) fn query_cq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let cq = device.cqs.get(&input.num(NUMBER)).ok_or(Status::BadResource)?;
    output.put(query_cq_out::cq_context, &cq.context);
    Ok(())
}

/// Replaces the ring, or changes the moderation. The moderation is stored and has no effect: every completion still makes an event.
pub(super) fn modify_cq(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    const PERIOD: u32 = 1 << 0;
    const COUNT: u32 = 1 << 1;
    /// The operation that exchanges the ring, and the fields of its size, page size and offset in the first page.
    const RESIZE: u32 = 1;
    const RING: u32 = 0b111;
    let cq = device.cqs.get_mut(&input.num(NUMBER)).ok_or(Status::BadResource)?;
    let select = input.num(modify_cq_in::modify_field_select_resize_field_select);
    if input.num(crate::ifc::command::alloc_pd_in::op_mod) == RESIZE && select == RING {
        return cq.resize(&device.memory, input);
    }
    if input.is(crate::ifc::command::alloc_pd_in::op_mod) || select & !(PERIOD | COUNT) != 0 {
        return Err(Status::BadParameter);
    }
    let wanted = input.part(modify_cq_in::cq_context);
    for (bit, field) in [(PERIOD, cqc::cq_period), (COUNT, cqc::cq_max_count)] {
        if select & bit != 0 {
            cq.context.set(field, wanted.wide(field));
        }
    }
    Ok(())
}

pub(super) fn create_sq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let sq = Sq::new(input.rest(create_sq_in::ctx))?;
    let mut uses = ring_uses(sq.context.rest(sqc::wq));
    uses.push(Handle(Kind::Cq, sq.cqn.into()));
    if sq.context.is(sqc::tis_lst_sz) {
        uses.push(Handle(Kind::Tis, sq.context.wide(sqc::tis_num_0)));
    }
    uses.extend(rate(&sq.context));
    let number = device.objects.create(Kind::Sq, uses)?;
    device.sqs.insert(number, sq);
    output.set(NUMBER, number);
    Ok(())
}

/// The entry of the rate table that a send queue names.
fn rate(context: &[u8]) -> Option<Handle> {
    let index = context.wide(sqc::packet_pacing_rate_limit_index);
    (index != 0).then_some(Handle(Kind::Rate, index))
}

pub(super) fn modify_sq(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    /// Bit of the index in the rate table.
    const RATE: u64 = 1 << 0;
    let number = input.num(NUMBER);
    let sq = device.sqs.get_mut(&number).ok_or(Status::BadResource)?;
    let (from, to) = (input.num(modify_sq_in::sq_state), input.part(modify_sq_in::ctx).num(sqc::state));
    if from != sq.state() || !state::may_change(from, to) {
        return Err(Status::BadResourceState);
    }
    if input.wide(modify_sq_in::modify_bitmask) & RATE != 0 {
        let wanted = input.part(modify_sq_in::ctx);
        device.objects.exchange(named(Kind::Sq, input), Kind::Rate, rate(wanted))?;
        let field = sqc::packet_pacing_rate_limit_index;
        sq.context.set(field, wanted.wide(field));
    }
    sq.set_state(to);
    if to == state::ERROR {
        device.send_all(number);
    }
    Ok(())
}

pub(super) fn query_sq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let sq = device.sqs.get(&input.num(NUMBER)).ok_or(Status::BadResource)?;
    output.put(query_sq_out::sq_context, &sq.shown());
    Ok(())
}

pub(super) fn destroy_sq(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.destroy(named(Kind::Sq, input))?;
    device.sqs.remove(&input.num(NUMBER));
    Ok(())
}

pub(super) fn create_rq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let rq = Rq::new(input.rest(create_rq_in::ctx))?;
    let mut uses = match rq.pool {
        Some(pool) => vec![Handle(Kind::Rmp, pool.into())],
        None => ring_uses(rq.context.rest(rqc::wq)),
    };
    uses.push(Handle(Kind::Cq, rq.cqn.into()));
    uses.extend(queue_counter::named(rq.counter_set()));
    let number = device.objects.create(Kind::Rq, uses)?;
    device.rqs.insert(number, rq);
    output.set(NUMBER, number);
    Ok(())
}

pub(super) fn modify_rq(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    /// Bits of the fields that change besides the state.
    const VLAN: u64 = 1 << 1;
    const SCATTER_FCS: u64 = 1 << 2;
    const COUNTER_SET: u64 = 1 << 3;
    let number = input.num(NUMBER);
    let rq = device.rqs.get_mut(&number).ok_or(Status::BadResource)?;
    let wanted = input.part(modify_rq_in::ctx);
    let (from, to) = (input.num(modify_rq_in::rq_state), wanted.num(rqc::state));
    if from != rq.state() || !state::may_change(from, to) {
        return Err(Status::BadResourceState);
    }
    let mask = input.wide(modify_rq_in::modify_bitmask);
    if mask & COUNTER_SET != 0 {
        let counters = queue_counter::named(wanted.num(rqc::counter_set_id));
        device.objects.exchange(named(Kind::Rq, input), Kind::CounterSet, counters)?;
    }
    let fields = [(VLAN, rqc::vsd), (SCATTER_FCS, rqc::scatter_fcs), (COUNTER_SET, rqc::counter_set_id)];
    for (_, field) in fields.into_iter().filter(|(bit, _)| mask & bit != 0) {
        rq.context.set(field, wanted.wide(field));
    }
    device.set_rq_state(number, to);
    Ok(())
}

pub(super) fn query_rq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let rq = device.rqs.get(&input.num(NUMBER)).ok_or(Status::BadResource)?;
    output.put(query_rq_out::rq_context, &rq.shown());
    Ok(())
}

pub(super) fn destroy_rq(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.destroy(named(Kind::Rq, input))?;
    device.rqs.remove(&input.num(NUMBER));
    Ok(())
}
