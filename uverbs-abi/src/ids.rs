//! Numbers of the ioctl interface: objects, their methods and the attributes of each method.
//!
//! One module per object. `ids::counters::read::BUFF` is attribute BUFF of method READ of object COUNTERS:
//! the kernel's name without its prefix. Driver-private objects live with the driver, see [`crate::mlx5::ids`].

object! {
    /// The device itself: queries, the context, and the old commands.
    device ("UVERBS_OBJECT_DEVICE") = 0;
    method: "UVERBS_METHOD_" {
        INVOKE_WRITE = 0, "Runs a command of [`crate::write::cmd`].";
        INFO_HANDLES = 1, "Lists the handles of one kind of object.";
        QUERY_PORT = 2, "Reads the attributes of a port.";
        GET_CONTEXT = 3, "Creates the file's context.";
        QUERY_CONTEXT = 4, "Returns the response of creating the context again.";
        QUERY_GID_TABLE = 5, "Reads all GIDs of the device.";
        QUERY_GID_ENTRY = 6, "Reads one GID.";
        QUERY_PORT_SPEED = 7, "Reads the speed of a port (Linux 7.2).";
        QUERY_COMP_CNTR_CAPS = 8, "Reads what completion counters can do (Linux 7.3).";
    }
    invoke_write: "UVERBS_ATTR_" {
        CORE_IN = 0, "Request, without the headers of a write.";
        CORE_OUT = 1, "Where the response goes.";
        WRITE_CMD = 2, "Number of the command, with the extended bit.";
    }
    info_handles: "UVERBS_ATTR_INFO_" {
        OBJECT_ID = 0, "Kind of object.";
        TOTAL_HANDLES = 1, "Out: number of handles returned.";
        HANDLES_LIST ("UVERBS_ATTR_INFO_HANDLES_LIST") = 2, "Out: the handles, four bytes each.";
    }
    query_port: "UVERBS_ATTR_QUERY_PORT_" {
        PORT_NUM = 0, "Port, from 1.";
        RESP = 1, "Out: [`crate::write::QueryPortRespEx`].";
    }
    get_context: "UVERBS_ATTR_GET_CONTEXT_" {
        NUM_COMP_VECTORS = 0, "Out: number of completion vectors.";
        CORE_SUPPORT = 1, "Out: what the core supports.";
        FD_ARR = 2, "File descriptors of capability nodes (Linux 7.2).";
    }
    query_context: "UVERBS_ATTR_QUERY_CONTEXT_" {
        NUM_COMP_VECTORS = 0, "Out: number of completion vectors.";
        CORE_SUPPORT = 1, "Out: what the core supports.";
    }
    query_gid_table: "UVERBS_ATTR_QUERY_GID_TABLE_" {
        ENTRY_SIZE = 0, "Bytes of one entry of the output.";
        FLAGS = 1, "Zero.";
        RESP_ENTRIES = 2, "Out: the entries, [`crate::write::GidEntry`].";
        RESP_NUM_ENTRIES = 3, "Out: their number.";
    }
    query_gid_entry: "UVERBS_ATTR_QUERY_GID_ENTRY_" {
        PORT = 0, "Port, from 1.";
        GID_INDEX = 1, "Index in the port's table.";
        FLAGS = 2, "Zero, but it has to be sent.";
        RESP_ENTRY = 3, "Out: [`crate::write::GidEntry`].";
    }
    query_port_speed: "UVERBS_ATTR_QUERY_PORT_SPEED_" {
        PORT_NUM = 0, "Port, from 1 (Linux 7.2).";
        RESP = 1, "Out: speed of all lanes together, in units of 100 Mb/s (Linux 7.2).";
    }
    query_comp_cntr_caps: "UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_" {
        MAX_COUNTERS = 0, "Out: most counters (Linux 7.3).";
        MAX_VALUE = 1, "Out: highest value of a counter (Linux 7.3).";
        SUPPORTED_QP_ATTACH_OPS = 2, "Out: operations that can be counted (Linux 7.3).";
    }
}

