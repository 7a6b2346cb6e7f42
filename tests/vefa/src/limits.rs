//! The capabilities and limits of the device, all of which can be set from outside.

/// Bits of `device_caps`.
pub(crate) mod caps {
    pub(crate) const RDMA_READ: u32 = 1 << 0;
    pub(crate) const RNR_RETRY: u32 = 1 << 1;
    pub(crate) const RDMA_WRITE: u32 = 1 << 3;
    pub(crate) const UNSOLICITED_WRITE: u32 = 1 << 4;
    pub(crate) const EVENT_COUNTERS: u32 = 1 << 5;
    pub(crate) const WIDE_IDS: u32 = 1 << 10;
}

vpci::limits! {
    /// The values that the device reports. The names are those of the kernel's `efa_admin_cmds_defs.h` (7.3).
    struct Limits {
        /// A bit for each feature that can be queried.
        supported_features: u64 = 0x2fe,
        /// A bit for each size of pages.
        page_size_cap: u64 = 0x4021_1000,
        device_caps: u32 = 0x43f,
        max_rdma_size: u32 = 1 << 20,
        max_qp: u32 = 256,
        max_sq_depth: u32 = 2048,
        inline_buf_size: u32 = 32,
        inline_buf_size_ex: u16 = 80,
        max_rq_depth: u32 = 8192,
        max_cq: u32 = 512,
        max_cq_depth: u32 = 32_768,
        sub_cqs_per_cq: u16 = 2,
        min_sq_depth: u16 = 16,
        max_wr_send_sges: u16 = 2,
        max_wr_recv_sges: u16 = 3,
        max_mr: u32 = 65_536,
        max_mr_pages: u32 = 1 << 20,
        max_pd: u32 = 256,
        max_ah: u32 = 256,
        max_llq_size: u32 = 128 << 10,
        max_wr_rdma_sges: u16 = 1,
        /// Bytes that may be written to a send queue between two doorbells, in units of 64; 0 for any number.
        max_tx_batch: u16 = 16,
        max_eq: u32 = 16,
        max_eq_depth: u32 = 1024,
        /// Event counters; a completion counter takes two.
        max_event_counters: u32 = 128,
        /// The maximum value of an event counter, after which comes 0.
        max_counter_value: u64 = (1 << 48) - 1,
        /// The bits of events that can be counted.
        counter_events: u32 = 0x3ff,
        mtu: u32 = 8928,
        /// In Gbit/s.
        link_speed: u16 = 100,
    }
}

impl Limits {
    pub(crate) fn has(&self, cap: u32) -> bool {
        self.device_caps & cap != 0
    }
}
