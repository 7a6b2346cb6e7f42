//! Rules in the kernel's layout, for bindings.

use std::marker::PhantomData;
use std::mem::offset_of;

use nix::errno::Errno;
use uverbs_abi::flow::{FlowAttr, FlowSpecActionCount};

use super::{FlowRule, SPECS_SIZE, Seen};
use crate::counters::Counters;
use crate::error::{Error, Result};

impl FlowRule {
    /// A rule as the kernel is told it: the specs stand back to back. `counters` come with the place of their count action
    /// among the specs; its handle is filled in when the rule is put in force. What contradicts itself is for the kernel to
    /// refuse.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for more specs than the kernel takes, and a count action outside of
    /// them.
    pub fn from_kernel(attr: FlowAttr, specs: &[u8], counters: Option<(&Counters, usize)>) -> Result<Self> {
        let mut room = [0; SPECS_SIZE];
        let Some(place) = room.get_mut(..specs.len()) else {
            return Err(Error::refused("flow.create", Errno::EINVAL, "more specs than the kernel takes"));
        };
        place.copy_from_slice(specs);
        let count_at = counters.map_or(0, |(_, place)| place);
        if counters.is_some() && specs.len().saturating_sub(count_at) < size_of::<FlowSpecActionCount>() {
            return Err(Error::refused("flow.create", Errno::EINVAL, "no count action is there"));
        }
        let attr = FlowAttr { size: specs.len() as u16, ..attr };
        Ok(Self {
            attr,
            specs: room,
            counters: counters.map(|(counters, _)| counters.clone()),
            handle_at: count_at + offset_of!(FlowSpecActionCount, handle),
            seen: Seen::default(),
            problem: None,
            kind: PhantomData,
        })
    }
}
