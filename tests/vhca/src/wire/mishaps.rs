//! Faults of the wire.

/// A fault of the next packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// They are lost.
    Drop,
    /// They arrive twice.
    Repeat,
    /// Each arrives after the next one.
    Swap,
}

/// The faults of the next packets, and how often each has occurred.
#[derive(Debug, Default)]
pub(crate) struct Mishaps {
    /// The number of packets for each fault, in the order above.
    left: [u32; 3],
    happened: [u64; 3],
    /// The share of packets that are lost at random, in parts per million, and the state of the generator.
    chance: u32,
    seed: u64,
}

impl Mishaps {
    pub(crate) fn set(&mut self, mishap: Mishap, times: u32) {
        self.left[mishap as usize] = times;
    }

    /// From now on, this percentage of packets is lost. The same seed loses the same packets.
    pub(crate) fn lose(&mut self, percent: f64, seed: u64) {
        (self.chance, self.seed) = ((percent * 1e4) as u32, seed);
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        (self.left, self.chance) = ([0; 3], 0);
    }

    /// The number of packets that were lost, that arrived twice, and that arrived late.
    pub(crate) fn happened(&self) -> [(&'static str, u64); 3] {
        let [dropped, repeated, swapped] = self.happened;
        [("dropped", dropped), ("repeated", repeated), ("swapped", swapped)]
    }

    /// The fault of a packet that is sent now. `is_last` says that no other packet follows.
    pub(crate) fn next(&mut self, is_last: bool) -> Option<Mishap> {
        let is_lost = self.is_lost_by_chance();
        let planned = [Mishap::Drop, Mishap::Repeat, Mishap::Swap].into_iter().find(|mishap| {
            // A packet without a following one cannot be swapped.
            self.left[*mishap as usize] > 0 && !(*mishap == Mishap::Swap && is_last)
        });
        let mishap = if is_lost { Some(Mishap::Drop) } else { planned };
        if let Some(mishap) = mishap {
            self.happened[mishap as usize] += 1;
            if !is_lost {
                self.left[mishap as usize] -= 1;
            }
        }
        mishap
    }

    /// SplitMix64, by Steele, Lea and Flood (2014).
    fn is_lost_by_chance(&mut self) -> bool {
        if self.chance == 0 {
            return false;
        }
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % 1_000_000 < self.chance.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_packets_as_were_asked_for() {
        let mut mishaps = Mishaps::default();
        assert_eq!(mishaps.next(true), None);
        mishaps.set(Mishap::Drop, 2);
        mishaps.set(Mishap::Repeat, 1);
        mishaps.set(Mishap::Swap, 1);
        let drops = [mishaps.next(true), mishaps.next(true)];
        assert_eq!(drops, [Some(Mishap::Drop); 2]);
        assert_eq!(mishaps.next(true), Some(Mishap::Repeat));
        // No packet follows.
        assert_eq!(mishaps.next(true), None);
        assert_eq!((mishaps.next(false), mishaps.next(false)), (Some(Mishap::Swap), None));
        assert_eq!(mishaps.happened().map(|(_, times)| times), [2, 1, 1]);
        mishaps.set(Mishap::Drop, 9);
        mishaps.heal();
        assert_eq!(mishaps.next(false), None);
    }

    #[test]
    fn losses_by_chance_are_as_many_as_said_and_the_same_again() {
        let lost = |percent, seed| {
            let mut mishaps = Mishaps::default();
            mishaps.lose(percent, seed);
            (0..10_000).map(|_| mishaps.next(true).is_some()).collect::<Vec<_>>()
        };
        let count = |lost: &[bool]| lost.iter().filter(|lost| **lost).count();
        let some = lost(10.0, 7);
        assert!((900..1100).contains(&count(&some)), "{}", count(&some));
        assert_eq!(some, lost(10.0, 7));
        assert_ne!(some, lost(10.0, 8));
        assert_eq!((count(&lost(0.0, 7)), count(&lost(100.0, 7))), (0, 10_000));
    }
}
