//! Who gets an event, and who reads the file: a state machine without input or output, behind one lock.
//!
//! Every identifier has a number of ours (`uid`), which is never used again. The kernel's own numbers are reused at once, so an event that
//! was read before an identifier was destroyed can only be recognised by ours.
//!
//! Whoever waits reads the file, one thread or one task at a time, and hands others their events. A reader that leaves names its successor;
//! one that waits for its turn and leaves without having had it passes the turn on.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use uverbs_abi::cm::{CONNECT_REQUEST, EventResp};

use super::steps::{Ahead, Behind, Step};
use super::wakers::Wakers;

/// The last number of any manager: an identifier keeps its number when it moves to another one.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Who waits: a thread sleeps in `poll`, where only the file wakes it. Tasks are woken by the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Thread,
    Task,
}

/// Events in the order in which they were read: mostly one, which needs no list.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// `None` if there are none.
    first: Option<Box<EventResp>>,
    others: VecDeque<Box<EventResp>>,
}

impl Events {
    fn push(&mut self, event: Box<EventResp>) {
        match self.first {
            None => self.first = Some(event),
            Some(_) => self.others.push_back(event),
        }
    }

    fn pop(&mut self) -> Option<Box<EventResp>> {
        let event = self.first.take()?;
        self.first = self.others.pop_front();
        Some(event)
    }

    fn into_iter(self) -> impl Iterator<Item = Box<EventResp>> {
        self.first.into_iter().chain(self.others)
    }
}

/// A hash of numbers that are counted here, so that nobody can choose them to be alike.
#[derive(Default)]
struct OfNumber(u64);

impl Hasher for OfNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: the upper bits, which a table uses too, depend on all bits of the number.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The events of one identifier, and who waits for them.
#[derive(Debug, Default)]
struct Place {
    events: Events,
    wakers: Wakers,
    ahead: Option<Box<Ahead>>,
}

/// Those of one kind that want to read.
#[derive(Debug, Default)]
struct Turn {
    reader: Option<u64>,
    /// In the order of their arrival, with the reader's own waker first if it waits.
    waiting: VecDeque<(u64, Waker)>,
    reader_waker: Option<Waker>,
}

/// What to do after the lock was released.
#[derive(Debug, Default)]
pub(super) struct Given {
    wakers: Wakers,
    /// A new connection for a listener that is gone: to be destroyed.
    orphan: Option<u32>,
}

impl Given {
    /// Wakes everyone. Not under the lock, because a waker runs other code.
    pub(super) fn wake(self) -> Option<u32> {
        self.wakers.wake();
        self.orphan
    }
}

#[derive(Debug, Default)]
pub(super) struct Dispatch {
    places: HashMap<u64, Place, BuildHasherDefault<OfNumber>>,
    behind: Option<Behind>,
    given: u64,
    threads: Turn,
    tasks: Turn,
}

