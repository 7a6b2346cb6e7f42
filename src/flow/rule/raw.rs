//! Rules in the kernel's layout, for bindings.

use std::marker::PhantomData;

use nix::errno::Errno;
use uverbs_abi::flow::FlowAttr;

use super::{FlowRule, SPECS_SIZE, Seen};
use crate::counters::Counters;
use crate::error::{Error, Result};

impl FlowRule {
    /// A rule as the kernel is told it: the specs stand back to back, one of them perhaps a count action with the
    /// [handle](Counters::handle) of `counters`. What contradicts itself is for the kernel to refuse.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for more specs than the kernel takes.
    pub fn from_kernel(attr: FlowAttr, specs: &[u8], counters: Option<&Counters>) -> Result<Self> {
        let mut room = [0; SPECS_SIZE];
        let Some(place) = room.get_mut(..specs.len()) else {
            return Err(Error::refused("flow.create", Errno::EINVAL, "more specs than the kernel takes"));
        };
        place.copy_from_slice(specs);
        let attr = FlowAttr { size: specs.len() as u16, ..attr };
        Ok(Self {
            attr,
            specs: room,
            counters: counters.cloned(),
            seen: Seen::default(),
            problem: None,
            kind: PhantomData,
        })
    }
}
