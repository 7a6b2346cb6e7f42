//! Values of fields: enumerations as numbers, masks as sets of bits.
//!
//! Values from the kernel are plain numbers, because a kernel may have values that this crate does not know.

values! {
    /// Types of a queue pair.
    qp_type: u8 "IB_UVERBS_QPT_" {
        RC = 2, "Reliable connection.";
        UC = 3, "Unreliable connection.";
        UD = 4, "Unreliable datagrams.";
        RAW_PACKET = 8, "Ethernet frames.";
        XRC_INI = 9, "Extended reliable connection, initiator.";
        XRC_TGT = 10, "Extended reliable connection, target.";
        DRIVER = 0xff, "Driver's own.";
    }

    /// States of a queue pair.
    qp_state: u8 "IBV_QPS_" {
        RESET = 0, "Just made.";
        INIT = 1, "Receives may be posted.";
        RTR = 2, "Ready to receive.";
        RTS = 3, "Ready to send.";
        SQD = 4, "Sends are held back.";
        SQE = 5, "A send failed.";
        ERR = 6, "Error: everything posted is flushed.";
    }

    /// States of path migration.
    path_mig_state: u8 "IBV_MIG_" {
        MIGRATED = 0, "On the alternate path.";
        REARM = 1, "To be armed again.";
        ARMED = 2, "Armed.";
    }

    /// Types of a shared receive queue.
    srq_type: u32 "IB_UVERBS_SRQT_" {
        BASIC = 0, "Plain.";
        XRC = 1, "For extended reliable connections.";
        TM = 2, "With tag matching.";
    }

    /// Largest packets, without headers.
    mtu: u8 "IBV_MTU_" {
        MTU_256 ("IBV_MTU_256") = 1, "256 bytes.";
        MTU_512 ("IBV_MTU_512") = 2, "512 bytes.";
        MTU_1024 ("IBV_MTU_1024") = 3, "1024 bytes.";
        MTU_2048 ("IBV_MTU_2048") = 4, "2048 bytes.";
        MTU_4096 ("IBV_MTU_4096") = 5, "4096 bytes.";
    }

    /// Results of a request.
    wc_status: u32 "IBV_WC_" {
        SUCCESS = 0, "Done.";
        LOC_LEN_ERR = 1, "Local length error: a message did not fit.";
        LOC_QP_OP_ERR = 2, "Local operation error of the queue pair.";
        LOC_EEC_OP_ERR = 3, "Local operation error of an end-to-end context.";
        LOC_PROT_ERR = 4, "Local protection error: a key or an address is wrong.";
        WR_FLUSH_ERR = 5, "Flushed: the queue pair was in error.";
        MW_BIND_ERR = 6, "Binding a memory window failed.";
        BAD_RESP_ERR = 7, "The response is not valid.";
        LOC_ACCESS_ERR = 8, "Local access error: the region does not allow it.";
        REM_INV_REQ_ERR = 9, "The remote side calls the request invalid.";
        REM_ACCESS_ERR = 10, "The remote side does not allow access.";
        REM_OP_ERR = 11, "The remote side could not do it.";
        RETRY_EXC_ERR = 12, "No acknowledgement, out of retries.";
        RNR_RETRY_EXC_ERR = 13, "The receiver was not ready, out of retries.";
        LOC_RDD_VIOL_ERR = 14, "Reliable datagram domains do not fit.";
        REM_INV_RD_REQ_ERR = 15, "Invalid reliable datagram request.";
        REM_ABORT_ERR = 16, "The remote side aborted.";
        INV_EECN_ERR = 17, "Invalid number of an end-to-end context.";
        INV_EEC_STATE_ERR = 18, "Invalid state of an end-to-end context.";
        FATAL_ERR = 19, "The device failed.";
        RESP_TIMEOUT_ERR = 20, "No answer in time.";
        GENERAL_ERR = 21, "Any other error.";
    }

    /// The operation that a completion reports.
    wc_opcode: u32 "IB_UVERBS_WC_" {
        SEND = 0, "A send.";
        RDMA_WRITE = 1, "A write.";
        RDMA_READ = 2, "A read.";
        COMP_SWAP = 3, "A compare and swap.";
        FETCH_ADD = 4, "A fetch and add.";
        BIND_MW = 5, "Binding a memory window.";
        LOCAL_INV = 6, "Invalidating a local key.";
        TSO = 7, "A large send.";
        FLUSH = 8, "A flush of remote memory (Linux 6.2).";
        ATOMIC_WRITE = 9, "An atomic write (Linux 6.2).";
        RECV ("IBV_WC_RECV") = 0x80, "A message came in; the bit is set in all receives.";
        RECV_RDMA_WITH_IMM ("IBV_WC_RECV_RDMA_WITH_IMM") = 0x81, "A write with immediate data came in.";
    }

    /// The operation of a send request.
    wr_opcode: u32 "IB_UVERBS_WR_" {
        RDMA_WRITE = 0, "Write.";
        RDMA_WRITE_WITH_IMM = 1, "Write with immediate data.";
        SEND = 2, "Send.";
        SEND_WITH_IMM = 3, "Send with immediate data.";
        RDMA_READ = 4, "Read.";
        ATOMIC_CMP_AND_SWP = 5, "Compare and swap, 8 bytes.";
        ATOMIC_FETCH_AND_ADD = 6, "Fetch and add, 8 bytes.";
        LOCAL_INV = 7, "Invalidate a local key.";
        BIND_MW = 8, "Bind a memory window.";
        SEND_WITH_INV = 9, "Send, and invalidate a remote key.";
        TSO = 10, "Large send, cut by the device.";
        RDMA_READ_WITH_INV = 11, "Read, then invalidate the local key.";
        MASKED_ATOMIC_CMP_AND_SWP = 12, "Compare and swap under masks.";
        MASKED_ATOMIC_FETCH_AND_ADD = 13, "Fetch and add under a mask.";
        FLUSH = 14, "Flush remote memory (Linux 6.2).";
        ATOMIC_WRITE = 15, "Write 8 bytes atomically (Linux 6.2).";
    }

    /// Types of events, in [`crate::write::AsyncEventDesc`].
    event_type: u32 "IBV_EVENT_" {
        CQ_ERR = 0, "Completion queue: overrun or failure.";
        QP_FATAL = 1, "Queue pair: failure.";
        QP_REQ_ERR = 2, "Queue pair: an invalid request came in.";
        QP_ACCESS_ERR = 3, "Queue pair: a request without permission came in.";
        COMM_EST = 4, "Queue pair: first message came in before it was ready to send.";
        SQ_DRAINED = 5, "Queue pair: the send queue is drained.";
        PATH_MIG = 6, "Queue pair: went to the alternate path.";
        PATH_MIG_ERR = 7, "Queue pair: could not go to the alternate path.";
        DEVICE_FATAL = 8, "Device: failed, or is gone.";
        PORT_ACTIVE = 9, "Port: became active.";
        PORT_ERR = 10, "Port: went down.";
        LID_CHANGE = 11, "Port: local identifier changed.";
        PKEY_CHANGE = 12, "Port: partition keys changed.";
        SM_CHANGE = 13, "Port: subnet manager changed.";
        SRQ_ERR = 14, "Shared receive queue: failure.";
        SRQ_LIMIT_REACHED = 15, "Shared receive queue: below its limit.";
        QP_LAST_WQE_REACHED = 16, "Queue pair: took its last request from a shared queue.";
        CLIENT_REREGISTER = 17, "Port: registrations with the subnet manager are lost.";
        GID_CHANGE = 18, "Port: GIDs changed.";
        WQ_FATAL = 19, "Work queue: failure.";
    }

    /// States of a port.
    port_state: u8 "IBV_PORT_" {
        NOP = 0, "No change.";
        DOWN = 1, "Down.";
        INIT = 2, "Initialised, no traffic yet.";
        ARMED = 3, "Armed.";
        ACTIVE = 4, "Active.";
        ACTIVE_DEFER = 5, "Active, with a recent link error.";
    }

    /// Physical states of a port.
    phys_state: u8 "" {
        SLEEP () = 1, "Sleeping.";
        POLLING () = 2, "Looking for a partner.";
        DISABLED () = 3, "Disabled.";
        PORT_CONFIGURATION_TRAINING () = 4, "Training.";
        LINK_UP () = 5, "Up.";
        LINK_ERROR_RECOVERY () = 6, "Recovering.";
        PHY_TEST () = 7, "Under test.";
    }

    /// Widths of a link, in lanes.
    width: u8 "" {
        WIDTH_1X () = 1, "1 lane.";
        WIDTH_4X () = 2, "4 lanes.";
        WIDTH_8X () = 4, "8 lanes.";
        WIDTH_12X () = 8, "12 lanes.";
        WIDTH_2X () = 16, "2 lanes.";
    }

    /// Speeds of a lane.
    speed: u8 "" {
        SDR () = 1, "2.5 Gb/s.";
        DDR () = 2, "5 Gb/s.";
        QDR () = 4, "10 Gb/s.";
        FDR10 () = 8, "10.3 Gb/s.";
        FDR () = 16, "14 Gb/s.";
        EDR () = 32, "25.8 Gb/s.";
        HDR () = 64, "53 Gb/s.";
        NDR () = 128, "106 Gb/s.";
    }

    /// Link layers of a port.
    link_layer: u8 "IBV_LINK_LAYER_" {
        UNSPECIFIED = 0, "InfiniBand, from kernels that do not report the type.";
        INFINIBAND = 1, "InfiniBand.";
        ETHERNET = 2, "Ethernet.";
    }

    /// Kinds of device.
    node_type: u8 "RDMA_NODE_" {
        IB_CA = 1, "Channel adapter.";
        IB_SWITCH = 2, "Switch.";
        IB_ROUTER = 3, "Router.";
        RNIC = 4, "iWARP card.";
        USNIC = 5, "usNIC.";
        USNIC_UDP = 6, "usNIC over UDP.";
        UNSPECIFIED = 7, "Something else.";
    }

    /// Kinds of GID.
    gid_type: u32 "IB_UVERBS_GID_TYPE_" {
        IB = 0, "InfiniBand.";
        ROCE_V1 = 1, "RoCE v1, on Ethernet.";
        ROCE_V2 = 2, "RoCE v2, on UDP.";
    }

    /// What a counter counts.
    counter_description: u32 "IBV_COUNTER_" {
        PACKETS = 0, "Packets.";
        BYTES = 1, "Bytes.";
    }

    /// Advice about the pages of a region.
    advise: u32 "IB_UVERBS_ADVISE_MR_ADVICE_" {
        PREFETCH = 0, "Bring in for reading.";
        PREFETCH_WRITE = 1, "Bring in for writing.";
        PREFETCH_NO_FAULT = 2, "Map the pages that are present.";
    }

    /// The values of a completion counter (Linux 7.3).
    comp_cntr_entry: u64 "IB_UVERBS_COMP_CNTR_ENTRY_" {
        COMP = 0, "Completions.";
        ERR = 1, "Errors.";
    }

    /// How a completion counter changes (Linux 7.3).
    comp_cntr_op: u64 "IB_UVERBS_COMP_CNTR_MODIFY_OP_" {
        SET = 0, "To a value.";
        INC = 1, "By a value.";
    }

    /// Kinds of buffers, in [`crate::write::BufferDesc`] (Linux 7.2).
    buffer_type: u32 "IB_UVERBS_BUFFER_TYPE_" {
        DMABUF = 0, "A dma-buf (Linux 7.2).";
        VA = 1, "Memory of the process (Linux 7.2).";
    }

    /// Drivers, as a call must name them.
    driver_id: u32 "RDMA_DRIVER_" {
        UNKNOWN = 0, "None.";
        MLX5 = 1, "NVIDIA ConnectX-4 and later.";
        MLX4 = 2, "NVIDIA ConnectX-3.";
        CXGB3 = 3, "Chelsio T3.";
        CXGB4 = 4, "Chelsio T4 and later.";
        MTHCA = 5, "Mellanox InfiniHost.";
        BNXT_RE = 6, "Broadcom NetXtreme.";
        OCRDMA = 7, "Emulex OneConnect.";
        NES = 8, "NetEffect.";
        IRDMA = 9, "Intel; older kernels call it I40IW.";
        VMW_PVRDMA = 10, "VMware.";
        QEDR = 11, "Marvell FastLinQ.";
        HNS = 12, "HiSilicon.";
        USNIC = 13, "Cisco usNIC.";
        RXE = 14, "Soft-RoCE.";
        HFI1 = 15, "Cornelis Omni-Path.";
        QIB = 16, "QLogic.";
        EFA = 17, "Amazon EFA.";
        SIW = 18, "Software iWARP.";
        ERDMA = 19, "Alibaba.";
        MANA = 20, "Microsoft (after Linux 6.1).";
        IONIC = 21, "AMD Pensando (after Linux 6.12).";
    }
}

