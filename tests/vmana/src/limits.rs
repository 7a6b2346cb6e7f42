//! The limits of the device, all of which can be set from outside.

vpci::limits! {
    /// The values that the device reports.
    struct Limits {
        max_eq: u32 = 256,
        max_cq: u32 = 4096,
        max_qp: u32 = 1024,
        max_mr: u32 = 65_536,
        max_pd: u32 = 1024,
        max_inbound_reads: u32 = 16,
        max_outbound_reads: u32 = 16,
        /// In bytes; the kernel divides by 512 for requests and by 256 for receives.
        max_requester_sq_size: u32 = 4 << 20,
        max_responder_sq_size: u32 = 4096,
        max_requester_rq_size: u32 = 2 << 20,
        max_responder_rq_size: u32 = 2 << 20,
        max_send_sge: u32 = 13,
        max_recv_sge: u32 = 15,
        /// Bit 5: counters of the device. Bit 6: several ports.
        features: u32 = 0x20,
        /// The largest frame that the network interface can be set to.
        mtu: u16 = 9230,
        /// In Mbit/s.
        link_speed: u32 = 100_000,
    }
}
