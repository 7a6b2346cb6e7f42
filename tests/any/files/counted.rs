//! A file with one object of every kind that counting needs, on the soft device and on a card.

use std::ops::Deref;

use uverbs::soft::RawCommand;
use uverbs_abi::types::qp_type;

use super::base;
use crate::commands::*;
use crate::common::Target;

/// One object of every kind. A flow counts into `bound`, and none into `counters`.
pub(crate) struct Counted {
    pub(crate) base: Base,
    pub(crate) counters: u32,
    pub(crate) bound: u32,
    pub(crate) flow: u32,
}

impl Deref for Counted {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl Counted {
    pub(crate) fn new(target: &Target) -> Self {
        let base = base(target, qp_type::RAW_PACKET);
        let (counters, bound) = (new_counters(&base.file), new_counters(&base.file));
        let command = create_flow(base.qp, &[eth(MAC), count(bound)]).with(map(&PACKETS_AND_BYTES));
        let flow = new_flow(&base.file, command);
        Self { base, counters, bound, flow }
    }

    /// Sends a command. A flow that it creates is destroyed again.
    pub(crate) fn attempt(&self, mut command: RawCommand) -> Answer {
        let answer = errno(self.file.invoke(&mut command));
        let makes_flow = command.attrs().iter().any(|attr| attr.id == CORE_OUT && attr.len == 8);
        if answer == Answer(0) && makes_flow {
            let response: [u32; 2] = crate::commands::answer(&command, CORE_OUT);
            done(&self.file, destroy_flow(response[1]));
        }
        answer
    }
}
