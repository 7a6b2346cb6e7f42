//! Generated traffic: frames that differ in fields that rules can match, and in nothing else.

use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::time::Duration;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const HEADERS: usize = ETHERNET + IPV4 + UDP;

/// The field in which the flows of a [`Traffic`] differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vary {
    /// The UDP source port counts up and wraps after 65535: at most 65536 flows.
    #[default]
    SourcePort,
    /// The IPv4 destination address counts up, and wraps.
    DestinationAddress,
}

/// Why the settings of a [`Traffic`] are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// The size is outside 60..=9216.
    #[error("frame size {0} is outside 60..=9216 bytes (without FCS)")]
    Size(usize),
    /// Zero flows, or more flows than source ports.
    #[error("{0} flows: there must be at least one, and at most 65536 by source port")]
    Flows(u32),
}

/// A generator of Ethernet frames with IPv4 and UDP, which belong to a number of flows in turn.
///
/// Frames are built in one buffer that is rewritten in place, so generating one costs a few stores. The same settings always give
/// the same frames. The payload is the number of the frame (64 bits, network byte order), then zeros. The IPv4 checksum is
/// correct; the UDP checksum is zero, which means "none".
///
/// A generator has no clock: [`due`](Self::due) returns how many frames are due at the set rate, and the caller waits.
///
/// ```
/// use uverbs::soft::Traffic;
///
/// let mut traffic = Traffic::new().size(128)?.flows(2)?.dst_mac([2, 0, 0, 0, 0, 7]);
/// let first = traffic.next_frame().to_vec();
/// assert_eq!((first.len(), first[5]), (128, 7));
/// assert_ne!(first[34..36], traffic.next_frame()[34..36]); // another source port
/// assert_eq!(first[34..36], traffic.next_frame()[34..36]); // the first flow again
/// # Ok::<(), uverbs::soft::TrafficError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Traffic {
    frame: Vec<u8>,
    vary: Vary,
    flows: u32,
    source_port: u16,
    destination: Ipv4Addr,
    rate: Option<NonZeroU64>,
    sent: u64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self::new()
    }
}

impl Traffic {
    /// One flow of 60-byte frames, 02:00:00:00:00:01 to 02:00:00:00:00:02, 198.18.0.1 port 49152 to 198.19.0.1
    /// port 9 (addresses of RFC 2544 for measurements, the discard port), without a rate.
    pub fn new() -> Self {
        let mut frame = vec![0; 60];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        frame[12..14].copy_from_slice(&[0x08, 0]);
        frame[14] = 0x45;
        frame[22] = 64;
        frame[23] = 17;
        let this = Self {
            frame,
            vary: Vary::default(),
            flows: 1,
            source_port: 49152,
            destination: Ipv4Addr::new(198, 19, 0, 1),
            rate: None,
            sent: 0,
        };
        this.src_ip(Ipv4Addr::new(198, 18, 0, 1)).dst_port(9)
    }

    /// Sets the frame size in bytes, without FCS.
    ///
    /// # Errors
    ///
    /// [`TrafficError::Size`] outside 60..=9216.
    pub fn size(mut self, bytes: usize) -> Result<Self, TrafficError> {
        if !(60..=9216).contains(&bytes) {
            return Err(TrafficError::Size(bytes));
        }
        self.frame.resize(bytes, 0);
        Ok(self)
    }

    /// Sets the number of flows, to which the frames belong in turn.
    ///
    /// # Errors
    ///
    /// [`TrafficError::Flows`] for 0, and for more than 65536 while they differ in the source port: call [`vary`](Self::vary)
    /// first.
    pub fn flows(mut self, flows: u32) -> Result<Self, TrafficError> {
        if flows == 0 || (flows > 1 << 16 && self.vary == Vary::SourcePort) {
            return Err(TrafficError::Flows(flows));
        }
        self.flows = flows;
        Ok(self)
    }

    /// Sets the field in which flows differ. [`Vary::SourcePort`] limits the number of flows to 65536.
    pub fn vary(mut self, vary: Vary) -> Self {
        self.vary = vary;
        if vary == Vary::SourcePort {
            self.flows = self.flows.min(1 << 16);
        }
        self
    }

    /// Sets the rate in frames per second; none means as fast as possible.
    pub fn rate(mut self, per_second: Option<NonZeroU64>) -> Self {
        self.rate = per_second;
        self
    }

    /// Sets the destination address of the frame.
    pub fn dst_mac(mut self, mac: [u8; 6]) -> Self {
        self.frame[..6].copy_from_slice(&mac);
        self
    }

