//! The number of objects that exist on a soft device.

/// The number of objects of each kind on a soft device; see [`SoftDevice::resources`](super::SoftDevice::resources).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Contexts.
    pub contexts: usize,
    /// Protection domains.
    pub protection_domains: usize,
    /// Completion queues.
    pub completion_queues: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Memory regions.
    pub memory_regions: usize,
    /// Memory windows.
    pub memory_windows: usize,
    /// Address handles.
    pub address_handles: usize,
    /// Shared receive queues.
    pub shared_receive_queues: usize,
    /// Domains of extended reliable connections.
    pub xrc_domains: usize,
    /// Flows.
    pub flows: usize,
    /// Counters objects.
    pub counters: usize,
    /// Completion counters of the hardware.
    pub completion_counters: usize,
    /// Hardware counters, which counters objects allocate when a flow first uses them.
    pub hardware_counters: usize,
    /// Completion channels.
    pub completion_channels: usize,
    /// Asynchronous event files.
    pub async_files: usize,
}

impl Resources {
    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
