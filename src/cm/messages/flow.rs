//! Who may send: a state machine without input or output.
//!
//! Each side posts a receive for every message that it has allowed the other one to send, so no message ever comes without one. It says in
//! each message how many the other side may have sent in all. Where the program only receives, a message of its own says so: when half of
//! the receives were given back, or when the other side has nothing left.
//!
//! [`SPARE`] more receives are for what is no message of the program. At most two of those that only tell credits are on the way at a time:
//! together they tell at most as many as there are receives, and all but one tell at least half of them. One more tells the end, and one
//! answers it.

/// Receives for what is not a message of the program.
pub(super) const SPARE: u32 = 4;

/// The counts of one side. They begin again at zero after 32 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Number of own receives for the other side's messages, and of the other side's for ours.
    depth: u32,
    peer_depth: u32,
    /// What the other side may have sent in all, and what it knows of that.
    granted: u32,
    told: u32,
    received: u32,
    /// What this side may have sent in all.
    allowed: u32,
    sent: u32,
}

impl Flow {
    pub(super) fn new(depth: u16, peer_depth: u16) -> Self {
        let (depth, peer_depth) = (depth.into(), peer_depth.into());
        Self { depth, peer_depth, granted: depth, told: depth, received: 0, allowed: peer_depth, sent: 0 }
    }

    /// Number of own receives for messages of the program.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn may_send(&self) -> bool {
        self.allowed != self.sent
    }

    /// A message of the program is sent.
    pub(super) fn send(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// What to say in a message that is sent now.
    pub(super) fn tell(&mut self) -> u32 {
        self.told = self.granted;
        self.granted
    }

    /// A message has come, of the program or not, and says this. False if the other side cannot have said so, or has sent more than it may.
    pub(super) fn receive(&mut self, is_data: bool, allowed: u32) -> bool {
        let (new, open) = (allowed.wrapping_sub(self.allowed), allowed.wrapping_sub(self.sent));
        if open > self.peer_depth || new > self.peer_depth || is_data && self.received == self.told {
            return false;
        }
        self.allowed = allowed;
        self.received = self.received.wrapping_add(is_data.into());
        true
    }

    /// The receive of a message of the program is posted again.
    pub(super) fn give_back(&mut self) {
        self.granted = self.granted.wrapping_add(1);
    }

    /// Whether the other side must be told without waiting for a message of the program.
    pub(super) fn must_tell(&self) -> bool {
        let untold = self.granted.wrapping_sub(self.told);
        untold >= self.depth.div_ceil(2) || untold > 0 && self.received == self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// One side: its counts, the messages on the way to it, those that its program has, and its receives.
    struct Side {
        flow: Flow,
        arrived: VecDeque<(bool, u32)>,
        held: u32,
        receives: u32,
        sent: u32,
    }

    fn sides(depths: [u16; 2], start: u32) -> [Side; 2] {
        [depths, [depths[1], depths[0]]].map(|[own, peer]| {
            let mut flow = Flow::new(own, peer);
            for count in
                [&mut flow.granted, &mut flow.told, &mut flow.received, &mut flow.allowed, &mut flow.sent]
            {
                *count = count.wrapping_add(start);
            }
            // Two of the spare ones are for the end and its answer.
            let receives = u32::from(own) + SPARE - 2;
            Side { flow, arrived: VecDeque::new(), held: 0, receives, sent: 0 }
        })
    }

    fn put(sides: &mut [Side; 2], from: usize, is_data: bool) {
        let granted = sides[from].flow.tell();
        let to = &mut sides[1 - from];
        to.receives = to.receives.checked_sub(1).expect("a message without a receive");
        to.arrived.push_back((is_data, granted));
    }

    fn send(sides: &mut [Side; 2], from: usize) -> bool {
        let may = sides[from].flow.may_send();
        if may {
            sides[from].flow.send();
            sides[from].sent += 1;
            put(sides, from, true);
        }
        may
    }

    fn tell(sides: &mut [Side; 2], from: usize) {
        if sides[from].flow.must_tell() {
            put(sides, from, false);
        }
    }

    fn take(sides: &mut [Side; 2], at: usize) -> bool {
        let Some((is_data, granted)) = sides[at].arrived.pop_front() else { return false };
        assert!(sides[at].flow.receive(is_data, granted));
        if is_data {
            sides[at].held += 1;
        } else {
            sides[at].receives += 1;
        }
        tell(sides, at);
        true
    }

    fn give_back(sides: &mut [Side; 2], at: usize) -> bool {
        let side = &mut sides[at];
        let is_held = side.held > 0;
        if is_held {
            side.held -= 1;
            side.receives += 1;
            side.flow.give_back();
            tell(sides, at);
        }
        is_held
    }

    proptest! {
        #[test]
        fn there_is_a_receive_for_every_message_and_nobody_waits_for_ever(
            depths in prop::array::uniform2(1_u16..6),
            start in prop::sample::select(vec![0, u32::MAX - 3]),
            steps in prop::collection::vec((0..2_usize, 0..3_u8), 0..200),
        ) {
            let mut sides = sides(depths, start);
            for (at, what) in steps {
                let _ = match what {
                    0 => send(&mut sides, at),
                    1 => take(&mut sides, at),
                    _ => give_back(&mut sides, at),
                };
            }
            // Programs that keep all messages but as many as there are receives can still be sent to.
            for at in 0..2 {
                while take(&mut sides, 0) || take(&mut sides, 1) {}
                while sides[at].held >= sides[at].flow.depth {
                    give_back(&mut sides, at);
                }
                while take(&mut sides, 0) || take(&mut sides, 1) {}
                prop_assert!(send(&mut sides, 1 - at));
            }
        }
    }

    #[test]
    fn a_peer_that_sends_or_says_too_much_is_found() {
        let new = || Flow::new(2, 3);
        let mut flow = new();
        assert!(flow.receive(true, 3) && flow.receive(true, 3));
        assert!(!flow.receive(true, 3), "a third message");
        assert!(!new().receive(false, 4), "more than it has receives for");
        assert!(!new().receive(false, 2), "less than before");
        assert!(!new().receive(false, u32::MAX));
    }
}