object! {
    /// Protection domains.
    pd ("UVERBS_OBJECT_PD") = 1;
    method: "UVERBS_METHOD_PD_" {
        DESTROY = 0, "Destroys the domain.";
    }
    destroy: "UVERBS_ATTR_DESTROY_PD_" {
        HANDLE = 0, "The protection domain.";
    }
}

object! {
    /// Completion channels: files to which queues send completion events; created by a write command.
    comp_channel ("UVERBS_OBJECT_COMP_CHANNEL") = 2;
}

object! {
    /// Completion queues.
    cq ("UVERBS_OBJECT_CQ") = 3;
    method: "UVERBS_METHOD_CQ_" {
        CREATE = 0, "Creates a completion queue.";
        DESTROY = 1, "Destroys it.";
    }
    create: "UVERBS_ATTR_CREATE_CQ_" {
        HANDLE = 0, "Out: the new queue.";
        CQE = 1, "Least number of entries, not zero.";
        USER_HANDLE = 2, "Value that events of the queue will carry.";
        COMP_CHANNEL = 3, "File of the channel that announces completions.";
        COMP_VECTOR = 4, "Completion vector, below the context's number of them.";
        FLAGS = 5, "See [`crate::types::CqFlags`].";
        RESP_CQE = 6, "Out: real number of entries.";
        EVENT_FD = 7, "File for asynchronous events.";
        BUFFER_VA = 8, "Address of a buffer to use (Linux 7.2).";
        BUFFER_LENGTH = 9, "Bytes of that buffer (Linux 7.2).";
        BUFFER_FD = 10, "Memory file of that buffer (Linux 7.2).";
        BUFFER_OFFSET = 11, "Offset in that file (Linux 7.2).";
        BUF_UMEM = 12, "The buffer as [`crate::write::BufferDesc`] (Linux 7.2).";
    }
    destroy: "UVERBS_ATTR_DESTROY_CQ_" {
        HANDLE = 0, "The queue.";
        RESP = 1, "Out: [`crate::write::DestroyCqResp`].";
    }
}

object! {
    /// Queue pairs.
    qp ("UVERBS_OBJECT_QP") = 4;
    method: "UVERBS_METHOD_QP_" {
        CREATE = 0, "Creates a queue pair.";
        DESTROY = 1, "Destroys it.";
        ATTACH_COMP_CNTR = 2, "Attaches a completion counter (Linux 7.3).";
    }
    create: "UVERBS_ATTR_CREATE_QP_" {
        HANDLE = 0, "Out: the new queue pair.";
        XRCD_HANDLE = 1, "Domain of extended reliable connections.";
        PD_HANDLE = 2, "Protection domain.";
        SRQ_HANDLE = 3, "Shared receive queue.";
        SEND_CQ_HANDLE = 4, "Where sends complete.";
        RECV_CQ_HANDLE = 5, "Where receives complete.";
        IND_TABLE_HANDLE = 6, "Indirection table, for receive-side scaling.";
        USER_HANDLE = 7, "Value that events of the queue pair will carry.";
        CAP = 8, "Wanted capacities, [`crate::write::QpCap`].";
        TYPE = 9, "See [`crate::types::qp_type`].";
        FLAGS = 10, "See [`crate::types::QpCreateFlags`].";
        SOURCE_QPN = 11, "Queue pair number that packets shall show.";
        EVENT_FD = 12, "File for asynchronous events.";
        RESP_CAP = 13, "Out: real capacities, [`crate::write::QpCap`].";
        RESP_QP_NUM = 14, "Out: the queue pair's number.";
        BUF_UMEM = 15, "Buffer of both rings, [`crate::write::BufferDesc`] (Linux 7.2).";
        RQ_BUF_UMEM = 16, "Buffer of the receive ring (Linux 7.2).";
        SQ_BUF_UMEM = 17, "Buffer of the send ring (Linux 7.2).";
    }
    destroy: "UVERBS_ATTR_DESTROY_QP_" {
        HANDLE = 0, "The queue pair.";
        RESP = 1, "Out: [`crate::write::DestroyQpResp`].";
    }
    attach_comp_cntr: "UVERBS_ATTR_QP_ATTACH_COMP_CNTR_" {
        HANDLE = 0, "The queue pair (Linux 7.3).";
        CNTR_HANDLE = 1, "The counter (Linux 7.3).";
        OP_MASK = 2, "What to count, see [`crate::types::CompCntrOps`] (Linux 7.3).";
    }
}

