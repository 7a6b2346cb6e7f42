//! Numbers of the driver's own objects, and of what it adds to core objects.
//!
//! The scheme is that of [`crate::ids`]. All ids lie in the driver's range, from 0x1000 on.

object! {
    /// Added to the device.
    device ("UVERBS_OBJECT_DEVICE") = 0;
    method: "MLX5_IB_METHOD_" {
        QUERY_PORT = 0x1000, "Reads steering details of a port.";
        GET_DATA_DIRECT_SYSFS_PATH = 0x1001, "Reads where the data-direct function is in sysfs (after Linux 6.1).";
    }
    query_port: "MLX5_IB_ATTR_QUERY_PORT_" {
        PORT_NUM = 0x1000, "Port, from 1.";
        RESP ("MLX5_IB_ATTR_QUERY_PORT") = 0x1001, "Out: [`super::super::super::UapiQueryPort`].";
    }
    get_data_direct_sysfs_path: "MLX5_IB_ATTR_" {
        PATH ("MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH") = 0x1000, "Out: the path (after Linux 6.1).";
    }
    query_context: "MLX5_IB_ATTR_QUERY_CONTEXT_" {
        RESP_UCTX = 0x1000, "Out: [`super::super::super::AllocUcontextResp`].";
    }
}

object! {
    /// Added to protection domains.
    pd ("UVERBS_OBJECT_PD") = 1;
    method: "MLX5_IB_METHOD_PD_" {
        QUERY = 0x1000, "Reads the number of a domain.";
    }
    query: "MLX5_IB_ATTR_QUERY_PD_" {
        HANDLE = 0x1000, "The domain.";
        RESP_PDN = 0x1001, "Out: its number.";
    }
}

object! {
    /// Added to completion queues.
    cq ("UVERBS_OBJECT_CQ") = 3;
    create: "MLX5_IB_ATTR_CREATE_CQ_" {
        UAR_INDEX = 0x1002, "Page of a UAR object (Linux 7.2).";
        DBR_BUF_UMEM = 0x1003, "Doorbell record, [`crate::write::BufferDesc`] (after Linux 6.1).";
    }
}

object! {
    /// Added to queue pairs.
    qp ("UVERBS_OBJECT_QP") = 4;
    create: "MLX5_IB_ATTR_CREATE_QP_" {
        DBR_BUF_UMEM = 0x1002, "Doorbell record, [`crate::write::BufferDesc`] (after Linux 6.1).";
    }
}

object! {
    /// Added to memory regions.
    mr ("UVERBS_OBJECT_MR") = 7;
    reg_dmabuf: "MLX5_IB_ATTR_REG_DMABUF_MR_" {
        ACCESS_FLAGS = 0x1000, "Bit 0: by the data-direct function (after Linux 6.1).";
    }
}

object! {
    /// Added to flows.
    flow ("UVERBS_OBJECT_FLOW") = 9;
    method: "MLX5_IB_METHOD_" {
        CREATE ("MLX5_IB_METHOD_CREATE_FLOW") = 0x1000, "Creates a flow from a matcher.";
        DESTROY ("MLX5_IB_METHOD_DESTROY_FLOW") = 0x1001, "Destroys it.";
    }
    create: "MLX5_IB_ATTR_CREATE_FLOW_" {
        HANDLE = 0x1000, "Out: the new flow.";
        MATCH_VALUE = 0x1001, "Values, [`super::super::super::MatchParams`].";
        DEST_QP = 0x1002, "Queue pair that gets the packets.";
        DEST_DEVX = 0x1003, "Device object that gets the packets.";
        MATCHER = 0x1004, "The matcher.";
        ARR_FLOW_ACTIONS = 0x1005, "Actions.";
        TAG = 0x1006, "Tag that completions will carry.";
        ARR_COUNTERS_DEVX = 0x1007, "Device object of the counter.";
        ARR_COUNTERS_DEVX_OFFSET = 0x1008, "Offset in a bulk of counters.";
        FLAGS = 0x1009, "See [`super::super::create_flow_flags`].";
    }
    destroy: "MLX5_IB_ATTR_DESTROY_FLOW_" {
        HANDLE = 0x1000, "The flow.";
    }
}

