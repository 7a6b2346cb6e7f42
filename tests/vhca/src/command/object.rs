//! Objects that consist only of a number: protection domains, doorbell pages, transport domains, XRC domains, user contexts.

use super::Status;
use crate::bits::{Bits, BitsMut, Field};
use crate::device::Device;
use crate::ifc::command::{create_uctx_out, dealloc_pd_in, destroy_uctx_in};
use crate::object::{Handle, Kind};

/// The place of the object's number in most commands: in the input of those that use it, in the output of those that create it.
pub(super) const NUMBER: Field = dealloc_pd_in::pd;

/// The object that a command names.
pub(super) fn named(kind: Kind, input: &[u8]) -> Handle {
    Handle(kind, input.wide(NUMBER))
}

fn alloc(device: &mut Device, kind: Kind, output: &mut [u8]) -> Result<(), Status> {
    let number = device.objects.create(kind, Vec::new())?;
    output.set(NUMBER, number);
    Ok(())
}

pub(super) fn alloc_pd(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    alloc(device, Kind::Pd, output)
}

pub(super) fn dealloc_pd(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.destroy(named(Kind::Pd, input))
}

pub(super) fn alloc_uar(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    alloc(device, Kind::Uar, output)
}

pub(super) fn dealloc_uar(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.destroy(named(Kind::Uar, input))
}

pub(super) fn alloc_transport_domain(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    alloc(device, Kind::TransportDomain, output)
}

pub(super) fn dealloc_transport_domain(
    device: &mut Device,
    input: &[u8],
    _: &mut [u8],
) -> Result<(), Status> {
    device.objects.destroy(named(Kind::TransportDomain, input))
}

pub(super) fn alloc_xrcd(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    alloc(device, Kind::Xrcd, output)
}

pub(super) fn dealloc_xrcd(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.destroy(named(Kind::Xrcd, input))
}

/// A user context: commands that name it may use and destroy objects that were created in it.
pub(super) fn create_uctx(device: &mut Device, _: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let number = device.objects.create(Kind::Uctx, Vec::new())?;
    output.set(create_uctx_out::uid, number);
    Ok(())
}

/// Refused while objects exist that were created in it.
pub(super) fn destroy_uctx(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let number = input.num(destroy_uctx_in::uid) as u16;
    if number != 0 && device.objects.is_owner(number) {
        return Err(Status::BadResourceState);
    }
    device.objects.destroy(Handle(Kind::Uctx, number.into()))
}
