//! Rules in the kernel's layout.

use std::marker::PhantomData;
use std::mem::offset_of;

use nix::errno::Errno;
use uverbs_abi::flow::{ATTR_NORMAL, FlowAttr, FlowSpecActionCount, SPEC_ACTION_COUNT};

use super::{FlowRule, SPECS_SIZE, Seen, heads};
use crate::counters::Counters;
use crate::kernel::error::{Error, Result};

const OP: &str = "flow.create";

impl FlowRule {
    /// A rule in the kernel's layout. `specs` contains the specs one directly after the other. `counters` are the counters and the
    /// offset in bytes of their count action in `specs`; the handle in it is filled in when the rule is put in force.
    /// Contradictions are left to the kernel to refuse, except for those that would crash it.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for more specs than the kernel accepts; for a count action without
    /// `counters`, at another offset than theirs, or truncated, and for two count actions; and for a count action in a rule of
    /// another type than normal, which mlx5's driver does not check (mlx5_ib_create_flow, fs.c, Linux 6.1).
    pub fn from_kernel(attr: FlowAttr, specs: &[u8], counters: Option<(&Counters, usize)>) -> Result<Self> {
        let refused = |hint| Err(Error::refused(OP, Errno::EINVAL, hint));
        let mut room = [0; SPECS_SIZE];
        let Some(place) = room.get_mut(..specs.len()) else {
            return Err(Error::beyond(OP, "bytes of specs", specs.len(), SPECS_SIZE));
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
        if let Some(rest) = first.map(|at| specs.len() - at)
            && rest < size_of::<FlowSpecActionCount>()
        {
            return Err(Error::outside(
                OP,
                "bytes of a count action",
                rest,
                size_of::<FlowSpecActionCount>(),
            ));
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
