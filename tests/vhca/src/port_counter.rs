//! The counters of the port: packets of its function, by protocol, and frames on its wire.

use crate::counter::Counter;

/// The kind of destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    Unicast,
    Multicast,
    Broadcast,
}

impl Cast {
    /// By the address at the beginning of an Ethernet frame.
    pub(crate) fn of_frame(frame: &[u8]) -> Self {
        match frame.first_chunk::<6>() {
            Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => Self::Broadcast,
            Some([first, ..]) if first & 1 == 1 => Self::Multicast,
            _ => Self::Unicast,
        }
    }
}

/// Packets of one protocol in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Casts {
    pub(crate) unicast: Counter,
    pub(crate) multicast: Counter,
    pub(crate) broadcast: Counter,
}

impl Casts {
    pub(crate) fn count(&mut self, cast: Cast, octets: usize) {
        let counter = match cast {
            Cast::Unicast => &mut self.unicast,
            Cast::Multicast => &mut self.multicast,
            Cast::Broadcast => &mut self.broadcast,
        };
        counter.packets += 1;
        counter.octets += octets as u64;
    }

    /// All of them.
    pub(crate) fn sum(&self) -> Counter {
        let all = [self.unicast, self.multicast, self.broadcast];
        all.into_iter().fold(Counter::default(), |sum, counter| Counter {
            packets: sum.packets + counter.packets,
            octets: sum.octets + counter.octets,
        })
    }
}

/// Packets of one protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) received: Casts,
    pub(crate) sent: Casts,
}

/// Packets that arrived at the function and left it, including those from and to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FunctionCounts {
    /// Packets of queue pairs, on InfiniBand and on Ethernet. Their octets are those of a frame on the wire without its frame check
    /// sequence.
    pub(crate) rdma: Traffic,
    /// Other Ethernet frames, without the frame check sequence.
    pub(crate) ethernet: Traffic,
}

/// Frames on the wire, whatever they contain, and errors of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkCounts {
    pub(crate) frames: Traffic,
    /// Frames for a queue pair with an error, and those with a wrong checksum (ICRC).
    pub(crate) refused: u64,
    pub(crate) wrong_sums: u64,
    /// How often the port went down.
    pub(crate) downed: u64,
}

/// All counters of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortCounts {
    pub(crate) function: FunctionCounts,
    pub(crate) link: LinkCounts,
    /// RoCE packets that arrived with a congestion mark.
    pub(crate) marked: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart_by_their_address() {
        let mut casts = Casts::default();
        for (first, octets) in [(0x52, 60), (0x52, 1500), (0x33, 90), (0xff, 42)] {
            let mut frame = vec![first; 6];
            frame.resize(octets, 0);
            casts.count(Cast::of_frame(&frame), octets);
        }
        casts.count(Cast::of_frame(&[0xff; 5]), 5);
        let counts = [casts.unicast, casts.multicast, casts.broadcast, casts.sum()];
        assert_eq!(
            counts.map(|counter| (counter.packets, counter.octets)),
            [(3, 1565), (1, 90), (1, 42), (5, 1697)]
        );
    }
}
