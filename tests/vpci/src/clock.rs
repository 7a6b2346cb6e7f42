//! The clocks of two devices on a wire, which are kept close to each other.
//!
//! A device that gets no processor time for a while is silent, and its peer would take outstanding responses for lost. Each end therefore
//! sends its time, and the last time that it received: a clock does not advance further than a short time beyond the time that was sent
//! back.

use std::time::{Duration, Instant};

/// How far a clock advances beyond the time that was sent back.
const MOMENT: Duration = Duration::from_millis(20);

/// How long the other end may be silent before it counts as gone, so that clocks continue without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Size of a message in bytes: the sender's time and the last time that it received, in nanoseconds.
pub(crate) const LEN: usize = 16;

/// What is known about the other end's clock.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// The other end's time in its last message.
    theirs: u64,
    /// The own time that was sent back, and when.
    back: Option<(Duration, Instant)>,
}

impl Clock {
    /// A message with this time.
    pub(crate) fn message(&self, own: Duration) -> [u8; LEN] {
        let own = own.as_nanos() as u64;
        let mut message = [0; LEN];
        message[..8].copy_from_slice(&own.to_le_bytes());
        message[8..].copy_from_slice(&self.theirs.to_le_bytes());
        message
    }

    /// Handles a message. A malformed one is ignored.
    pub(crate) fn hear(&mut self, message: &[u8], now: Instant) {
        let (Some(theirs), Some(own), LEN) = (message.first_chunk(), message.last_chunk(), message.len())
        else {
            return;
        };
        self.theirs = u64::from_le_bytes(*theirs);
        self.back = Some((Duration::from_nanos(u64::from_le_bytes(*own)), now));
    }

    /// The time to which the own clock may advance.
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
