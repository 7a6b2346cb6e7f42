//! Completion queues in the program's own memory.

use crate::kernel::mapping::Mapping;
use crate::verbs::cq::CompletionQueueBuilder;

impl<'a> CompletionQueueBuilder<'a> {
    /// Uses this memory for the completions, instead of memory from the kernel. Only on EFA, if the device supports it
    /// ([`CQ_IN_OWN_MEMORY`](super::DeviceCaps::CQ_IN_OWN_MEMORY)).
    ///
    /// It must have 32 bytes for each completion, in each of the parts that a queue of the device has, and must be contiguous for the
    /// device: one page, or a large page. It is cleared. Such a queue sends no events to a channel, and there is no doorbell that
    /// reports to the device which completions were taken.
    ///
    /// [`create`](Self::create) is [`InvalidInput`](crate::ErrorKind::InvalidInput) for memory that is too small or not
    /// contiguous, and [`Unsupported`](crate::ErrorKind::Unsupported) on other devices.
    ///
    /// # Kernel
    /// `UVERBS_ATTR_CREATE_CQ_BUFFER_VA` (uverbs_std_types_cq.c, Linux 7.2).
    #[doc(alias = "EFADV_CQ_INIT_FLAGS_EXT_MEM_DMABUF")]
    pub fn in_memory(self, memory: &'a Mapping) -> Self {
        self.with_memory(memory)
    }
}