    /// Sets the source address of the frame.
    pub fn src_mac(mut self, mac: [u8; 6]) -> Self {
        self.frame[6..12].copy_from_slice(&mac);
        self
    }

    /// Sets the IPv4 destination; that of the first flow, if flows differ in it.
    pub fn dst_ip(mut self, address: Ipv4Addr) -> Self {
        self.destination = address;
        self
    }

    /// Sets the IPv4 source.
    pub fn src_ip(mut self, address: Ipv4Addr) -> Self {
        self.frame[26..30].copy_from_slice(&address.octets());
        self
    }

    /// Sets the UDP destination port.
    pub fn dst_port(mut self, port: u16) -> Self {
        self.frame[36..38].copy_from_slice(&port.to_be_bytes());
        self
    }

    /// Sets the UDP source port; that of the first flow, if flows differ in it.
    pub fn src_port(mut self, port: u16) -> Self {
        self.source_port = port;
        self
    }

    /// Number of frames generated so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Number of frames that are due `elapsed` after the start and have not been generated. Without a rate, `u64::MAX`.
    ///
    /// ```
    /// # use std::{num::NonZeroU64, time::Duration};
    /// let mut traffic = uverbs::soft::Traffic::new().rate(NonZeroU64::new(1000));
    /// assert_eq!(traffic.due(Duration::from_millis(5)), 5);
    /// traffic.next_frame();
    /// assert_eq!(traffic.due(Duration::from_millis(5)), 4);
    /// ```
    pub fn due(&self, elapsed: Duration) -> u64 {
        let Some(rate) = self.rate else {
            return u64::MAX;
        };
        let asked = elapsed.as_nanos().saturating_mul(rate.get().into()) / 1_000_000_000;
        u64::try_from(asked).unwrap_or(u64::MAX).saturating_sub(self.sent)
    }

    /// Generates the next frame. It is valid until the next call.
    pub fn next_frame(&mut self) -> &[u8] {
        let flow = (self.sent % u64::from(self.flows)) as u32;
        let (mut port, mut address) = (self.source_port, u32::from(self.destination));
        match self.vary {
            Vary::SourcePort => port = port.wrapping_add(flow as u16),
            Vary::DestinationAddress => address = address.wrapping_add(flow),
        }
        let number = self.sent.to_be_bytes();
        self.sent = self.sent.wrapping_add(1);

        let length = (self.frame.len() - ETHERNET) as u16;
        let frame = &mut self.frame;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame[24..26].copy_from_slice(&[0, 0]);
        frame[30..34].copy_from_slice(&address.to_be_bytes());
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[38..40].copy_from_slice(&(length - IPV4 as u16).to_be_bytes());
        frame[HEADERS..HEADERS + 8].copy_from_slice(&number);
        let checksum = checksum(&frame[ETHERNET..ETHERNET + IPV4]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        &self.frame
    }
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
pub(super) fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_checksum_is_right() {
        // The example of Wikipedia's page on the IPv4 header checksum.
        let header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(checksum(&header), 0xb861);
        let mut traffic = Traffic::new().size(9216).expect("in range");
        for _ in 0..3 {
            assert_eq!(checksum(&traffic.next_frame()[14..34]), 0);
        }
    }

    #[test]
    fn flows_go_round() {
        let mut traffic = Traffic::new().vary(Vary::DestinationAddress).flows(3).expect("in range");
        let last: Vec<u8> = (0..5).map(|_| traffic.next_frame()[33]).collect();
        assert_eq!(last, [1, 2, 3, 1, 2]);
        assert_eq!(traffic.sent(), 5);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Traffic::new().size(59).unwrap_err(), TrafficError::Size(59));
        assert_eq!(Traffic::new().size(9217).unwrap_err(), TrafficError::Size(9217));
        assert_eq!(Traffic::new().flows(0).unwrap_err(), TrafficError::Flows(0));
        assert_eq!(Traffic::new().flows(65537).unwrap_err(), TrafficError::Flows(65537));
    }

    #[test]
    fn a_rate_is_kept_for_any_time() {
        let traffic = Traffic::new().rate(NonZeroU64::new(u64::MAX));
        assert_eq!(traffic.due(Duration::MAX), u64::MAX);
        assert_eq!(traffic.due(Duration::ZERO), 0);
        assert_eq!(Traffic::new().due(Duration::ZERO), u64::MAX);
    }
}
