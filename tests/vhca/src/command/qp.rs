//! Commands for queue pairs and their multicast groups.

use super::object::{NUMBER, named};
use super::{Status, queue_counter};
use crate::bits::{Bits, BitsMut};
use crate::device::Device;
use crate::ifc::command::{alloc_pd_in, attach_to_mcg_in, create_qp_in, query_qp_out, rst2init_qp_in};
use crate::ifc::context::qpc;
use crate::object::{Handle, Kind};
use crate::transport::{Kind as Transport, Qp};

pub(super) fn create(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let mut qp = Qp::new(input)?;
    let context = input.part(create_qp_in::qpc);
    let optional = |kind, field| Some(Handle(kind, context.wide(field))).filter(|handle| handle.1 != 0);
    // The driver's own queue pair for registrations has no protection domain.
    let uses = [
        optional(Kind::Pd, qpc::pd),
        optional(Kind::Cq, qpc::cqn_snd),
        optional(Kind::Cq, qpc::cqn_rcv),
        optional(Kind::Uar, qpc::uar_page),
        optional(Kind::Xrcd, qpc::xrcd).filter(|_| qp.kind == Transport::Xrc),
        qp.shared_receives().map(|number| shared_queue(device, number)),
        queue_counter::named(qp.counter_set()),
    ];
    let number = device.objects.create(Kind::Qp, uses.into_iter().flatten().collect())?;
    qp.number = number;
    device.transport.qps.insert(number, qp);
    output.set(NUMBER, number);
    Ok(())
}

/// A shared queue by its number, of which there is only one kind.
fn shared_queue(device: &Device, number: u32) -> Handle {
    let kinds = [Kind::Rmp, Kind::Srq].map(|kind| Handle(kind, number.into()));
    let [rmp, srq] = kinds;
    if device.objects.expect(rmp).is_ok() { rmp } else { srq }
}

pub(super) fn modify(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.expect(named(Kind::Qp, input))?;
    let number = input.num(NUMBER);
    let qp = device.transport.qps.get_mut(&number).ok_or(Status::BadResource)?;
    let before = (qp.state(), qp.counter_set());
    let mask = input.num(rst2init_qp_in::opt_param_mask);
    let (opcode, wanted) = (input.num(alloc_pd_in::opcode), input.part(rst2init_qp_in::qpc));
    // Nothing changes if the counters do not exist.
    let counters = qp.wanted_counter_set(opcode, mask, wanted).and_then(queue_counter::named);
    counters.map_or(Ok(()), |set| device.objects.expect(set))?;
    qp.modify(opcode, mask, wanted)?;
    let (state, set) = (qp.state(), qp.counter_set());
    if set != before.1 {
        device.objects.exchange(named(Kind::Qp, input), Kind::CounterSet, queue_counter::named(set))?;
    }
    if state != before.0 {
        device.qp_changed(number);
    }
    Ok(())
}

pub(super) fn query(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    device.objects.expect(named(Kind::Qp, input))?;
    let context = device.qp_context(input.num(NUMBER)).ok_or(Status::BadResource)?;
    output.put(query_qp_out::qpc, &context);
    Ok(())
}

pub(super) fn destroy(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.destroy(named(Kind::Qp, input))?;
    let number = input.num(NUMBER);
    device.transport.qps.remove(&number);
    device.transport.groups.values_mut().for_each(|members| members.retain(|member| *member != number));
    Ok(())
}

fn group(input: &[u8]) -> Result<[u8; 16], Status> {
    let address = input.part(attach_to_mcg_in::multicast_gid).first_chunk();
    address.copied().ok_or(Status::BadInputLength)
}

/// Attaches a queue pair to a group; it may already be attached.
pub(super) fn attach(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.expect(named(Kind::Qp, input))?;
    let number = input.num(attach_to_mcg_in::qpn);
    let members = device.transport.groups.entry(group(input)?).or_default();
    if !members.contains(&number) {
        members.push(number);
    }
    Ok(())
}

pub(super) fn detach(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let number = input.num(attach_to_mcg_in::qpn);
    let members = device.transport.groups.get_mut(&group(input)?).ok_or(Status::BadParameter)?;
    let at = members.iter().position(|member| *member == number).ok_or(Status::BadParameter)?;
    members.remove(at);
    Ok(())
}
