//! Context, device, port, GID, and the records of event files.

use zerocopy::big_endian::U64;

layout! {
    /// Record of an asynchronous event file.
    struct AsyncEventDesc = "ib_uverbs_async_event_desc", 16 {
        0  element: u64, "User handle of the object, or the port number of a port's event.";
        8  event_type: u32, "What happened, see [`crate::types::event_type`].";
        12 reserved: u32, "Zero.";
    }

    /// Record of a completion channel.
    struct CompEventDesc = "ib_uverbs_comp_event_desc", 8 {
        0 cq_handle: u64, "User handle of the completion queue.";
    }

    /// First header of a write.
    struct CmdHdr = "ib_uverbs_cmd_hdr", 8 {
        0 command: u32, "Number of the command, see [`super::cmd`].";
        4 in_words: u16, "Length of all input in units of 4 bytes; extended: of the core's input, 8 bytes.";
        6 out_words: u16, "Length of all output in units of 4 bytes; extended: of the core's output, 8 bytes.";
    }

    /// Second header of a write of an extended command.
    struct ExCmdHdr = "ib_uverbs_ex_cmd_hdr", 16 {
        0  response: u64, "Address of the output.";
        8  provider_in_words: u16, "Length of the driver's input in units of 8 bytes.";
        10 provider_out_words: u16, "Length of the driver's output in units of 8 bytes.";
        12 cmd_hdr_reserved: u32, "Zero.";
    }

    /// Request of `GET_CONTEXT`; never send it by INVOKE_WRITE, Linux 7.2 refuses it with EBADF.
    struct GetContext = "ib_uverbs_get_context", 8 {
        0 response: u64, "Address of the response; used only by a write.";
    }

    /// Response of `GET_CONTEXT`.
    struct GetContextResp = "ib_uverbs_get_context_resp", 8 {
        0 async_fd: u32, "File of asynchronous events.";
        4 num_comp_vectors: u32, "Number of completion vectors.";
    }

    /// Request of `QUERY_DEVICE`.
    struct QueryDevice = "ib_uverbs_query_device", 8 {
        0 response: u64, "Address of the response; used only by a write.";
    }

    /// Response of `QUERY_DEVICE`: limits of the device.
    struct QueryDeviceResp = "ib_uverbs_query_device_resp", 176 {
        0   fw_ver: u64, "Firmware version; how to read it is up to the driver.";
        8   node_guid: U64, "GUID of the device.";
        16  sys_image_guid: U64, "GUID of the system.";
        24  max_mr_size: u64, "Most bytes of a memory region.";
        32  page_size_cap: u64, "Supported page sizes, one bit each.";
        40  vendor_id: u32, "Vendor, an OUI.";
        44  vendor_part_id: u32, "Vendor's number of the part.";
        48  hw_ver: u32, "Version of the hardware.";
        52  max_qp: u32, "Most queue pairs.";
        56  max_qp_wr: u32, "Most requests in a ring.";
        60  device_cap_flags: u32, "See [`crate::types::DeviceCapFlags`], low half.";
        64  max_sge: u32, "Most pieces of memory of a request.";
        68  max_sge_rd: u32, "Most pieces of memory of a read.";
        72  max_cq: u32, "Most completion queues.";
        76  max_cqe: u32, "Most entries of a completion queue.";
        80  max_mr: u32, "Most memory regions.";
        84  max_pd: u32, "Most protection domains.";
        88  max_qp_rd_atom: u32, "Most incoming reads and atomic operations in flight per queue pair.";
        92  max_ee_rd_atom: u32, "The same per end-to-end context.";
        96  max_res_rd_atom: u32, "The same for the whole device.";
        100 max_qp_init_rd_atom: u32, "Most outgoing reads and atomic operations in flight per queue pair.";
        104 max_ee_init_rd_atom: u32, "The same per end-to-end context.";
        108 atomic_cap: u32, "Atomic operations: 0 none, 1 within the device, 2 with the whole system.";
        112 max_ee: u32, "Most end-to-end contexts.";
        116 max_rdd: u32, "Most reliable datagram domains.";
        120 max_mw: u32, "Most memory windows.";
        124 max_raw_ipv6_qp: u32, "Most raw IPv6 queue pairs.";
        128 max_raw_ethy_qp: u32, "Most raw Ethertype queue pairs.";
        132 max_mcast_grp: u32, "Most multicast groups.";
        136 max_mcast_qp_attach: u32, "Most queue pairs of a multicast group.";
        140 max_total_mcast_qp_attach: u32, "Most queue pairs of all multicast groups.";
        144 max_ah: u32, "Most address handles.";
        148 max_fmr: u32, "Most fast memory regions; obsolete.";
        152 max_map_per_fmr: u32, "Most maps of a fast memory region; obsolete.";
        156 max_srq: u32, "Most shared receive queues.";
        160 max_srq_wr: u32, "Most requests of a shared receive queue.";
        164 max_srq_sge: u32, "Most pieces of memory of a request of a shared receive queue.";
        168 max_pkeys: u16, "Most partition keys.";
        170 local_ca_ack_delay: u8, "Delay of acknowledgements: 4.096 us * 2^n.";
        171 phys_port_cnt: u8, "Number of ports.";
        172 reserved: [u8; 4], "Zero.";
    }

    /// Request of `EX_QUERY_DEVICE`.
    struct ExQueryDevice = "ib_uverbs_ex_query_device", 8 {
        0 comp_mask: u32, "Zero.";
        4 reserved: u32, "Zero.";
    }

    /// On-demand paging by transport; an unnamed struct inside [`OdpCaps`] in C.
    struct OdpPerTransportCaps = "ib_uverbs_odp_caps.per_transport_caps", 12 {
        0 rc_odp_caps: u32, "Reliable connections, see [`crate::types::OdpTransportCaps`].";
        4 uc_odp_caps: u32, "Unreliable connections.";
        8 ud_odp_caps: u32, "Datagrams.";
    }

    /// On-demand paging.
    struct OdpCaps = "ib_uverbs_odp_caps", 24 {
        0  general_caps: u64, "See [`crate::types::OdpGeneralCaps`].";
        8  per_transport_caps: OdpPerTransportCaps, "Operations, by transport.";
        20 reserved: u32, "Zero.";
    }

    /// Receive-side scaling.
    struct RssCaps = "ib_uverbs_rss_caps", 16 {
        0  supported_qpts: u32, "Queue pair types that support it, bit 1 << type.";
        4  max_rwq_indirection_tables: u32, "Most indirection tables.";
        8  max_rwq_indirection_table_size: u32, "Most entries of a table.";
        12 reserved: u32, "Zero.";
    }

    /// Tag matching.
    struct TmCaps = "ib_uverbs_tm_caps", 24 {
        0  max_rndv_hdr_size: u32, "Most bytes of a rendezvous request.";
        4  max_num_tags: u32, "Most entries of the tag list.";
        8  flags: u32, "Bit 0: over reliable connections.";
        12 max_ops: u32, "Most list operations in flight.";
        16 max_sge: u32, "Most pieces of memory of an entry.";
        20 reserved: u32, "Zero.";
    }

    /// Limits of completion moderation.
    struct CqModerationCaps = "ib_uverbs_cq_moderation_caps", 8 {
        0 max_cq_moderation_count: u16, "Most completions to wait for.";
        2 max_cq_moderation_period: u16, "Longest wait in microseconds.";
        4 reserved: u32, "Zero.";
    }

    /// Response of `EX_QUERY_DEVICE`.
    struct ExQueryDeviceResp = "ib_uverbs_ex_query_device_resp", 304 {
        0   base: QueryDeviceResp, "The response of the older command.";
        176 comp_mask: u32, "Zero.";
        180 response_length: u32, "Bytes that the kernel filled.";
        184 odp_caps: OdpCaps, "On-demand paging.";
        208 timestamp_mask: u64, "Valid bits of completion timestamps.";
        216 hca_core_clock: u64, "Frequency of that clock in kHz.";
        224 device_cap_flags_ex: u64, "See [`crate::types::DeviceCapFlags`].";
        232 rss_caps: RssCaps, "Receive-side scaling.";
        248 max_wq_type_rq: u32, "Most receive work queues.";
        252 raw_packet_caps: u32, "See [`crate::types::RawPacketCaps`].";
        256 tm_caps: TmCaps, "Tag matching.";
        280 cq_moderation_caps: CqModerationCaps, "Completion moderation.";
        288 max_dm_size: u64, "Bytes of device memory.";
        296 xrc_odp_caps: u32, "On-demand paging with extended reliable connections.";
        300 reserved: u32, "Zero.";
    }

    /// Request of `QUERY_PORT`.
    struct QueryPort = "ib_uverbs_query_port", 16 {
        0 response: u64, "Address of the response; used only by a write.";
        8 port_num: u8, "Port, from 1.";
        9 reserved: [u8; 7], "Zero.";
    }

    /// Response of `QUERY_PORT`.
    struct QueryPortResp = "ib_uverbs_query_port_resp", 40 {
        0  port_cap_flags: u32, "See [`crate::types::PortCapFlags`].";
        4  max_msg_sz: u32, "Most bytes of a message.";
        8  bad_pkey_cntr: u32, "Packets with a bad partition key.";
        12 qkey_viol_cntr: u32, "Packets with a bad queue key.";
        16 gid_tbl_len: u32, "Entries of the GID table.";
        20 pkey_tbl_len: u16, "Entries of the partition key table.";
        22 lid: u16, "Local identifier.";
        24 sm_lid: u16, "Local identifier of the subnet manager.";
        26 state: u8, "See [`crate::types::port_state`].";
        27 max_mtu: u8, "Largest MTU, see [`crate::types::mtu`].";
        28 active_mtu: u8, "MTU in use, see [`crate::types::mtu`].";
        29 lmc: u8, "Number of low bits of the local identifier that are free.";
        30 max_vl_num: u8, "Virtual lanes, coded.";
        31 sm_sl: u8, "Service level of the subnet manager.";
        32 subnet_timeout: u8, "Delay across the subnet: 4.096 us * 2^n.";
        33 init_type_reply: u8, "How the subnet manager initialised the port.";
        34 active_width: u8, "See [`crate::types::width`].";
        35 active_speed: u8, "See [`crate::types::speed`].";
        36 phys_state: u8, "See [`crate::types::phys_state`].";
        37 link_layer: u8, "See [`crate::types::link_layer`].";
        38 flags: u8, "See [`crate::types::PortFlags`].";
        39 reserved: u8, "Zero.";
    }

    /// Output of the ioctl method QUERY_PORT.
    struct QueryPortRespEx = "ib_uverbs_query_port_resp_ex", 48 {
        0  legacy_resp: QueryPortResp, "The response of the older command.";
        40 port_cap_flags2: u16, "More capabilities, as InfiniBand numbers them.";
        42 reserved: [u8; 2], "Zero.";
        44 active_speed_ex: u32, "Speed, for values that do not fit the older field; zero before Linux 6.12.";
    }

    /// One GID.
    struct GidEntry = "ib_uverbs_gid_entry", 32 {
        0  gid: [u8; 16], "The GID in network order.";
        16 gid_index: u32, "Index in the port's table.";
        20 port_num: u32, "Port, from 1.";
        24 gid_type: u32, "See [`crate::types::gid_type`].";
        28 netdev_ifindex: u32, "Network interface; zero if there is none.";
    }

    /// A buffer that user space provides for a ring (Linux 7.2).
    struct BufferDesc = "ib_uverbs_buffer_desc", 32 {
        0  type_ ("type"): u32, "See [`crate::types::buffer_type`].";
        4  fd: i32, "File of the dma-buf.";
        8  flags: u32, "Unknown bits are EINVAL.";
        12 optional_flags: u32, "Unknown bits are ignored.";
        16 addr: u64, "Address, or offset in the dma-buf.";
        24 length: u64, "Bytes.";
    }
}
