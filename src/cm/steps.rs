//! Commands that one system call sends in their order.
//!
//! What follows an event is known before it has come: after the address the route is asked for, and after the answer of the other side the
//! queue pair's attributes. Such a [`Step`] is sent behind the command that reads the event. If that event is another one, the kernel refuses
//! the step, which changes nothing, and it is sent again when it is due.

use std::future::Future;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::cm::{CreateId, CreateIdResp, EventResp, GetEvent, InitQpAttr, ResolveRoute};
use uverbs_abi::types::qp_state;
use uverbs_abi::write::QpAttr;
use zerocopy::FromZeros;

use super::dispatch::{Dispatch, Kind};
use super::id::{Id, of_queue_pair};
use super::shared::{Shared, refusal};
use crate::kernel::error::Result;
use crate::kernel::manager::{ManagerCommand, OfIdentifier, Request};

/// Time for a route in milliseconds. On RoCE and iWARP it is there at once; on InfiniBand the subnet manager is asked.
const ROUTE: u32 = 2000;

/// What an identifier needs after its next event: two commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// To ask for the route, and the queue pair's attributes for the state INIT.
    Route,
    /// The attributes for the states RTR and RTS.
    Ready,
}

/// A step that the reader of the next event makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    pub(super) uid: u64,
    /// The kernel's number.
    id: u32,
    step: Step,
}

/// What was made of a step before its turn.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) step: Step,
    /// How many of its commands.
    count: usize,
    answers: [QpAttr; 2],
}

fn attributes_for(id: u32, state: u8) -> InitQpAttr {
    InitQpAttr { id, qp_state: state.into(), ..InitQpAttr::default() }
}

impl Step {
    fn commands<'a>(
        self,
        id: u32,
        [first, second]: &'a mut [QpAttr; 2],
        nothing: &'a mut (),
    ) -> [ManagerCommand<'a>; 2] {
        match self {
            Self::Route => [
                ManagerCommand::new(&ResolveRoute { id, timeout_ms: ROUTE }, nothing),
                ManagerCommand::new(&attributes_for(id, qp_state::INIT), second),
            ],
            Self::Ready => [
                ManagerCommand::new(&attributes_for(id, qp_state::RTR), first),
                ManagerCommand::new(&attributes_for(id, qp_state::RTS), second),
            ],
        }
    }
}