object! {
    /// Shared receive queues.
    srq ("UVERBS_OBJECT_SRQ") = 5;
    method: "UVERBS_METHOD_SRQ_" {
        CREATE = 0, "Creates a shared receive queue.";
        DESTROY = 1, "Destroys it.";
    }
    create: "UVERBS_ATTR_CREATE_SRQ_" {
        HANDLE = 0, "Out: the new queue.";
        PD_HANDLE = 1, "Protection domain.";
        XRCD_HANDLE = 2, "Domain of extended reliable connections.";
        CQ_HANDLE = 3, "Completion queue, for types that have one.";
        USER_HANDLE = 4, "Value that events of the queue will carry.";
        MAX_WR = 5, "Wanted number of requests.";
        MAX_SGE = 6, "Wanted pieces of memory per request.";
        LIMIT = 7, "Fill level below which an event is raised; zero for never.";
        MAX_NUM_TAGS = 8, "Entries of the tag list, for tag matching.";
        TYPE = 9, "See [`crate::types::srq_type`].";
        EVENT_FD = 10, "File for asynchronous events.";
        RESP_MAX_WR = 11, "Out: real number of requests.";
        RESP_MAX_SGE = 12, "Out: real pieces of memory per request.";
        RESP_SRQ_NUM = 13, "Out: the queue's number, for extended reliable connections.";
    }
    destroy: "UVERBS_ATTR_DESTROY_SRQ_" {
        HANDLE = 0, "The queue.";
        RESP = 1, "Out: [`crate::write::DestroySrqResp`].";
    }
}

object! {
    /// Address handles.
    ah ("UVERBS_OBJECT_AH") = 6;
    method: "UVERBS_METHOD_AH_" {
        DESTROY = 0, "Destroys the address handle.";
    }
    destroy: "UVERBS_ATTR_DESTROY_AH_" {
        HANDLE = 0, "The address handle.";
    }
}

