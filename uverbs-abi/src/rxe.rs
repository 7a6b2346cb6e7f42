//! Soft-RoCE (`rxe`): driver payloads and the rings that process and kernel share.
//!
//! A ring is a [`QueueBuf`] followed by slots of `1 << log2_elem_size` bytes. Slots of a send ring start
//! with [`SendWqe`], of a receive ring with [`RecvWqe`], both followed by [`Sge`]s or inline data; slots of
//! a completion ring hold [`crate::write::Wc`].

use zerocopy::big_endian::U16;

numbers! {
    u32 "" {
        ABI_VERSION () = 2, "Version that the device reports.";
    }
    u8 "RXE_" {
        NETWORK_TYPE_IPV4 = 1, "[`Av::network_type`]: RoCE v2 over IPv4.";
        NETWORK_TYPE_IPV6 = 2, "[`Av::network_type`]: RoCE v2 over IPv6.";
    }
}

layout! {
    /// Where a ring can be mapped.
    struct Mminfo = "mminfo", 16 {
        0  offset: u64, "Offset to pass to mmap; good for one mapping.";
        8  size: u32, "Bytes, header included.";
        12 pad: u32, "Zero.";
    }

    /// Driver's response to creating a completion queue.
    struct CreateCqResp = "rxe_create_cq_resp", 16 {
        0 mi: Mminfo, "The completion ring.";
    }

    /// Driver's response to resizing a completion queue.
    struct ResizeCqResp = "rxe_resize_cq_resp", 16 {
        0 mi: Mminfo, "The new completion ring.";
    }

    /// Driver's response to creating a queue pair.
    struct CreateQpResp = "rxe_create_qp_resp", 32 {
        0  rq_mi: Mminfo, "The receive ring; it comes first.";
        16 sq_mi: Mminfo, "The send ring.";
    }

    /// Driver's response to creating a shared receive queue.
    struct CreateSrqResp = "rxe_create_srq_resp", 24 {
        0  mi: Mminfo, "The receive ring.";
        16 srq_num: u32, "The queue's number.";
        20 reserved: u32, "Zero.";
    }

    /// Driver's request to resize a shared receive queue.
    struct ModifySrqCmd = "rxe_modify_srq_cmd", 8 {
        0 mmap_info_addr: u64, "Address where the kernel writes the [`Mminfo`] of the new ring.";
    }

    /// Driver's response to creating an address handle.
    struct CreateAhResp = "rxe_create_ah_resp", 8 {
        0 ah_num: u32, "Number to put into [`UdWr::ah_num`].";
        4 reserved: u32, "Zero.";
    }

    /// Head of a ring; the slots follow it.
    ///
    /// Indices are already masked: the next one is `(i + 1) & index_mask`. Equal indices mean empty; a ring
    /// whose producer is one behind its consumer is full.
    struct QueueBuf = "rxe_queue_buf", 384 {
        0   log2_elem_size: u32, "Bytes of a slot as a power of two.";
        4   index_mask: u32, "Number of slots, less one.";
        8   pad_1: [u32; 30], "Fills the cache line.";
        128 producer_index: u32, "Next slot to be written.";
        132 pad_2: [u32; 31], "Fills the cache line.";
        256 consumer_index: u32, "Next slot to be read.";
        260 pad_3: [u32; 31], "Fills the cache line.";
    }

    /// One piece of registered memory.
    struct Sge = "rxe_sge", 16 {
        0  addr: u64, "Address in the process.";
        8  length: u32, "Bytes.";
        12 lkey: u32, "Local key of the region.";
    }

    /// Routing part of an address.
    struct GlobalRoute = "rxe_global_route", 24 {
        0  dgid: [u8; 16], "GID of the destination.";
        16 flow_label: u32, "Flow label.";
        20 sgid_index: u8, "Index of the own GID.";
        21 hop_limit: u8, "Hop limit.";
        22 traffic_class: u8, "Traffic class.";
        23 pad (): u8, "Padding that C leaves unnamed.";
    }

    /// The destination address of datagrams.
    struct Av = "rxe_av", 88 {
        0  port_num: u8, "Port of the device.";
        1  network_type: u8, "[`NETWORK_TYPE_IPV4`] or [`NETWORK_TYPE_IPV6`].";
        2  dmac: [u8; 6], "Ethernet address of the next hop.";
        8  grh: GlobalRoute, "Routing part.";
        32 sgid_addr: [u8; 28], "Own address: [`SockaddrIn`] or [`SockaddrIn6`].";
        60 dgid_addr: [u8; 28], "Destination: [`SockaddrIn`] or [`SockaddrIn6`].";
    }

    /// An IPv4 address, at the start of an address field of [`Av`].
    struct SockaddrIn = "sockaddr_in", 16 {
        0 sin_family: u16, "2, AF_INET.";
        2 sin_port: U16, "Zero.";
        4 sin_addr: [u8; 4], "Address in network order.";
        8 sin_zero ("__pad"): [u8; 8], "Zero.";
    }

    /// An IPv6 address, filling an address field of [`Av`].
    struct SockaddrIn6 = "sockaddr_in6", 28 {
        0  sin6_family: u16, "10, AF_INET6.";
        2  sin6_port: U16, "Zero.";
        4  sin6_flowinfo: u32, "Zero.";
        8  sin6_addr: [u8; 16], "Address in network order.";
        24 sin6_scope_id: u32, "Interface of a link-local address.";
    }

    /// A send request.
    struct SendWr = "rxe_send_wr", 144 {
        0  wr_id: u64, "Value that the completion will carry.";
        8  reserved: u32, "Zero. On the soft device, over an extended connection, the number of the shared queue there.";
        12 opcode: u32, "See [`crate::types::wr_opcode`].";
        16 send_flags: u32, "See [`crate::types::SendFlags`].";
        20 ex: u32, "Immediate data, its bytes in network order; or the remote key to invalidate.";
        24 wr: [u8; 120], "By opcode: [`RdmaWr`], [`AtomicWr`], [`UdWr`], [`MwWr`] or [`FlushWr`] at its start.";
    }

    /// Part of [`SendWr`] for reads and writes.
    struct RdmaWr = "rxe_send_wr.wr.rdma", 16 {
        0  remote_addr: u64, "Remote address.";
        8  rkey: u32, "Remote key.";
        12 reserved: u32, "Zero.";
    }

    /// Part of [`SendWr`] for atomic operations.
    struct AtomicWr = "rxe_send_wr.wr.atomic", 32 {
        0  remote_addr: u64, "Remote address, a multiple of 8.";
        8  compare_add: u64, "Value to compare with, or to add.";
        16 swap: u64, "Value to store if the comparison holds.";
        24 rkey: u32, "Remote key.";
        28 reserved: u32, "Zero.";
    }

    /// Part of [`SendWr`] for datagrams.
    struct UdWr = "rxe_send_wr.wr.ud", 120 {
        0  remote_qpn: u32, "Remote queue pair number.";
        4  remote_qkey: u32, "Remote queue key.";
        8  pkey_index: u16, "Index of the partition key.";
        10 reserved: u16, "Zero.";
        12 ah_num: u32, "Number of the address handle; zero if the address is in `av`.";
        16 pad: [u32; 4], "Zero.";
        32 av: Av, "The address, when `ah_num` is zero.";
    }

    /// Part of [`SendWr`] for binding a memory window.
    struct MwWr = "rxe_send_wr.wr.mw", 32 {
        0  addr: u64, "Start of the window.";
        8  length: u64, "Bytes of the window.";
        16 mr_lkey: u32, "Local key of the region.";
        20 mw_rkey: u32, "Key that the window has.";
        24 rkey: u32, "Key that the window gets.";
        28 access: u32, "See [`crate::types::AccessFlags`].";
    }

    /// Part of [`SendWr`] for flushing remote memory (Linux 6.2).
    struct FlushWr = "rxe_send_wr.wr.flush", 24 {
        0  remote_addr: u64, "Remote address.";
        8  length: u32, "Bytes.";
        12 rkey: u32, "Remote key.";
        16 type_ ("type"): u8, "How visible the data shall be.";
        17 level: u8, "How much is flushed.";
        18 pad (): [u8; 6], "Padding that C leaves unnamed.";
    }

    /// Progress of a request through its pieces of memory; the pieces follow it.
    struct DmaInfo = "rxe_dma_info", 24 {
        0  length: u32, "Bytes in total.";
        4  resid: u32, "Bytes left; equal to `length` at the start.";
        8  cur_sge: u32, "Current piece; zero at the start.";
        12 num_sge: u32, "Number of pieces; zero for inline data.";
        16 sge_offset: u32, "Bytes done of the current piece; zero at the start.";
        20 reserved: u32, "Zero.";
    }

    /// Slot of a send ring, followed by [`Sge`]s or inline data.
    struct SendWqe = "rxe_send_wqe", 208 {
        0   wr: SendWr, "The request.";
        144 status: u32, "Written by the kernel.";
        148 state: u32, "Written by the kernel; zero at the start.";
        152 iova: u64, "Remote address of a read, a write or an atomic operation.";
        160 mask: u32, "Written by the kernel.";
        164 first_psn: u32, "Written by the kernel.";
        168 last_psn: u32, "Written by the kernel.";
        172 ack_length: u32, "Written by the kernel.";
        176 ssn: u32, "Sequence number of the request, counted by the producer.";
        180 has_rd_atomic: u32, "Written by the kernel.";
        184 dma: DmaInfo, "The data.";
    }

    /// Slot of a receive ring, followed by [`Sge`]s.
    struct RecvWqe = "rxe_recv_wqe", 40 {
        0  wr_id: u64, "Value that the completion will carry.";
        8  reserved: u32, "Zero.";
        12 padding: u32, "Zero.";
        16 dma: DmaInfo, "Where the data goes.";
    }
}
