//! What the card does wrong on request, for programs that look for faults.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// A flow counter does not count a packet.
    Count,
    /// A failed request completes with another status.
    Status,
    /// A message is said to be a byte longer than it is.
    Length,
    /// The event for the completion of a receive is lost.
    Event,
    /// The last byte of a packet's data is changed.
    Data,
}

/// Occurs every so many times, or never.
#[derive(Clone, Copy, Debug, Default)]
struct Every {
    every: u32,
    seen: u32,
}

/// All faults.
#[derive(Debug, Default)]
pub(crate) struct Lies([Every; 5]);

impl Lies {
    /// From now on, a fault occurs every so many times, the first time after as many.
    pub(crate) fn set(&mut self, lie: Lie, every: u32) {
        self.0[lie as usize] = Every { every, seen: 0 };
    }

    /// Whether it occurs this time.
    pub(crate) fn occurs(&mut self, lie: Lie) -> bool {
        let Every { every, seen } = &mut self.0[lie as usize];
        if *every == 0 {
            return false;
        }
        *seen = (*seen + 1) % *every;
        *seen == 0
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_occurs_every_so_many_times() {
        let mut lies = Lies::default();
        assert!(!lies.occurs(Lie::Event));
        lies.set(Lie::Event, 3);
        let occurs: Vec<_> = (0..7).map(|_| lies.occurs(Lie::Event)).collect();
        assert_eq!(occurs, [false, false, true, false, false, true, false]);
        assert!(!lies.occurs(Lie::Data));
        lies.heal();
        assert!((0..7).all(|_| !lies.occurs(Lie::Event)));
    }
}
