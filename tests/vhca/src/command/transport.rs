//! Commands for pools of receive requests, transport interfaces and tables of queues.

use super::Status;
use super::object::{NUMBER, named};
use super::queue::ring_uses;
use crate::bits::{Bits, BitsMut, Field};
use crate::device::Device;
use crate::ifc::command::{
    arm_xrc_srq_in, create_rmp_in, create_rqt_in, create_srq_in, create_tir_in, create_tis_in,
    create_xrc_srq_in, modify_rmp_in, modify_rqt_in, modify_tir_in, query_rmp_out, query_rqt_out,
    query_srq_out, query_tir_out, query_tis_out, query_xrc_srq_out,
};
use crate::ifc::context::{rmpc, srqc, tirc, tisc, wq, xrc_srqc};
use crate::object::{Handle, Kind};
use crate::queue::{ReceiveRing, WorkRing, Xrc};
use crate::rss::{Rqt, Target, Tir};

/// An object that may be absent: number 0.
fn optional(kind: Kind, number: u64) -> Option<Handle> {
    (number != 0).then_some(Handle(kind, number))
}

/// Creates an object whose context is kept for queries.
fn remember(
    device: &mut Device,
    kind: Kind,
    uses: Vec<Handle>,
    context: &[u8],
    output: &mut [u8],
) -> Result<u32, Status> {
    let number = device.objects.create(kind, uses)?;
    device.contexts.insert(Handle(kind, number.into()), context.to_vec());
    output.set(NUMBER, number);
    Ok(number)
}

fn recall(device: &Device, kind: Kind, input: &[u8], field: Field, output: &mut [u8]) -> Result<(), Status> {
    let context = device.contexts.get(&named(kind, input)).ok_or(Status::BadResource)?;
    output.put(field, context);
    Ok(())
}

fn forget(device: &mut Device, kind: Kind, input: &[u8]) -> Result<u32, Status> {
    device.objects.destroy(named(kind, input))?;
    device.contexts.remove(&named(kind, input));
    Ok(input.num(NUMBER))
}

pub(super) fn create_rmp(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let context = input.rest(create_rmp_in::ctx);
    let ring = WorkRing::new(context.rest(rmpc::wq))?;
    let number = remember(device, Kind::Rmp, ring_uses(context.rest(rmpc::wq)), context, output)?;
    device.pools.insert(number, ReceiveRing::new(ring));
    Ok(())
}

/// Its limit may be changed; its state stays.
pub(super) fn modify_rmp(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    const LIMIT: u64 = 1 << 0;
    device.objects.expect(named(Kind::Rmp, input))?;
    if input.wide(modify_rmp_in::bitmask) & LIMIT != 0 {
        let limit = input.part(modify_rmp_in::ctx).part(rmpc::wq).num(wq::lwm);
        arm(device, Kind::Rmp, input, limit)?;
    }
    Ok(())
}

/// Requests an event when there are fewer requests than `limit`.
fn arm(device: &mut Device, kind: Kind, input: &[u8], limit: u32) -> Result<(), Status> {
    device.objects.expect(named(kind, input))?;
    let pool = device.pools.get_mut(&input.num(NUMBER)).ok_or(Status::BadResource)?;
    pool.limit = limit as u16;
    Ok(())
}

pub(super) fn arm_xrc_srq(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    arm(device, Kind::XrcSrq, input, input.num(arm_xrc_srq_in::lwm))
}

/// The current limit.
fn limit_of(device: &Device, input: &[u8]) -> u16 {
    device.pools.get(&input.num(NUMBER)).map_or(0, |pool| pool.limit)
}

pub(super) fn query_rmp(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    recall(device, Kind::Rmp, input, query_rmp_out::rmp_context, output)?;
    let context = output.part_mut(query_rmp_out::rmp_context);
    context.part_mut(rmpc::wq).set(wq::lwm, limit_of(device, input));
    Ok(())
}

pub(super) fn destroy_rmp(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let number = forget(device, Kind::Rmp, input)?;
    device.pools.remove(&number);
    Ok(())
}

pub(super) fn create_srq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let context = input.part(create_srq_in::srq_context_entry);
    let ring = WorkRing::shared(context, input.part(create_srq_in::pas))?;
    let number =
        remember(device, Kind::Srq, vec![Handle(Kind::Pd, context.wide(srqc::pd))], context, output)?;
    device.pools.insert(number, ReceiveRing::new(ring));
    Ok(())
}

pub(super) fn query_srq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    recall(device, Kind::Srq, input, query_srq_out::srq_context_entry, output)
}

pub(super) fn destroy_srq(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let number = forget(device, Kind::Srq, input)?;
    device.pools.remove(&number);
    Ok(())
}

