//! Who waits for the same thing: one waker for each waiting call, however many wakers that call was polled with.

use std::task::Waker;

/// The wakers of waiting calls, each with the ticket of its call: mostly one.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    first: Option<(u64, Waker)>,
    others: Vec<(u64, Waker)>,
}

impl Wakers {
    /// Keeps the waker with which this call was polled last. The one before it is returned, to be dropped without a lock: a waker runs
    /// other code.
    #[must_use = "it is to be dropped without a lock"]
    pub(super) fn keep(&mut self, ticket: u64, waker: &Waker) -> Option<Waker> {
        let mut all = self.first.iter_mut().chain(&mut self.others);
        match all.find(|(known, _)| *known == ticket) {
            Some((_, known)) if known.will_wake(waker) => None,
            Some((_, known)) => Some(std::mem::replace(known, waker.clone())),
            None => {
                let new = (ticket, waker.clone());
                match &self.first {
                    None => self.first = Some(new),
                    Some(_) => self.others.push(new),
                }
                None
            }
        }
    }

    /// Removes the waker of a call that has ended, to be dropped without a lock.
    #[must_use = "it is to be dropped without a lock"]
    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waker> {
        let is_it = |(known, _): &mut (u64, Waker)| *known == ticket;
        let found = self.first.take_if(is_it).or_else(|| self.others.extract_if(.., is_it).next());
        found.map(|(_, waker)| waker)
    }

    /// Removes all others.
    pub(super) fn take_others(&mut self, ticket: u64) -> Self {
        let is_other = |(known, _): &mut (u64, Waker)| *known != ticket;
        let first = self.first.take_if(is_other);
        Self { first, others: self.others.extract_if(.., is_other).collect() }
    }

    /// Wakes everyone. Not under a lock.
    pub(super) fn wake(self) {
        if let Some((_, waker)) = self.first {
            waker.wake();
        }
        self.others.into_iter().for_each(|(_, waker)| waker.wake());
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.first.iter().chain(&self.others).count()
    }
}

/// Wakers that count.
#[cfg(test)]
pub(super) mod counted {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    /// How often its waker was called.
    #[derive(Default)]
    pub(in crate::cm) struct Count(AtomicUsize);

    impl Count {
        pub(in crate::cm) fn get(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(in crate::cm) fn counter() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        // A clone, which `will_wake` knows to be equal to another clone; it may not know that of the first one.
        (count.clone(), Waker::from(count).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::counted::{Count, counter};
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_call_has_one_waker_the_last_one() {
        let (mut wakers, mut counts) = (Wakers::default(), Vec::new());
        for round in 0..1000 {
            for ticket in 1..=3 {
                let (count, waker) = counter();
                let old = wakers.keep(ticket, &waker);
                assert_eq!(old.is_some(), round > 0);
                counts.push(count);
            }
        }
        assert_eq!(wakers.len(), 3);
        wakers.wake();
        let woken = |count: &Arc<Count>| count.get() == 1;
        assert!(
            counts[..counts.len() - 3].iter().all(|count| Arc::strong_count(count) == 1 && !woken(count))
        );
        assert!(counts[counts.len() - 3..].iter().all(woken));
    }

    #[test]
    fn a_call_that_ends_leaves_no_waker() {
        let (mut wakers, (count, waker)) = (Wakers::default(), counter());
        for ticket in 1..=4 {
            drop(wakers.keep(ticket, &waker));
        }
        drop(waker);
        for (ticket, left) in [(3, 3), (1, 2), (1, 2), (4, 1)] {
            drop(wakers.remove(ticket));
            assert_eq!((wakers.len(), Arc::strong_count(&count)), (left, left + 1));
        }
        assert_eq!(wakers.take_others(2).len(), 0);
        wakers.take_others(9).wake();
        assert_eq!((wakers.len(), count.get()), (0, 1));
    }
}