impl Dispatch {
    /// A number that was never used. It is not zero, with which the kernel reports nothing.
    pub(super) fn number() -> u64 {
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A number, with a place for its events.
    pub(super) fn enter(&mut self) -> u64 {
        let uid = Self::number();
        self.places.insert(uid, Place::default());
        uid
    }

    /// Makes the place of an identifier that comes from another manager.
    pub(super) fn admit(&mut self, uid: u64) {
        self.places.entry(uid).or_default();
    }

    /// Puts the events that its earlier manager had read before those that were read here.
    pub(super) fn precede(&mut self, uid: u64, events: Events) {
        if let Some(place) = self.places.get_mut(&uid) {
            let later = std::mem::replace(&mut place.events, events);
            later.into_iter().for_each(|event| place.events.push(event));
        }
    }

    /// Removes the place of an identifier that goes to another manager, and returns its events. Nobody waits for it.
    pub(super) fn dismiss(&mut self, uid: u64) -> Events {
        // Its number may soon be that of another identifier.
        self.behind.take_if(|behind| behind.uid == uid);
        self.places.remove(&uid).map(|place| place.events).unwrap_or_default()
    }

    /// Whether there is an identifier with this number.
    pub(super) fn has(&self, uid: u64) -> bool {
        self.places.contains_key(&uid)
    }

    /// Whether anybody waits for the file.
    pub(super) fn is_read(&self) -> bool {
        self.threads.reader.is_some() || self.tasks.reader.is_some()
    }

    /// Removes a place. Returns the new connections whose requests nobody has taken.
    pub(super) fn leave(&mut self, uid: u64) -> Vec<u32> {
        self.dismiss(uid)
            .into_iter()
            .filter(|event| event.event == CONNECT_REQUEST)
            .map(|event| event.id)
            .collect()
    }

    /// Puts an event into its place.
    pub(super) fn give(&mut self, event: Box<EventResp>) -> Given {
        self.given += 1;
        match self.places.get_mut(&event.uid) {
            Some(place) => {
                place.events.push(event);
                Given { wakers: std::mem::take(&mut place.wakers), orphan: None }
            }
            None => {
                let orphan = (event.event == CONNECT_REQUEST).then_some(event.id);
                Given { wakers: Wakers::default(), orphan }
            }
        }
    }

    /// How many events were put into their places.
    pub(super) fn given(&self) -> u64 {
        self.given
    }

    /// The next event of an identifier. If there is none, the call waits for it, and its earlier waker is returned, to be dropped without
    /// the lock.
    pub(super) fn take(
        &mut self,
        uid: u64,
        ticket: u64,
        waker: &Waker,
    ) -> Result<Box<EventResp>, Option<Waker>> {
        let place = self.places.get_mut(&uid).ok_or(None)?;
        place.events.pop().ok_or_else(|| place.wakers.keep(ticket, waker))
    }

    /// A call does not wait for an event any more. Its waker is returned, to be dropped without the lock.
    pub(super) fn waits_no_more(&mut self, uid: u64, ticket: u64) -> Option<Waker> {
        self.places.get_mut(&uid)?.wakers.remove(ticket)
    }

    /// Has the next reader make a step too. One at a time: a step that was not made by a reader is made afterwards.
    pub(super) fn put_behind(&mut self, behind: Behind) {
        self.behind = Some(behind);
    }

    /// The step that this reader makes.
    pub(super) fn take_behind(&mut self) -> Option<Behind> {
        self.behind.take()
    }

    /// Keeps what was made of a step.
    pub(super) fn keep(&mut self, uid: u64, ahead: Ahead) {
        if let Some(place) = self.places.get_mut(&uid) {
            place.ahead = Some(Box::new(ahead));
        }
    }

    /// What was made of a step, whose turn it is now.
    pub(super) fn ahead(&mut self, uid: u64, step: Step) -> Option<Box<Ahead>> {
        self.behind.take_if(|behind| behind.uid == uid);
        self.places.get_mut(&uid)?.ahead.take_if(|ahead| ahead.step == step)
    }

    fn turn(&mut self, kind: Kind) -> &mut Turn {
        match kind {
            Kind::Thread => &mut self.threads,
            Kind::Task => &mut self.tasks,
        }
    }

    /// Whether this waiter reads the file now. If not, its waker is called when its turn comes. Tasks do not read while a thread does: an
    /// event that they took would not wake the thread.
    pub(super) fn wants_to_read(&mut self, kind: Kind, ticket: u64, waker: &Waker) -> bool {
        let turn = self.turn(kind);
        let is_reader = *turn.reader.get_or_insert(ticket) == ticket;
        if is_reader {
            turn.reader_waker = Some(waker.clone());
        } else {
            match turn.waiting.iter_mut().find(|(known, _)| *known == ticket) {
                Some((_, known)) => known.clone_from(waker),
                None => turn.waiting.push_back((ticket, waker.clone())),
            }
        }
        is_reader && self.may_read(kind)
    }

    /// Whether one of this kind may read the file now.
    pub(super) fn may_read(&self, kind: Kind) -> bool {
        kind == Kind::Thread || self.threads.reader.is_none()
    }

    /// A waiter ends. Returns who reads instead.
    pub(super) fn stops(&mut self, kind: Kind, ticket: u64) -> Option<Waker> {
        let turn = self.turn(kind);
        if !turn.waiting.is_empty() {
            turn.waiting.retain(|(known, _)| *known != ticket);
        }
        if turn.reader != Some(ticket) {
            return None;
        }
        let next = turn.waiting.pop_front();
        turn.reader = next.as_ref().map(|(ticket, _)| *ticket);
        turn.reader_waker = None;
        match next {
            Some((_, waker)) => Some(waker),
            // The task whose turn it is has not read while a thread did.
            None if kind == Kind::Thread => self.tasks.reader_waker.clone(),
            None => None,
        }
    }

    /// Whether nobody waits, and there is no identifier.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let idle = |turn: &Turn| turn.reader.is_none() && turn.waiting.is_empty();
        self.places.is_empty() && idle(&self.threads) && idle(&self.tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cm::wakers::counted::counter;

    fn event(uid: u64, event: u32, id: u32) -> Box<EventResp> {
        Box::new(EventResp { uid, event, id, ..EventResp::default() })
    }

    #[test]
    fn events_go_to_their_own_number_in_order() {
        let mut dispatch = Dispatch::default();
        let (one, two) = (dispatch.enter(), dispatch.enter());
        let (count, waker) = counter();
        for _ in 0..2 {
            assert!(matches!(dispatch.take(one, 1, &waker), Err(None)), "it has this waker");
        }
        for kind in [0, 2] {
            assert_eq!(dispatch.give(event(one, kind, 5)).wake(), None);
        }
        assert_eq!(dispatch.give(event(two, 9, 5)).wake(), None);
        assert_eq!(count.get(), 1, "a waker is called once");
        let mut next = |uid| dispatch.take(uid, 1, &waker).ok().map(|event| event.event);
        assert_eq!([next(one), next(one), next(one), next(two)], [Some(0), Some(2), None, Some(9)]);
    }

    #[test]
    fn an_event_of_a_number_that_has_left_is_dropped_though_the_kernel_reuses_its_own() {
        let mut dispatch = Dispatch::default();
        let old = dispatch.enter();
        assert!(dispatch.leave(old).is_empty());
        let new = dispatch.enter();
        assert_ne!(old, new);
        assert_eq!(dispatch.give(event(old, 10, 5)).wake(), None);
        assert!(dispatch.take(new, 1, Waker::noop()).is_err());
    }

    #[test]
    fn requests_for_a_listener_that_is_gone_are_destroyed() {
        let mut dispatch = Dispatch::default();
        let listener = dispatch.enter();
        assert_eq!(dispatch.give(event(listener, CONNECT_REQUEST, 7)).wake(), None);
        assert_eq!(dispatch.leave(listener), [7]);
        assert_eq!(dispatch.give(event(listener, CONNECT_REQUEST, 8)).wake(), Some(8));
        assert!(dispatch.is_empty());
    }

    #[test]
    fn an_identifier_moves_with_its_number_and_its_events_in_their_order() {
        let (mut old, mut new) = (Dispatch::default(), Dispatch::default());
        let (uid, other) = (old.enter(), new.enter());
        assert_ne!(uid, other, "numbers are those of the process");
        assert_eq!(old.give(event(uid, 1, 5)).wake(), None);
        new.admit(uid);
        // One is read at the new manager before those of the old one have come.
        assert_eq!(new.give(event(uid, 2, 5)).wake(), None);
        new.precede(uid, old.dismiss(uid));
        assert!(old.is_empty() && new.has(uid) && !old.has(uid));
        let mut next = || new.take(uid, 1, Waker::noop()).map_or(0, |event| event.event);
        assert_eq!([next(), next(), next()], [1, 2, 0]);
    }

    #[test]
    fn a_reader_names_its_successor_and_a_turn_is_passed_on() {
        let mut dispatch = Dispatch::default();
        let (counts, wakers): (Vec<_>, Vec<_>) = (0..3).map(|_| counter()).unzip();
        let read =
            |dispatch: &mut Dispatch, at: usize| dispatch.wants_to_read(Kind::Thread, at as u64, &wakers[at]);
        assert!(read(&mut dispatch, 0));
        assert!(!read(&mut dispatch, 1) && !read(&mut dispatch, 2));
        let wake = |waker: Option<Waker>| waker.map(Waker::wake).is_some();
        assert!(wake(dispatch.stops(Kind::Thread, 0)));
        // The second one was woken, but ends without having read.
        assert_eq!(counts[1].get(), 1);
        assert!(wake(dispatch.stops(Kind::Thread, 1)));
        assert_eq!(counts[2].get(), 1);
        assert!(read(&mut dispatch, 2));
        assert!(!wake(dispatch.stops(Kind::Thread, 2)));
        assert!(dispatch.is_empty());
    }

    #[test]
    fn a_task_waits_while_a_thread_reads_and_is_woken_when_it_leaves() {
        let mut dispatch = Dispatch::default();
        let (count, waker) = counter();
        assert!(dispatch.wants_to_read(Kind::Task, 1, &waker));
        assert!(dispatch.wants_to_read(Kind::Thread, 2, Waker::noop()));
        assert!(!dispatch.wants_to_read(Kind::Task, 1, &waker));
        dispatch.stops(Kind::Thread, 2).expect("the task").wake();
        assert_eq!(count.get(), 1);
        assert!(dispatch.wants_to_read(Kind::Task, 1, &waker));
        assert!(dispatch.stops(Kind::Task, 1).is_none());
        assert!(dispatch.is_empty());
    }
}