pub(super) fn create_xrc_srq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let context = input.part(create_xrc_srq_in::xrc_srq_context_entry);
    let ring = WorkRing::shared_xrc(context, input.part(create_xrc_srq_in::pas))?;
    let mut uses = vec![Handle(Kind::Pd, context.wide(xrc_srqc::pd))];
    uses.extend(optional(Kind::Cq, context.wide(xrc_srqc::cqn)));
    uses.extend(optional(Kind::Xrcd, context.wide(xrc_srqc::xrcd)));
    let xrc = Xrc {
        domain: context.num(xrc_srqc::xrcd),
        cqn: context.num(xrc_srqc::cqn),
        user_index: context.num(xrc_srqc::user_index),
    };
    let number = remember(device, Kind::XrcSrq, uses, context, output)?;
    let mut requests = ReceiveRing::new(ring);
    requests.xrc = Some(xrc);
    device.pools.insert(number, requests);
    Ok(())
}

pub(super) fn query_xrc_srq(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    recall(device, Kind::XrcSrq, input, query_xrc_srq_out::xrc_srq_context_entry, output)?;
    let context = output.part_mut(query_xrc_srq_out::xrc_srq_context_entry);
    context.set(xrc_srqc::lwm, limit_of(device, input));
    Ok(())
}

pub(super) fn destroy_xrc_srq(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let number = forget(device, Kind::XrcSrq, input)?;
    device.pools.remove(&number);
    Ok(())
}

pub(super) fn create_tis(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let context = input.part(create_tis_in::ctx);
    let uses = vec![Handle(Kind::TransportDomain, context.wide(tisc::transport_domain))];
    remember(device, Kind::Tis, uses, context, output).map(drop)
}

/// The changes have no effect here.
pub(super) fn modify_tis(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.expect(named(Kind::Tis, input))
}

pub(super) fn query_tis(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    recall(device, Kind::Tis, input, query_tis_out::tis_context, output)
}

pub(super) fn destroy_tis(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    forget(device, Kind::Tis, input).map(drop)
}

fn tir_uses(tir: &Tir) -> Vec<Handle> {
    let target = match &tir.target {
        Target::Queue(queue) => Handle(Kind::Rq, (*queue).into()),
        Target::Table { number, .. } => Handle(Kind::Rqt, (*number).into()),
    };
    vec![Handle(Kind::TransportDomain, tir.context.wide(tirc::transport_domain)), target]
}

pub(super) fn create_tir(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let tir = Tir::new(input.part(create_tir_in::ctx))?;
    let number = device.objects.create(Kind::Tir, tir_uses(&tir))?;
    device.tirs.insert(number, tir);
    output.set(NUMBER, number);
    Ok(())
}

/// Bits say which parts change: 2 the hash, 3 the self-loopback block.
pub(super) fn modify_tir(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    const HASH: u64 = 1 << 2;
    let tir = device.tirs.get_mut(&input.num(NUMBER)).ok_or(Status::BadResource)?;
    if input.wide(modify_tir_in::bitmask) & HASH != 0 {
        let wanted = Tir::new(input.part(modify_tir_in::ctx))?;
        let (Target::Table { hash, .. }, Target::Table { hash: new, .. }) = (&mut tir.target, wanted.target)
        else {
            return Err(Status::BadParameter);
        };
        *hash = new;
    }
    Ok(())
}

pub(super) fn query_tir(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let tir = device.tirs.get(&input.num(NUMBER)).ok_or(Status::BadResource)?;
    output.put(query_tir_out::tir_context, &tir.context);
    Ok(())
}

pub(super) fn destroy_tir(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.destroy(named(Kind::Tir, input))?;
    device.tirs.remove(&input.num(NUMBER));
    Ok(())
}

fn rqt_uses(table: &Rqt) -> Vec<Handle> {
    table.queues.iter().map(|queue| Handle(Kind::Rq, (*queue).into())).collect()
}

pub(super) fn create_rqt(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let context = input.rest(create_rqt_in::rqt_context);
    let table = Rqt::new(context)?;
    let number = remember(device, Kind::Rqt, rqt_uses(&table), context, output)?;
    device.rqts.insert(number, table);
    Ok(())
}

pub(super) fn modify_rqt(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let context = input.rest(modify_rqt_in::ctx);
    let table = Rqt::new(context)?;
    device.objects.rebind(named(Kind::Rqt, input), rqt_uses(&table))?;
    device.contexts.insert(named(Kind::Rqt, input), context.to_vec());
    device.rqts.insert(input.num(NUMBER), table);
    Ok(())
}

pub(super) fn query_rqt(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    recall(device, Kind::Rqt, input, query_rqt_out::rqt_context, output)
}

pub(super) fn destroy_rqt(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let number = forget(device, Kind::Rqt, input)?;
    device.rqts.remove(&number);
    Ok(())
}