impl Shared {
    /// Sends commands up to the first that is refused. Returns how many were carried out, which the first one was.
    fn request_in_order(&self, op: &'static str, commands: &mut [ManagerCommand<'_>]) -> Result<usize> {
        self.check_origin(op)?;
        self.file().send_in_order(commands).map_err(|errno| refusal(op, errno))
    }

    /// Reads an event, with the step that waits for it.
    pub(super) fn read_with_step(&self, dispatch: &mut Dispatch, event: &mut EventResp) -> Result<(), Errno> {
        let mut get = ManagerCommand::new(&GetEvent::default(), event);
        let Some(behind) = dispatch.take_behind() else { return self.file().send(&mut get) };
        let Behind { uid, id, step } = behind;
        let (mut answers, mut nothing) = ([QpAttr::new_zeroed(), QpAttr::new_zeroed()], ());
        let [first, second] = step.commands(id, &mut answers, &mut nothing);
        match self.file().send_in_order(&mut [get, first, second]) {
            Ok(0 | 1) => {}
            Ok(count) => dispatch.keep(uid, Ahead { step, count: count - 1, answers }),
            Err(errno) => {
                // There was no event.
                dispatch.put_behind(behind);
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Sends a command, and reads an event that may be there already. Not while a thread sleeps until it can read one.
    pub(super) fn request_and_read<R: Request<Answer = ()>>(
        &self,
        op: &'static str,
        request: &R,
    ) -> Result<()> {
        self.check_origin(op)?;
        let (mut event, mut nothing) = (EventResp::new_zeroed(), ());
        let mut dispatch = self.dispatch();
        if !dispatch.may_read(Kind::Task) {
            drop(dispatch);
            return self.request(op, request);
        }
        let get = ManagerCommand::new(&GetEvent::default(), &mut event);
        let count = self.file().send_in_order(&mut [ManagerCommand::new(request, &mut nothing), get]);
        if count.map_err(|errno| refusal(op, errno))? > 1 {
            let given = dispatch.give(Box::new(event));
            drop(dispatch);
            self.wake(given);
        }
        Ok(())
    }
}

impl Id {
    /// Creates an identifier, and sends its first command. Returns whether the kernel has carried that out.
    pub(super) fn create_for<R: OfIdentifier<Answer = ()>>(
        shared: &Arc<Shared>,
        op: &'static str,
        (ps, qp_type): (u16, u8),
        first: &R,
    ) -> Result<(Self, bool)> {
        shared.check_origin(op)?;
        let uid = shared.dispatch().enter();
        let (mut answer, mut nothing) = (CreateIdResp::default(), ());
        let create = CreateId { uid, ps, qp_type, ..CreateId::default() };
        let create = ManagerCommand::new(&create, &mut answer).passing_to::<R>();
        match shared.request_in_order(op, &mut [create, ManagerCommand::new(first, &mut nothing)]) {
            Ok(count) => Ok((Self::with(shared, uid, answer.id), count > 1)),
            Err(error) => {
                shared.dispatch().leave(uid);
                Err(error)
            }
        }
    }

    /// The next event. Whoever reads it makes a step too, if it can be made.
    pub(super) fn event_before(
        &self,
        op: &'static str,
        step: Step,
    ) -> impl Future<Output = Result<Box<EventResp>>> + '_ {
        self.call().event(op, Some(Behind { uid: self.uid, id: self.id, step }))
    }

    /// Asks for the route. Returns the attributes of the queue pair for the state INIT.
    pub(super) fn ask_for_route(&self, op: &'static str) -> Result<QpAttr> {
        let (count, answers) = self.make(op, Step::Route)?;
        let [attributes] = self.complete(op, [qp_state::INIT], count - 1, [answers[1]])?;
        Ok(attributes)
    }

    /// The attributes of the queue pair for the states RTR and RTS, once the other side has answered.
    pub(super) fn last_attributes(&self, op: &'static str) -> Result<[QpAttr; 2]> {
        let (count, answers) = self.make(op, Step::Ready)?;
        self.complete(op, [qp_state::RTR, qp_state::RTS], count, answers)
    }

    /// Makes a step, unless a reader has made it. Returns how many of its commands were carried out, at least one.
    fn make(&self, op: &'static str, step: Step) -> Result<(usize, [QpAttr; 2])> {
        if let Some(ahead) = self.shared.dispatch().ahead(self.uid, step) {
            return Ok((ahead.count, ahead.answers));
        }
        let (mut answers, mut nothing) = ([QpAttr::new_zeroed(), QpAttr::new_zeroed()], ());
        let count =
            self.shared.request_in_order(op, &mut step.commands(self.id, &mut answers, &mut nothing))?;
        Ok((count, answers))
    }

    /// The attributes of the queue pair for several states.
    pub(super) fn attributes_of<const N: usize>(
        &self,
        op: &'static str,
        states: [u8; N],
    ) -> Result<[QpAttr; N]> {
        let (mut answers, mut at) = ([QpAttr::new_zeroed(); N], 0);
        let mut commands = answers.each_mut().map(|answer| {
            let request = attributes_for(self.id, states[at]);
            at += 1;
            ManagerCommand::new(&request, answer)
        });
        let count = self.shared.request_in_order(op, &mut commands)?;
        self.complete(op, states, count, answers)
    }

    /// Reads the attributes that were not read, of which there are at most `count`. What was read has a mask.
    fn complete<const N: usize>(
        &self,
        op: &'static str,
        states: [u8; N],
        count: usize,
        mut answers: [QpAttr; N],
    ) -> Result<[QpAttr; N]> {
        for (at, (answer, state)) in answers.iter_mut().zip(states).enumerate() {
            if at >= count || answer.qp_attr_mask == 0 {
                *answer = self.attributes(op, state)?;
            }
            *answer = of_queue_pair(*answer);
        }
        Ok(answers)
    }
}