flags! {
    /// The accesses that a memory region or a queue pair allows.
    struct AccessFlags: u32 "IB_UVERBS_ACCESS_" {
        LOCAL_WRITE = 1 << 0, "The device may write.";
        REMOTE_WRITE = 1 << 1, "The remote side may write; needs local write.";
        REMOTE_READ = 1 << 2, "The remote side may read.";
        REMOTE_ATOMIC = 1 << 3, "The remote side may do atomic operations; needs local write.";
        MW_BIND = 1 << 4, "Memory windows may be bound to it.";
        ZERO_BASED = 1 << 5, "Addresses start at zero.";
        ON_DEMAND = 1 << 6, "Pages are brought in when used.";
        HUGETLB = 1 << 7, "The memory is of huge pages.";
        FLUSH_GLOBAL = 1 << 8, "The remote side may flush to visibility (Linux 6.2).";
        FLUSH_PERSISTENT = 1 << 9, "The remote side may flush to persistence (Linux 6.2).";
        RELAXED_ORDERING = 1 << 20, "PCI writes may overtake each other; optional.";
        OPTIONAL_RANGE = 0x3ff0_0000, "All bits that a kernel may ignore.";
    }

    /// The attributes of a queue pair that a command changes or queries.
    struct QpAttrMask: u32 "IBV_QP_" {
        STATE = 1 << 0, "State.";
        CUR_STATE = 1 << 1, "Assumed state.";
        EN_SQD_ASYNC_NOTIFY = 1 << 2, "Event when the send queue is drained.";
        ACCESS_FLAGS = 1 << 3, "What the remote side may do.";
        PKEY_INDEX = 1 << 4, "Partition key.";
        PORT = 1 << 5, "Port.";
        QKEY = 1 << 6, "Queue key.";
        AV = 1 << 7, "Path.";
        PATH_MTU = 1 << 8, "Largest packets.";
        TIMEOUT = 1 << 9, "Wait for an acknowledgement.";
        RETRY_CNT = 1 << 10, "Retries after such a wait.";
        RNR_RETRY = 1 << 11, "Retries when the receiver is not ready.";
        RQ_PSN = 1 << 12, "First sequence number expected.";
        MAX_QP_RD_ATOMIC = 1 << 13, "Outgoing reads and atomic operations.";
        ALT_PATH = 1 << 14, "Alternate path.";
        MIN_RNR_TIMER = 1 << 15, "Wait asked of a sender.";
        SQ_PSN = 1 << 16, "First sequence number sent.";
        MAX_DEST_RD_ATOMIC = 1 << 17, "Incoming reads and atomic operations.";
        PATH_MIG_STATE = 1 << 18, "Path migration.";
        CAP = 1 << 19, "Capacities.";
        DEST_QPN = 1 << 20, "Remote queue pair number.";
        RATE_LIMIT = 1 << 25, "Rate limit; only the extended command takes it.";
    }

    /// Flags of a new queue pair.
    struct QpCreateFlags: u32 "IB_UVERBS_QP_CREATE_" {
        BLOCK_MULTICAST_LOOPBACK = 1 << 1, "Own multicast does not come back.";
        SCATTER_FCS = 1 << 8, "The frame check sequence is delivered too.";
        CVLAN_STRIPPING = 1 << 9, "VLAN tags are taken off.";
        PCI_WRITE_END_PADDING = 1 << 11, "Writes are padded to a cache line.";
        SQ_SIG_ALL = 1 << 12, "Every send request creates a completion.";
    }

    /// The optional fields of [`crate::write::ExCreateQp`] that are set.
    struct ExCreateQpMask: u32 "IB_UVERBS_CREATE_QP_MASK_" {
        IND_TABLE = 1 << 0, "`rwq_ind_tbl_handle`.";
    }

    /// Flags of a new completion queue.
    struct CqFlags: u32 "IB_UVERBS_CQ_FLAGS_" {
        TIMESTAMP_COMPLETION = 1 << 0, "Completions carry a timestamp.";
        IGNORE_OVERRUN = 1 << 1, "The queue never overruns, or nobody cares.";
    }

    /// Flags of a work queue.
    struct WqFlags: u32 "IB_UVERBS_WQ_FLAGS_" {
        CVLAN_STRIPPING = 1 << 0, "VLAN tags are taken off.";
        SCATTER_FCS = 1 << 1, "The frame check sequence is delivered too.";
        DELAY_DROP = 1 << 2, "Wait a while before dropping for lack of requests.";
        PCI_WRITE_END_PADDING = 1 << 3, "Writes are padded to a cache line.";
    }

    /// Flags of a send request.
    struct SendFlags: u32 "IBV_SEND_" {
        FENCE = 1 << 0, "Wait for earlier reads and atomic operations.";
        SIGNALED = 1 << 1, "Create a completion.";
        SOLICITED = 1 << 2, "Wake a receiver that waits for solicited messages.";
        INLINE = 1 << 3, "The data is inside the request.";
        IP_CSUM = 1 << 4, "Fill in checksums.";
    }

    /// Flags of a completion, with the kernel's numbers: two of them have other numbers in libibverbs.
    struct WcFlags: u32 "" {
        GRH () = 1 << 0, "Datagram: 40 bytes of routing header come before the data.";
        WITH_IMM () = 1 << 1, "There is immediate data.";
        WITH_INVALIDATE () = 1 << 2, "A key was invalidated (`IBV_WC_WITH_INV` is bit 3).";
        IP_CSUM_OK () = 1 << 3, "Checksums are good (`IBV_WC_IP_CSUM_OK` is bit 2).";
        WITH_SMAC () = 1 << 4, "The sender's Ethernet address is known; kernel only.";
        WITH_VLAN () = 1 << 5, "A VLAN tag was taken off, and is known.";
        WITH_NETWORK_HDR_TYPE () = 1 << 6, "The kind of network header is known; kernel only.";
    }

    /// Flags of a read of counters.
    struct ReadCountersFlags: u32 "IB_UVERBS_READ_COUNTERS_" {
        PREFER_CACHED = 1 << 0, "Values from a cache of the driver will do; no kernel has one.";
    }

    /// Flags of advice about a region.
    struct AdviseFlags: u32 "IB_UVERBS_ADVISE_MR_FLAG_" {
        FLUSH = 1 << 0, "Return when it is done.";
    }

    /// Operations that a completion counter counts (Linux 7.3).
    struct CompCntrOps: u32 "IB_UVERBS_QP_ATTACH_COMP_CNTR_OP_" {
        SEND = 1 << 0, "Sends.";
        RECV = 1 << 1, "Receives.";
        RDMA_READ = 1 << 2, "Reads.";
        REMOTE_RDMA_READ = 1 << 3, "Reads by the remote side.";
        RDMA_WRITE = 1 << 4, "Writes.";
        REMOTE_RDMA_WRITE = 1 << 5, "Writes by the remote side.";
    }

    /// What the core of the kernel supports.
    struct CoreSupport: u64 "IB_UVERBS_CORE_SUPPORT_" {
        OPTIONAL_MR_ACCESS = 1 << 0, "Optional access flags are ignored if unknown.";
        ROBUST_UDATA = 1 << 1, "The driver checks its input strictly (Linux 7.2).";
    }

    /// Capabilities of a device. Bits not named here have no meaning in user space.
    struct DeviceCapFlags: u64 "IB_UVERBS_DEVICE_" {
        RESIZE_MAX_WR = 1 << 0, "Rings can be resized.";
        BAD_PKEY_CNTR = 1 << 1, "Counts bad partition keys.";
        BAD_QKEY_CNTR = 1 << 2, "Counts bad queue keys.";
        RAW_MULTI = 1 << 3, "Raw multicast.";
        AUTO_PATH_MIG = 1 << 4, "Path migration.";
        CHANGE_PHY_PORT = 1 << 5, "A queue pair can change its port.";
        UD_AV_PORT_ENFORCE = 1 << 6, "Checks the port of an address.";
        CURR_QP_STATE_MOD = 1 << 7, "Takes an assumed state.";
        SHUTDOWN_PORT = 1 << 8, "Ports can be shut down.";
        PORT_ACTIVE_EVENT = 1 << 10, "Raises an event when a port becomes active.";
        SYS_IMAGE_GUID = 1 << 11, "Has a system GUID.";
        RC_RNR_NAK_GEN = 1 << 12, "Tells senders that the receiver is not ready.";
        SRQ_RESIZE = 1 << 13, "Shared receive queues can be resized.";
        N_NOTIFY_CQ = 1 << 14, "Can announce after n completions.";
        MEM_WINDOW = 1 << 17, "Memory windows of type 1.";
        UD_IP_CSUM = 1 << 18, "Checksums for datagrams.";
        XRC = 1 << 20, "Extended reliable connections.";
        MEM_MGT_EXTENSIONS = 1 << 21, "Fast registration and sends that invalidate.";
        MEM_WINDOW_TYPE_2A = 1 << 23, "Memory windows of type 2A.";
        MEM_WINDOW_TYPE_2B = 1 << 24, "Memory windows of type 2B.";
        RC_IP_CSUM = 1 << 25, "Checksums for connections.";
        RAW_IP_CSUM = 1 << 26, "Checksums for raw packets; see [`RawPacketCaps`].";
        MANAGED_FLOW_STEERING = 1 << 29, "Flows.";
        RAW_SCATTER_FCS = 1 << 34, "Delivers frame check sequences; see [`RawPacketCaps`].";
        PCI_WRITE_END_PADDING = 1 << 36, "Writes can be padded to a cache line.";
        FLUSH_GLOBAL = 1 << 38, "Flush to visibility (Linux 6.2).";
        FLUSH_PERSISTENT = 1 << 39, "Flush to persistence (Linux 6.2).";
        ATOMIC_WRITE = 1 << 40, "Atomic writes (Linux 6.2).";
    }

    /// On-demand paging in general.
    struct OdpGeneralCaps: u64 "IBV_ODP_" {
        SUPPORT = 1 << 0, "Supported.";
        SUPPORT_IMPLICIT = 1 << 1, "The whole address space can be one region.";
    }

    /// Operations that work with on-demand paging.
    struct OdpTransportCaps: u32 "IB_UVERBS_ODP_SUPPORT_" {
        SEND ("IBV_ODP_SUPPORT_SEND") = 1 << 0, "Sends.";
        RECV ("IBV_ODP_SUPPORT_RECV") = 1 << 1, "Receives.";
        WRITE ("IBV_ODP_SUPPORT_WRITE") = 1 << 2, "Writes.";
        READ ("IBV_ODP_SUPPORT_READ") = 1 << 3, "Reads.";
        ATOMIC ("IBV_ODP_SUPPORT_ATOMIC") = 1 << 4, "Atomic operations.";
        SRQ_RECV ("IBV_ODP_SUPPORT_SRQ_RECV") = 1 << 5, "Receives from a shared queue.";
        FLUSH = 1 << 6, "Flushes (Linux 6.2).";
        ATOMIC_WRITE = 1 << 7, "Atomic writes (Linux 6.2).";
    }

    /// Capabilities for raw packets.
    struct RawPacketCaps: u32 "IB_UVERBS_RAW_PACKET_CAP_" {
        CVLAN_STRIPPING = 1 << 0, "VLAN tags can be taken off.";
        SCATTER_FCS = 1 << 1, "Frame check sequences can be delivered.";
        IP_CSUM = 1 << 2, "Checksums.";
        DELAY_DROP = 1 << 3, "Can wait before dropping.";
    }

    /// Flags of a port.
    struct PortFlags: u8 "IB_UVERBS_QPF_" {
        GRH_REQUIRED = 1 << 0, "Addresses need a routing part.";
    }

    /// Capabilities of a port.
    struct PortCapFlags: u32 "IB_UVERBS_PCF_" {
        SM = 1 << 1, "Has a subnet manager.";
        NOTICE_SUP = 1 << 2, "Notices.";
        TRAP_SUP = 1 << 3, "Traps.";
        OPT_IPD_SUP = 1 << 4, "Optional packet delays.";
        AUTO_MIGR_SUP = 1 << 5, "Path migration.";
        SL_MAP_SUP = 1 << 6, "Maps service levels.";
        MKEY_NVRAM = 1 << 7, "Keeps its management key.";
        PKEY_NVRAM = 1 << 8, "Keeps its partition keys.";
        LED_INFO_SUP = 1 << 9, "Controls a lamp.";
        SM_DISABLED = 1 << 10, "Its subnet manager is disabled.";
        SYS_IMAGE_GUID_SUP = 1 << 11, "Has a system GUID.";
        PKEY_SW_EXT_PORT_TRAP_SUP = 1 << 12, "Partition key traps of a switch.";
        EXTENDED_SPEEDS_SUP = 1 << 14, "Extended speeds.";
        CM_SUP = 1 << 16, "Connection management.";
        SNMP_TUNNEL_SUP = 1 << 17, "Tunnels SNMP.";
        REINIT_SUP = 1 << 18, "Can be initialised again.";
        DEVICE_MGMT_SUP = 1 << 19, "Device management.";
        VENDOR_CLASS_SUP = 1 << 20, "Vendor management.";
        DR_NOTICE_SUP = 1 << 21, "Notices by directed route.";
        CAP_MASK_NOTICE_SUP = 1 << 22, "Notices of changed capabilities.";
        BOOT_MGMT_SUP = 1 << 23, "Boot management.";
        LINK_LATENCY_SUP = 1 << 24, "Measures the latency of the link.";
        CLIENT_REG_SUP = 1 << 25, "Asks for registrations again.";
        IP_BASED_GIDS = 1 << 26, "GIDs are made of IP addresses; Linux's own.";
        LINK_SPEED_WIDTH_TABLE_SUP = 1 << 27, "Table of speeds and widths.";
        VENDOR_SPECIFIC_MADS_TABLE_SUP = 1 << 28, "Table of vendor management.";
        MCAST_PKEY_TRAP_SUPPRESSION_SUP = 1 << 29, "Suppresses multicast traps.";
        MCAST_FDB_TOP_SUP = 1 << 30, "Top of the multicast table.";
        HIERARCHY_INFO_SUP = 1 << 31, "Reports its place in the hierarchy.";
    }
}