object! {
    /// Added to flow actions.
    flow_action ("UVERBS_OBJECT_FLOW_ACTION") = 13;
    method: "MLX5_IB_METHOD_FLOW_ACTION_" {
        CREATE_MODIFY_HEADER = 0x1000, "Creates an action that changes headers.";
        CREATE_PACKET_REFORMAT = 0x1001, "Creates an action that adds or removes headers.";
    }
    create_modify_header: "MLX5_IB_ATTR_CREATE_MODIFY_HEADER_" {
        HANDLE = 0x1000, "Out: the new action.";
        ACTIONS_PRM = 0x1001, "What to change, in the device's layout.";
        FT_TYPE = 0x1002, "Table, see [`super::super::flow_table_type`].";
    }
    create_packet_reformat: "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_" {
        HANDLE = 0x1000, "Out: the new action.";
        TYPE = 0x1001, "See [`super::super::packet_reformat_type`].";
        FT_TYPE = 0x1002, "Table, see [`super::super::flow_table_type`].";
        DATA_BUF = 0x1003, "Header to add.";
    }
    esp_create: "MLX5_IB_ATTR_CREATE_FLOW_ACTION_" {
        FLAGS = 0x1000, "Bit 0: metadata is required.";
    }
}

object! {
    /// Added to device memory.
    dm ("UVERBS_OBJECT_DM") = 14;
    method: "MLX5_IB_METHOD_DM_" {
        MAP_OP_ADDR = 0x1000, "Maps an address that does an operation when it is written.";
        QUERY = 0x1001, "Reads where memory can be mapped.";
    }
    alloc: "MLX5_IB_ATTR_ALLOC_DM_" {
        RESP_START_OFFSET = 0x1000, "Out: offset in the page.";
        RESP_PAGE_INDEX = 0x1001, "Out: index for mmap.";
        REQ_TYPE = 0x1002, "See [`super::super::dm_type`].";
    }
    map_op_addr: "MLX5_IB_ATTR_DM_MAP_OP_ADDR_" {
        REQ_HANDLE = 0x1000, "The memory.";
        REQ_OP = 0x1001, "The operation.";
        RESP_START_OFFSET = 0x1002, "Out: offset in the page.";
        RESP_PAGE_INDEX = 0x1003, "Out: index for mmap.";
    }
    query: "MLX5_IB_ATTR_QUERY_DM_" {
        REQ_HANDLE = 0x1000, "The memory.";
        RESP_START_OFFSET = 0x1001, "Out: offset in the page.";
        RESP_PAGE_INDEX = 0x1002, "Out: index for mmap.";
        RESP_LENGTH = 0x1003, "Out: bytes.";
    }
}

object! {
    /// DEVX: commands to the firmware, passed on unchanged.
    devx ("MLX5_IB_OBJECT_DEVX") = 0x1000;
    method: "MLX5_IB_METHOD_DEVX_" {
        OTHER = 0x1000, "Runs a command that is about no object.";
        QUERY_UAR = 0x1001, "Reads the device's index of a UAR.";
        QUERY_EQN = 0x1002, "Reads the number of an event queue.";
        SUBSCRIBE_EVENT = 0x1003, "Asks for events.";
    }
    other: "MLX5_IB_ATTR_DEVX_OTHER_" {
        CMD_IN = 0x1000, "The command.";
        CMD_OUT = 0x1001, "Out: the answer.";
    }
    query_uar: "MLX5_IB_ATTR_DEVX_QUERY_UAR_" {
        USER_IDX = 0x1000, "Index in the context.";
        DEV_IDX = 0x1001, "Out: index on the device.";
    }
    query_eqn: "MLX5_IB_ATTR_DEVX_QUERY_EQN_" {
        USER_VEC = 0x1000, "Completion vector.";
        DEV_EQN = 0x1001, "Out: event queue.";
    }
    subscribe_event: "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_" {
        FD_HANDLE = 0x1000, "Event file of the driver.";
        OBJ_HANDLE = 0x1001, "Object that the events are about.";
        TYPE_NUM_LIST = 0x1002, "Numbers of the events.";
        FD_NUM = 0x1003, "An eventfd to signal instead.";
        COOKIE = 0x1004, "Value that the events will carry.";
    }
}

