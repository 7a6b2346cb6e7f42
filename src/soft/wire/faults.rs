//! Faults of the wire, on request.

use std::time::Duration;

/// Faults of the packets that a soft device with an address sends. The same seed gives the same decisions, in the order of the packets.
///
/// Shares are in parts per million: 10,000 is one percent.
///
/// ```
/// use uverbs::soft::{Faults, Profile};
///
/// let profile = Profile::default().with_faults(Faults::seeded(7).with_loss(10_000).with_reordering(10_000));
/// assert_eq!(profile.faults.loss, 10_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// The share of packets that are lost.
    pub loss: u32,
    /// The share of packets that arrive twice.
    pub duplicates: u32,
    /// The share of packets that arrive up to a millisecond later than they would.
    pub reordering: u32,
    /// The delay of every packet.
    pub delay: Duration,
    /// The start of the random numbers.
    pub seed: u64,
}

impl Faults {
    /// No faults, with this seed for those that are added.
    pub fn seeded(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Sets the start of the random numbers.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the share of packets that are lost.
    #[must_use]
    pub fn with_loss(self, loss: u32) -> Self {
        Self { loss, ..self }
    }

    /// Sets the share of packets that arrive twice.
    #[must_use]
    pub fn with_duplicates(self, duplicates: u32) -> Self {
        Self { duplicates, ..self }
    }

    /// Sets the share of packets that arrive late.
    #[must_use]
    pub fn with_reordering(self, reordering: u32) -> Self {
        Self { reordering, ..self }
    }

    /// Sets the delay of every packet.
    #[must_use]
    pub fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

/// The longest time by which a packet of [`Faults::reordering`] is late.
const LATE: Duration = Duration::from_millis(1);

/// Decides what happens to each packet.
#[derive(Debug)]
pub(super) struct Fate {
    faults: Faults,
    state: u64,
}

impl Fate {
    pub(super) fn new(faults: Faults) -> Self {
        Self { faults, state: faults.seed }
    }

    /// The delays of the copies of the next packet that arrive: usually one.
    pub(super) fn next(&mut self) -> impl Iterator<Item = Duration> + use<> {
        let Faults { loss, duplicates, reordering, delay, .. } = self.faults;
        let copies = if self.hits(loss) { 0 } else { 1 + usize::from(self.hits(duplicates)) };
        let late = if self.hits(reordering) {
            LATE.mul_f64(self.number() as f64 / u64::MAX as f64)
        } else {
            Duration::ZERO
        };
        std::iter::repeat_n(delay + late, copies)
    }

    /// Whether an event of this share happens. No number is used if it never does.
    fn hits(&mut self, share: u32) -> bool {
        share > 0 && self.number() % 1_000_000 < share.into()
    }

    /// SplitMix64, by Steele, Lea and Flood (2014).
    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept_and_a_seed_repeats_them() {
        let copies = |faults| {
            let mut fate = Fate::new(faults);
            (0..10_000).map(|_| fate.next().count()).collect::<Vec<_>>()
        };
        let faults = Faults::seeded(3).with_loss(100_000).with_duplicates(50_000);
        let all = copies(faults);
        let count = |wanted| all.iter().filter(|copies| **copies == wanted).count();
        assert!((900..1100).contains(&count(0)), "{} lost", count(0));
        assert!((350..550).contains(&count(2)), "{} twice", count(2));
        assert_eq!(all, copies(faults));
        assert_ne!(all, copies(Faults { seed: 4, ..faults }));
        assert!(copies(Faults::seeded(3)).iter().all(|copies| *copies == 1));
    }

    #[test]
    fn late_packets_are_late_by_less_than_a_millisecond() {
        let mut fate = Fate::new(Faults::seeded(1).with_reordering(1_000_000).with_delay(LATE));
        for _ in 0..1000 {
            assert!(fate.next().all(|delay| delay >= LATE && delay <= 2 * LATE));
        }
    }
}
