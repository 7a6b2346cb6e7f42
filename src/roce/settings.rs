//! The attributes of a queue pair on which its packets depend.

use std::time::Duration;

use super::packet::Service;

/// Maximum number of sequence numbers between the oldest that is not acknowledged and the next packet: a receiver's socket buffer is
/// limited, and what does not fit is lost.
const MOST_PACKETS: u32 = 128;

/// The attributes of the queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The service.
    pub service: Service,
    /// The destination queue pair.
    pub to: u32,
    /// Number of bytes of a full packet.
    pub mtu: u32,
    /// How long a response is waited for; for ever without it.
    pub timeout: Option<Duration>,
    /// Number of retries without a response.
    pub retries: u8,
    /// Number of retries after "receiver not ready"; 7 means for ever.
    pub unready: u8,
    /// Number of reads and atomic operations that may be outstanding.
    pub reads: u32,
    /// Number of bytes of data that may be under way.
    pub window: u32,
}

impl Settings {
    /// Number of packets that may be under way.
    pub(super) fn packets(&self) -> u32 {
        MOST_PACKETS.min(self.window / self.mtu.max(1)).max(2)
    }
}