object! {
    /// Objects created by firmware commands.
    devx_obj ("MLX5_IB_OBJECT_DEVX_OBJ") = 0x1001;
    method: "MLX5_IB_METHOD_DEVX_OBJ_" {
        CREATE = 0x1000, "Creates an object.";
        DESTROY = 0x1001, "Destroys it.";
        MODIFY = 0x1002, "Changes it.";
        QUERY = 0x1003, "Reads it.";
        ASYNC_QUERY = 0x1004, "Reads it, the answer comes by a file.";
    }
    create: "MLX5_IB_ATTR_DEVX_OBJ_CREATE_" {
        HANDLE = 0x1000, "Out: the new object.";
        CMD_IN = 0x1001, "The command.";
        CMD_OUT = 0x1002, "Out: the answer.";
    }
    destroy: "MLX5_IB_ATTR_DEVX_OBJ_DESTROY_" {
        HANDLE = 0x1000, "The object.";
    }
    modify: "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_" {
        HANDLE = 0x1000, "The object.";
        CMD_IN = 0x1001, "The command.";
        CMD_OUT = 0x1002, "Out: the answer.";
    }
    query: "MLX5_IB_ATTR_DEVX_OBJ_QUERY_" {
        HANDLE = 0x1000, "The object.";
        CMD_IN = 0x1001, "The command.";
        CMD_OUT = 0x1002, "Out: the answer.";
    }
    async_query: "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_" {
        HANDLE = 0x1000, "The object.";
        CMD_IN = 0x1001, "The command.";
        FD = 0x1002, "File that the answer comes by.";
        WR_ID = 0x1003, "Value that the answer will carry.";
        OUT_LEN = 0x1004, "Bytes of the answer.";
    }
}

object! {
    /// Memory for firmware commands.
    devx_umem ("MLX5_IB_OBJECT_DEVX_UMEM") = 0x1002;
    method: "MLX5_IB_METHOD_DEVX_UMEM_" {
        REG = 0x1000, "Registers memory.";
        DEREG = 0x1001, "Deregisters it.";
    }
    reg: "MLX5_IB_ATTR_DEVX_UMEM_REG_" {
        HANDLE = 0x1000, "Out: the memory.";
        ADDR = 0x1001, "Address.";
        LEN = 0x1002, "Bytes.";
        ACCESS = 0x1003, "See [`crate::types::AccessFlags`].";
        OUT_ID = 0x1004, "Out: number for commands.";
        PGSZ_BITMAP = 0x1005, "Page sizes that will do, one bit each.";
        DMABUF_FD = 0x1006, "File of a dma-buf.";
    }
    dereg: "MLX5_IB_ATTR_DEVX_UMEM_DEREG_" {
        HANDLE = 0x1000, "The memory.";
    }
}

object! {
    /// Matchers: the parts of a packet that a flow matches.
    flow_matcher ("MLX5_IB_OBJECT_FLOW_MATCHER") = 0x1003;
    method: "MLX5_IB_METHOD_FLOW_MATCHER_" {
        CREATE = 0x1000, "Creates a matcher.";
        DESTROY = 0x1001, "Destroys it.";
    }
    create: "MLX5_IB_ATTR_FLOW_MATCHER_" {
        HANDLE ("MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE") = 0x1000, "Out: the new matcher.";
        MATCH_MASK = 0x1001, "Mask, [`super::super::super::MatchParams`].";
        FLOW_TYPE = 0x1002, "Kind of flow; its element number is one of [`super::super::flow_type`].";
        MATCH_CRITERIA = 0x1003, "Parts of the mask that are used, one bit each.";
        FLOW_FLAGS = 0x1004, "Flags of the flow.";
        FT_TYPE = 0x1005, "Table, see [`super::super::flow_table_type`].";
        IB_PORT = 0x1006, "Port (after Linux 6.1).";
    }
    destroy: "MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_" {
        HANDLE = 0x1000, "The matcher.";
    }
}