object! {
    /// Memory regions.
    mr ("UVERBS_OBJECT_MR") = 7;
    method: "UVERBS_METHOD_" {
        DM_MR_REG = 0, "Registers device memory.";
        DESTROY ("UVERBS_METHOD_MR_DESTROY") = 1, "Deregisters a region.";
        ADVISE ("UVERBS_METHOD_ADVISE_MR") = 2, "Asks for pages to be brought in.";
        QUERY ("UVERBS_METHOD_QUERY_MR") = 3, "Reads keys and size of a region.";
        REG_DMABUF ("UVERBS_METHOD_REG_DMABUF_MR") = 4, "Registers memory of another device.";
        REG ("UVERBS_METHOD_REG_MR") = 5, "Registers memory (Linux 7.2; a write command before).";
    }
    dm_mr_reg: "UVERBS_ATTR_REG_DM_MR_" {
        HANDLE = 0, "Out: the new region.";
        OFFSET = 1, "Start in the device memory.";
        LENGTH = 2, "Bytes.";
        PD_HANDLE = 3, "Protection domain.";
        ACCESS_FLAGS = 4, "See [`crate::types::AccessFlags`].";
        DM_HANDLE = 5, "The device memory.";
        RESP_LKEY = 6, "Out: local key.";
        RESP_RKEY = 7, "Out: remote key.";
    }
    destroy: "UVERBS_ATTR_DESTROY_MR_" {
        HANDLE = 0, "The region.";
    }
    advise: "UVERBS_ATTR_ADVISE_MR_" {
        PD_HANDLE = 0, "Protection domain.";
        ADVICE = 1, "See [`crate::types::advise`].";
        FLAGS = 2, "See [`crate::types::AdviseFlags`].";
        SGE_LIST = 3, "The pieces, [`crate::write::Sge`].";
    }
    query: "UVERBS_ATTR_QUERY_MR_" {
        HANDLE = 0, "The region.";
        RESP_LKEY = 1, "Out: local key.";
        RESP_RKEY = 2, "Out: remote key.";
        RESP_LENGTH = 3, "Out: bytes.";
        RESP_IOVA = 4, "Out: address that the device uses.";
    }
    reg_dmabuf: "UVERBS_ATTR_REG_DMABUF_MR_" {
        HANDLE = 0, "Out: the new region.";
        PD_HANDLE = 1, "Protection domain.";
        OFFSET = 2, "Start in the dma-buf.";
        LENGTH = 3, "Bytes.";
        IOVA = 4, "Address that the device shall use.";
        FD = 5, "File of the dma-buf.";
        ACCESS_FLAGS = 6, "See [`crate::types::AccessFlags`].";
        RESP_LKEY = 7, "Out: local key.";
        RESP_RKEY = 8, "Out: remote key.";
    }
    reg: "UVERBS_ATTR_REG_MR_" {
        HANDLE = 0, "Out: the new region (Linux 7.2).";
        PD_HANDLE = 1, "Protection domain (Linux 7.2).";
        DMA_HANDLE = 2, "DMA hints (Linux 7.2).";
        IOVA = 3, "Address that the device shall use (Linux 7.2).";
        ADDR = 4, "Address in the process (Linux 7.2).";
        LENGTH = 5, "Bytes (Linux 7.2).";
        ACCESS_FLAGS = 6, "See [`crate::types::AccessFlags`] (Linux 7.2).";
        FD = 7, "File of a dma-buf, instead of an address (Linux 7.2).";
        FD_OFFSET = 8, "Start in the dma-buf (Linux 7.2).";
        RESP_LKEY = 9, "Out: local key (Linux 7.2).";
        RESP_RKEY = 10, "Out: remote key (Linux 7.2).";
    }
}

object! {
    /// Memory windows.
    mw ("UVERBS_OBJECT_MW") = 8;
    method: "UVERBS_METHOD_MW_" {
        DESTROY = 0, "Destroys the window.";
    }
    destroy: "UVERBS_ATTR_DESTROY_MW_" {
        HANDLE = 0, "The window.";
    }
}

object! {
    /// Flows: rules that steer packets; created by a write command.
    flow ("UVERBS_OBJECT_FLOW") = 9;
    method: "UVERBS_METHOD_FLOW_" {
        DESTROY = 0, "Destroys the flow.";
    }
    destroy: "UVERBS_ATTR_DESTROY_FLOW_" {
        HANDLE = 0, "The flow.";
    }
}

object! {
    /// Domains of extended reliable connections.
    xrcd ("UVERBS_OBJECT_XRCD") = 10;
    method: "UVERBS_METHOD_XRCD_" {
        DESTROY = 0, "Closes the domain.";
    }
    destroy: "UVERBS_ATTR_DESTROY_XRCD_" {
        HANDLE = 0, "The domain.";
    }
}

object! {
    /// Indirection tables of receive work queues.
    rwq_ind_tbl ("UVERBS_OBJECT_RWQ_IND_TBL") = 11;
    method: "UVERBS_METHOD_RWQ_IND_TBL_" {
        DESTROY = 0, "Destroys the table.";
    }
    destroy: "UVERBS_ATTR_DESTROY_RWQ_IND_TBL_" {
        HANDLE = 0, "The table.";
    }
}

