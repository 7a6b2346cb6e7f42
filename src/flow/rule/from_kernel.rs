//! Rules in the kernel's layout.

use std::marker::PhantomData;
use std::mem::offset_of;

use nix::errno::Errno;
use uverbs_abi::flow::{ATTR_NORMAL, FlowAttr, FlowSpecActionCount, SPEC_ACTION_COUNT};

use super::{FlowRule, SPECS_SIZE, Seen, heads};
use crate::counters::Counters;
use crate::kernel::error::{Error, Result};

impl FlowRule {
    /// A rule as the kernel is told it: the specs stand back to back. `counters` come with the place of their count action
    /// among the specs; its handle is filled in when the rule is put in force. What contradicts itself is for the kernel to
    /// refuse, but for what it would not survive.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for more specs than the kernel takes; for a count action without
    /// `counters` or in another place than theirs, and for two; and for one in a rule of another type than normal: mlx5's
    /// driver takes it, binds nothing, and a read of the counters follows a null pointer (mlx5_ib_create_flow, fs.c, and
    /// mlx5_ib_read_counters, counters.c, Linux 6.1).
    pub fn from_kernel(attr: FlowAttr, specs: &[u8], counters: Option<(&Counters, usize)>) -> Result<Self> {
        let refused = |hint| Err(Error::refused("flow.create", Errno::EINVAL, hint));
        let mut room = [0; SPECS_SIZE];
        let Some(place) = room.get_mut(..specs.len()) else {
            return refused("more specs than the kernel takes");
        };
        place.copy_from_slice(specs);
        let counts = heads(specs).filter(|(_, head)| head.type_ == SPEC_ACTION_COUNT);
        let mut found = counts.map(|(at, _)| at);
        let (first, second) = (found.next(), found.next());
        if second.is_some() {
            return refused("a rule counts into one counters object");
        }
        if first != counters.map(|(_, place)| place) {
            return refused(match counters {
                Some(_) => "no count action is there",
                None => "a count action needs counters",
            });
        }
        if first.is_some_and(|at| specs.len() - at < size_of::<FlowSpecActionCount>()) {
            return refused("a count action has 16 bytes");
        }
        if first.is_some() && attr.type_ != ATTR_NORMAL {
            return refused("default and sniffer rules cannot count: take a normal rule");
        }
        let attr = FlowAttr { size: specs.len() as u16, ..attr };
        Ok(Self {
            attr,
            specs: room,
            counters: counters.map(|(counters, _)| counters.clone()),
            handle_at: first.unwrap_or(0) + offset_of!(FlowSpecActionCount, handle),
            seen: Seen::default(),
            problem: None,
            kind: PhantomData,
        })
    }
}
