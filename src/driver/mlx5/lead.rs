//! What is before the data of a request: the control segment, with the address of a datagram behind it.

use super::address::{self, Block};
use super::sends::unit;
use crate::driver::request::ToAddress;
use crate::driver::ring::units::Units;

/// The beginning of a request, which is written together with the control segment.
pub(super) trait Lead {
    fn put(self, units: &mut Units, begin: u32, control: [u64; 2]);
}

/// The control segment only.
pub(super) struct Alone;

impl Lead for Alone {
    #[inline(always)]
    fn put(self, units: &mut Units, begin: u32, control: [u64; 2]) {
        units.put(unit(begin), control);
    }
}

/// The control segment and the address of a datagram.
impl Lead for &ToAddress<'_> {
    #[inline(always)]
    fn put(self, units: &mut Units, begin: u32, control: [u64; 2]) {
        units.put(begin as usize, Block { control, to: address::units(self.ah, self.qp_num, self.qkey) });
    }
}