object! {
    /// Files from which the answers to asynchronous commands are read.
    devx_async_cmd_fd ("MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD") = 0x1004;
    method: "MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_" {
        ALLOC = 0x1000, "Creates a file.";
    }
    alloc: "MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_" {
        HANDLE = 0x1000, "Out: its descriptor.";
    }
}

object! {
    /// Files from which device events are read.
    devx_async_event_fd ("MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD") = 0x1005;
    method: "MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_" {
        ALLOC = 0x1000, "Creates a file.";
    }
    alloc: "MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_" {
        HANDLE = 0x1000, "Out: its descriptor.";
        FLAGS = 0x1001, "Bit 0: events without data.";
    }
}

object! {
    /// Doorbell pages of emulated devices.
    var ("MLX5_IB_OBJECT_VAR") = 0x1006;
    method: "MLX5_IB_METHOD_VAR_OBJ_" {
        ALLOC = 0x1000, "Makes one.";
        DESTROY = 0x1001, "Destroys it.";
    }
    alloc: "MLX5_IB_ATTR_VAR_OBJ_ALLOC_" {
        HANDLE = 0x1000, "Out: the object.";
        MMAP_OFFSET = 0x1001, "Out: offset to pass to mmap.";
        MMAP_LENGTH = 0x1002, "Out: bytes to pass to mmap.";
        PAGE_ID = 0x1003, "Out: number of the page.";
        FLAGS = 0x1004, "Bit 0: for transaction layer packets (after Linux 6.1).";
    }
    destroy: "MLX5_IB_ATTR_VAR_OBJ_DESTROY_" {
        HANDLE = 0x1000, "The object.";
    }
}

object! {
    /// Packet pacing: entries of the rate table.
    pp ("MLX5_IB_OBJECT_PP") = 0x1007;
    method: "MLX5_IB_METHOD_PP_OBJ_" {
        ALLOC = 0x1000, "Makes one.";
        DESTROY = 0x1001, "Destroys it.";
    }
    alloc: "MLX5_IB_ATTR_PP_OBJ_ALLOC_" {
        HANDLE = 0x1000, "Out: the object.";
        CTX = 0x1001, "The rate, in the device's layout.";
        FLAGS = 0x1002, "Bit 0: an entry of its own.";
        INDEX = 0x1003, "Out: index of the entry.";
    }
    destroy: "MLX5_IB_ATTR_PP_OBJ_DESTROY_" {
        HANDLE = 0x1000, "The object.";
    }
}

object! {
    /// UARs: doorbell pages.
    uar ("MLX5_IB_OBJECT_UAR") = 0x1008;
    method: "MLX5_IB_METHOD_UAR_OBJ_" {
        ALLOC = 0x1000, "Makes one.";
        DESTROY = 0x1001, "Destroys it.";
    }
    alloc: "MLX5_IB_ATTR_UAR_OBJ_ALLOC_" {
        HANDLE = 0x1000, "Out: the object.";
        TYPE = 0x1001, "See [`super::super::uar_alloc_type`].";
        MMAP_OFFSET = 0x1002, "Out: offset to pass to mmap.";
        MMAP_LENGTH = 0x1003, "Out: bytes to pass to mmap.";
        PAGE_ID = 0x1004, "Out: number of the page.";
    }
    destroy: "MLX5_IB_ATTR_UAR_OBJ_DESTROY_" {
        HANDLE = 0x1000, "The object.";
    }
}