object! {
    /// Work queues.
    wq ("UVERBS_OBJECT_WQ") = 12;
    method: "UVERBS_METHOD_WQ_" {
        CREATE = 0, "Creates a work queue.";
        DESTROY = 1, "Destroys it.";
    }
    create: "UVERBS_ATTR_CREATE_WQ_" {
        HANDLE = 0, "Out: the new queue.";
        PD_HANDLE = 1, "Protection domain.";
        CQ_HANDLE = 2, "Where its work completes.";
        USER_HANDLE = 3, "Value that events of the queue will carry.";
        TYPE = 4, "Zero: a receive queue.";
        EVENT_FD = 5, "File for asynchronous events.";
        MAX_WR = 6, "Wanted number of requests.";
        MAX_SGE = 7, "Wanted pieces of memory per request.";
        FLAGS = 8, "See [`crate::types::WqFlags`].";
        RESP_MAX_WR = 9, "Out: real number of requests.";
        RESP_MAX_SGE = 10, "Out: real pieces of memory per request.";
        RESP_WQ_NUM = 11, "Out: the queue's number.";
    }
    destroy: "UVERBS_ATTR_DESTROY_WQ_" {
        HANDLE = 0, "The queue.";
        RESP = 1, "Out: number of events already read, a u32.";
    }
}

object! {
    /// Flow actions: what a rule does to its packets.
    flow_action ("UVERBS_OBJECT_FLOW_ACTION") = 13;
    method: "UVERBS_METHOD_FLOW_ACTION_" {
        ESP_CREATE = 0, "Numbered, but in none of Linux 6.1 to 7.2.";
        DESTROY = 1, "Destroys the action.";
        ESP_MODIFY = 2, "Numbered, but in none of Linux 6.1 to 7.2.";
    }
    esp_create: "UVERBS_ATTR_FLOW_ACTION_ESP_" {
        HANDLE ("UVERBS_ATTR_CREATE_FLOW_ACTION_ESP_HANDLE") = 0, "Out: the new action.";
        ATTRS = 1, "[`crate::write::FlowActionEsp`].";
        ESN = 2, "Extended sequence number.";
        KEYMAT = 3, "Key material.";
        REPLAY = 4, "Replay protection.";
        ENCAP = 5, "Headers of the tunnel.";
    }
    destroy: "UVERBS_ATTR_DESTROY_FLOW_ACTION_" {
        HANDLE = 0, "The action.";
    }
    esp_modify: "UVERBS_ATTR_MODIFY_FLOW_ACTION_ESP_" {
        HANDLE = 0, "The action.";
    }
}

object! {
    /// Memory on the device.
    dm ("UVERBS_OBJECT_DM") = 14;
    method: "UVERBS_METHOD_DM_" {
        ALLOC = 0, "Allocates device memory.";
        FREE = 1, "Frees it.";
    }
    alloc: "UVERBS_ATTR_ALLOC_DM_" {
        HANDLE = 0, "Out: the memory.";
        LENGTH = 1, "Bytes.";
        ALIGNMENT = 2, "Alignment as a power of two.";
    }
    free: "UVERBS_ATTR_FREE_DM_" {
        HANDLE = 0, "The memory.";
    }
}

object! {
    /// Counters: values that flows increment.
    counters ("UVERBS_OBJECT_COUNTERS") = 15;
    method: "UVERBS_METHOD_COUNTERS_" {
        CREATE = 0, "Creates a counters object.";
        DESTROY = 1, "Destroys it; EBUSY while a flow uses it.";
        READ = 2, "Reads its values; EINVAL while no flow uses it.";
    }
    create: "UVERBS_ATTR_CREATE_COUNTERS_" {
        HANDLE = 0, "Out: the new counters object.";
    }
    destroy: "UVERBS_ATTR_DESTROY_COUNTERS_" {
        HANDLE = 0, "The counters object.";
    }
    read: "UVERBS_ATTR_READ_COUNTERS_" {
        HANDLE = 0, "The counters object.";
        BUFF = 1, "Out: the values, eight bytes each.";
        FLAGS = 2, "See [`crate::types::ReadCountersFlags`].";
    }
}

