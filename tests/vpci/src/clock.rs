//! The clocks of two devices on a wire, neither of which leaves the other behind.
//!
//! A device that has no processor for a while is silent, and its peer would take what was not answered for lost. So each end tells the
//! other its time, and what it was told last: a clock goes no further than a moment beyond the time that came back.

use std::time::{Duration, Instant};

/// How far a clock goes beyond the time that has come back.
const MOMENT: Duration = Duration::from_millis(20);

/// How long the other end may be silent before it counts as gone, and clocks go on without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of a message: the sender's time and the one that it was told last, in nanoseconds.
pub(crate) const LEN: usize = 16;

/// What is known of the other end's clock.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// The other end's time, as it was told last.
    theirs: u64,
    /// The own time that has come back, and when.
    back: Option<(Duration, Instant)>,
}

impl Clock {
    /// A message that tells this time.
    pub(crate) fn message(&self, own: Duration) -> [u8; LEN] {
        let own = own.as_nanos() as u64;
        let mut message = [0; LEN];
        message[..8].copy_from_slice(&own.to_le_bytes());
        message[8..].copy_from_slice(&self.theirs.to_le_bytes());
        message
    }

    /// A message has come; what is none is ignored.
    pub(crate) fn hear(&mut self, message: &[u8], now: Instant) {
        let (Some(theirs), Some(own), LEN) = (message.first_chunk(), message.last_chunk(), message.len())
        else {
            return;
        };
        self.theirs = u64::from_le_bytes(*theirs);
        self.back = Some((Duration::from_nanos(u64::from_le_bytes(*own)), now));
    }

    /// How far the own clock may go.
    pub(crate) fn until(&self, now: Instant) -> Duration {
        let back = self.back.filter(|(_, at)| now.saturating_duration_since(*at) < PATIENCE);
        back.map_or(Duration::MAX, |(time, _)| time + MOMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_clock_goes_a_moment_beyond_what_came_back() {
        let now = Instant::now();
        let (mut here, mut there) = (Clock::default(), Clock::default());
        assert_eq!(here.until(now), Duration::MAX, "nobody is there");
        there.hear(&here.message(3 * SECOND), now);
        assert_eq!(there.until(now), MOMENT, "nothing has come back to it");
        here.hear(&there.message(7 * SECOND), now);
        assert_eq!(here.until(now), 3 * SECOND + MOMENT);
        assert_eq!(here.until(now + SECOND), 3 * SECOND + MOMENT, "the other end is silent");
        there.hear(&here.message(4 * SECOND), now);
        assert_eq!(there.until(now), 7 * SECOND + MOMENT);
    }

    #[test]
    fn one_that_stays_silent_counts_as_gone() {
        let now = Instant::now();
        let (mut here, there) = (Clock::default(), Clock::default());
        here.hear(&there.message(SECOND), now);
        assert_eq!(here.until(now + PATIENCE - SECOND), MOMENT);
        assert_eq!(here.until(now + PATIENCE), Duration::MAX);
    }

    #[test]
    fn what_is_no_message_changes_nothing() {
        let now = Instant::now();
        let mut here = Clock::default();
        for bytes in [&[][..], &[1; LEN - 1], &[1; LEN + 1]] {
            here.hear(bytes, now);
        }
        assert_eq!(here.until(now), Duration::MAX);
    }
}