object! {
    /// Steering anchors: flow tables to which flows of the device can refer by number.
    steering_anchor ("MLX5_IB_OBJECT_STEERING_ANCHOR") = 0x1009;
    method: "MLX5_IB_METHOD_STEERING_ANCHOR_" {
        CREATE = 0x1000, "Creates an anchor.";
        DESTROY = 0x1001, "Destroys it.";
    }
    create: "MLX5_IB_ATTR_STEERING_ANCHOR_" {
        HANDLE ("MLX5_IB_ATTR_STEERING_ANCHOR_CREATE_HANDLE") = 0x1000, "Out: the new anchor.";
        FT_TYPE = 0x1001, "Table, see [`super::super::flow_table_type`].";
        PRIORITY = 0x1002, "Priority.";
        FT_ID = 0x1003, "Out: number of the table.";
    }
    destroy: "MLX5_IB_ATTR_STEERING_ANCHOR_DESTROY_" {
        HANDLE = 0x1000, "The anchor.";
    }
}

values! {
    /// Element numbers of the attribute FLOW_TYPE of a matcher; not those of [`crate::flow`].
    flow_type: u8 "MLX5_IB_FLOW_TYPE_" {
        NORMAL = 0, "Match by the mask.";
        SNIFFER = 1, "Take a copy of everything.";
        ALL_DEFAULT = 2, "Take what no other flow takes.";
        MC_DEFAULT = 3, "Take multicast that no other flow takes.";
    }

    /// Tables that flows can be in.
    flow_table_type: u64 "MLX5_IB_UAPI_FLOW_TABLE_TYPE_" {
        NIC_RX = 0, "What comes in.";
        NIC_TX = 1, "What goes out.";
        FDB = 2, "The switch.";
        RDMA_RX = 3, "RDMA that comes in.";
        RDMA_TX = 4, "RDMA that goes out.";
        RDMA_TRANSPORT_RX = 5, "RDMA transport that comes in (after Linux 6.1).";
        RDMA_TRANSPORT_TX = 6, "RDMA transport that goes out (after Linux 6.1).";
    }

    /// Bits of the attribute FLAGS of a new flow.
    create_flow_flags: u32 "MLX5_IB_ATTR_CREATE_FLOW_FLAGS_" {
        DEFAULT_MISS = 1, "Go on as if nothing had matched.";
        DROP = 2, "Drop.";
    }

    /// What a packet reformat does.
    packet_reformat_type: u64 "MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_" {
        L2_TUNNEL_TO_L2 = 0, "Takes off a tunnel that holds Ethernet.";
        L2_TO_L2_TUNNEL = 1, "Puts Ethernet into a tunnel.";
        L3_TUNNEL_TO_L2 = 2, "Takes off a tunnel that holds IP.";
        L2_TO_L3_TUNNEL = 3, "Puts IP into a tunnel.";
    }

    /// Kinds of device memory.
    dm_type: u64 "MLX5_IB_UAPI_DM_TYPE_" {
        MEMIC = 0, "Memory to read and write.";
        STEERING_SW_ICM = 1, "Steering tables.";
        HEADER_MODIFY_SW_ICM = 2, "Header changes.";
        HEADER_MODIFY_PATTERN_SW_ICM = 3, "Patterns of header changes.";
        ENCAP_SW_ICM = 4, "Encapsulation (after Linux 6.1).";
    }

    /// Kinds of doorbell page.
    uar_alloc_type: u64 "MLX5_IB_UAPI_UAR_ALLOC_TYPE_" {
        BF = 0, "Write-combining.";
        NC = 1, "Not cached.";
    }
}

/// The numbers of all objects as data.
pub(crate) const TABLES: &[&[&[crate::layout::Number]]] = &[
    device::TABLES,
    pd::TABLES,
    cq::TABLES,
    qp::TABLES,
    mr::TABLES,
    flow::TABLES,
    flow_action::TABLES,
    dm::TABLES,
    devx::TABLES,
    devx_obj::TABLES,
    devx_umem::TABLES,
    flow_matcher::TABLES,
    devx_async_cmd_fd::TABLES,
    devx_async_event_fd::TABLES,
    var::TABLES,
    pp::TABLES,
    uar::TABLES,
    steering_anchor::TABLES,
    VALUES,
];
