//! A ring that a program may use directly.

/// A ring in memory that the kernel has mapped, by addresses in the process. A program may use it directly instead of the queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnRing {
    /// Address of its first entry; zero if there is no ring.
    pub address: u64,
    /// Size of an entry in bytes.
    pub entry_size: u32,
    /// Number of entries.
    pub entries: u32,
    /// Address of its doorbell; zero if there is none.
    pub doorbell: u64,
    /// Maximum number of requests that one doorbell may announce.
    pub most_at_once: u32,
}
