//! Commands for memory keys, and for memory that programs name by a number.

use super::Status;
use super::object::{NUMBER, named};
use crate::bits::{Bits, BitsMut};
use crate::device::Device;
use crate::ifc::command::{create_mkey_in, query_mkey_out};
use crate::ifc::context::mkc;
use crate::object::{Handle, Kind};
use crate::umem;

pub(super) fn create(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let context = input.part(create_mkey_in::memory_key_mkey_entry);
    let pd = Handle(Kind::Pd, context.wide(mkc::pd));
    // A key that is created free gets its protection domain when it is first used.
    let uses = if context.is(mkc::free) { Vec::new() } else { vec![pd] };
    let index = device.objects.create(Kind::Mkey, uses)?;
    if let Err(status) = device.mkeys.insert(index, input) {
        device.objects.destroy(Handle(Kind::Mkey, index.into()))?;
        return Err(status);
    }
    output.set(NUMBER, index);
    Ok(())
}

pub(super) fn query(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let context = device.mkeys.context(input.num(NUMBER)).ok_or(Status::BadResource)?;
    output.put(query_mkey_out::memory_key_mkey_entry, context);
    Ok(())
}

pub(super) fn destroy(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.destroy(named(Kind::Mkey, input))?;
    device.mkeys.remove(input.num(NUMBER));
    Ok(())
}

pub(super) fn create_umem(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let pages = umem::pages(input)?;
    let number = device.objects.create(Kind::Umem, Vec::new())?;
    device.umems.insert(number, pages);
    output.set(NUMBER, number);
    Ok(())
}

pub(super) fn destroy_umem(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.objects.destroy(named(Kind::Umem, input))?;
    device.umems.remove(&input.num(NUMBER));
    Ok(())
}
