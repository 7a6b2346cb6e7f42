//! Connected queue pairs with completion counters.

use uverbs::{
    CompletionCounter, CompletionQueue, Context, ProtectionDomain, QpType, QueuePair, Rc, Remote, WaitObject,
};

use super::counting::LONG;
use super::sides::connected;
use super::{Side, connect};

pub fn counter() -> CompletionCounter {
    CompletionCounter::new(WaitObject::Unspecified).unwrap()
}

pub fn make(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePair<Rc> {
    connected(pd, cq)
}

/// Two sides, connected after `bind` was called with them.
pub fn bound(context: &Context, bind: impl FnOnce(&mut Side<Rc>, &mut Side<Rc>)) -> (Side<Rc>, Side<Rc>) {
    let (mut one, mut two) = (Side::new(context, make), Side::new(context, make));
    bind(&mut one, &mut two);
    connect(context, &mut one.qp, &mut two.qp);
    (one, two)
}

impl<T: QpType> Side<T> {
    /// Takes completions until the counter has this value.
    #[track_caller]
    pub fn until(&mut self, counter: &CompletionCounter, threshold: u64) {
        self.cq.progress_until(counter, threshold, LONG).unwrap();
    }
}

/// An address that the peer must not access.
pub fn forbidden(side: &Side<Rc>) -> Remote {
    Remote { address: side.memory.address(), rkey: side.memory.rkey() ^ 0xff_ff00 }
}