object! {
    /// Files of asynchronous events.
    async_event ("UVERBS_OBJECT_ASYNC_EVENT") = 16;
    method: "UVERBS_METHOD_ASYNC_EVENT_" {
        ALLOC = 0, "Creates an event file.";
    }
    alloc: "UVERBS_ATTR_ASYNC_EVENT_ALLOC_" {
        FD_HANDLE = 0, "Out: its file descriptor.";
    }
}

object! {
    /// Hints for DMA (Linux 7.2).
    dmah ("UVERBS_OBJECT_DMAH") = 17;
    method: "UVERBS_METHOD_DMAH_" {
        ALLOC = 0, "Creates a hint (Linux 7.2).";
        FREE = 1, "Frees it (Linux 7.2).";
    }
    alloc: "UVERBS_ATTR_ALLOC_DMAH_" {
        HANDLE = 0, "Out: the hint (Linux 7.2).";
        CPU_ID = 1, "Processor that data shall be near to (Linux 7.2).";
        TPH_MEM_TYPE = 2, "Kind of memory, by element number (Linux 7.2).";
        PH = 3, "Processing hint (Linux 7.2).";
    }
    free: "UVERBS_ATTR_FREE_DMAH_" {
        HANDLE ("UVERBS_ATTR_FREE_DMA_HANDLE") = 0, "The hint (Linux 7.2).";
    }
}

object! {
    /// Buffers of the device shared with other devices (Linux 7.2).
    dmabuf ("UVERBS_OBJECT_DMABUF") = 18;
    method: "UVERBS_METHOD_DMABUF_" {
        ALLOC = 0, "Creates a dma-buf of a mappable range (Linux 7.2).";
    }
    alloc: "UVERBS_ATTR_ALLOC_DMABUF_" {
        HANDLE = 0, "Out: its file descriptor (Linux 7.2).";
        PGOFF = 1, "Mapping offset in pages (Linux 7.2).";
    }
}

object! {
    /// Completion counters (Linux 7.3).
    comp_cntr ("UVERBS_OBJECT_COMP_CNTR") = 19;
    method: "UVERBS_METHOD_COMP_CNTR_" {
        CREATE = 0, "Creates a completion counter (Linux 7.3).";
        DESTROY = 1, "Destroys it (Linux 7.3).";
        MODIFY = 2, "Sets or increments a value (Linux 7.3).";
        READ = 3, "Reads a value (Linux 7.3).";
    }
    create: "UVERBS_ATTR_CREATE_COMP_CNTR_" {
        HANDLE = 0, "Out: the new counter (Linux 7.3).";
    }
    destroy: "UVERBS_ATTR_DESTROY_COMP_CNTR_" {
        HANDLE = 0, "The counter (Linux 7.3).";
    }
    modify: "UVERBS_ATTR_MODIFY_COMP_CNTR_" {
        HANDLE = 0, "The counter (Linux 7.3).";
        ENTRY = 1, "See [`crate::types::comp_cntr_entry`] (Linux 7.3).";
        OP = 2, "See [`crate::types::comp_cntr_op`] (Linux 7.3).";
        VALUE = 3, "The operand (Linux 7.3).";
    }
    read: "UVERBS_ATTR_READ_COMP_CNTR_" {
        HANDLE = 0, "The counter (Linux 7.3).";
        ENTRY = 1, "See [`crate::types::comp_cntr_entry`] (Linux 7.3).";
        RESP_VALUE = 2, "Out: the value (Linux 7.3).";
    }
}

/// The numbers of all objects as data.
pub(crate) const TABLES: &[&[&[crate::layout::Number]]] = &[
    device::TABLES,
    pd::TABLES,
    comp_channel::TABLES,
    cq::TABLES,
    qp::TABLES,
    srq::TABLES,
    ah::TABLES,
    mr::TABLES,
    mw::TABLES,
    flow::TABLES,
    xrcd::TABLES,
    rwq_ind_tbl::TABLES,
    wq::TABLES,
    flow_action::TABLES,
    dm::TABLES,
    counters::TABLES,
    async_event::TABLES,
    dmah::TABLES,
    dmabuf::TABLES,
    comp_cntr::TABLES,
];
