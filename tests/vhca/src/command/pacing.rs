//! The rate table. The driver chooses the entries; the card keeps them and does not pace.

use super::Status;
use crate::bits::Bits;
use crate::device::Device;
use crate::ifc::command::{set_pp_rate_limit_context, set_pp_rate_limit_in};
use crate::object::{Handle, Kind};

/// Sets an entry that is free, or, with a rate of zero, frees one. A send queue may name an entry that is set.
pub(super) fn set(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let [table, least, most] = device.capabilities.rates().ok_or(Status::BadOpcode)?;
    let index = input.num(set_pp_rate_limit_in::rate_limit_index);
    if !(1..table).contains(&index) {
        return Err(Status::BadIndex);
    }
    let entry = Handle(Kind::Rate, index.into());
    match input.num(set_pp_rate_limit_context::rate_limit.within(set_pp_rate_limit_in::ctx)) {
        0 => device.objects.destroy(entry),
        rate if (least..=most).contains(&rate) => device.objects.create_at(entry, Vec::new()),
        _ => Err(Status::BadParameter),
    }
}
