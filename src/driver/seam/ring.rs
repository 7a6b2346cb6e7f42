//! A ring that a program may use directly.

/// A ring that was handed over to the program, by addresses in the process. The program uses it directly instead of the queue.
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
    /// Offset at which the page of the doorbell can be mapped from the device file, also by another process; zero if the driver has none.
    pub page_offset: u64,
    /// Address of the word in which the device reads the program's position; zero if there is none.
    pub record: u64,
    /// Maximum number of requests that one doorbell may announce; zero if there is no maximum.
    pub most_at_once: u32,
    /// The first and the last free entry, if the entries are a linked list.
    pub list: [u32; 2],
    /// The device's numbers of the queue and of what connects it to the port; zero if the driver returns none.
    pub numbers: [u32; 2],
}
