//! RDMA netlink: messages that find devices and their device files, read counters, and list objects.

numbers! {
    i32 "" {
        NETLINK_RDMA = 20, "Netlink family.";
    }
    u16 "RDMA_NL_" {
        NLDEV = 5, "Client that answers about devices.";
    }
    u16 "" {
        FLAG_REQUEST ("NLM_F_REQUEST") = 0x001, "Message flag: a request.";
        FLAG_MULTI ("NLM_F_MULTI") = 0x002, "Message flag: more messages follow, until [`MSG_DONE`].";
        FLAG_ACK ("NLM_F_ACK") = 0x004, "Message flag: an answer is wanted in any case.";
        FLAG_DUMP ("NLM_F_DUMP") = 0x300, "Message flag: all objects, not one.";
    }
    u16 "" {
        MSG_NOOP ("NLMSG_NOOP") = 1, "Message type: nothing.";
        MSG_ERROR ("NLMSG_ERROR") = 2, "Message type: an error, or errno 0 for success.";
        MSG_DONE ("NLMSG_DONE") = 3, "Message type: end of a dump.";
    }
    u16 "" {
        NLA_TYPE_MASK ("NLA_TYPE_MASK & 0xffff") = 0x3fff,
            "Bits of [`NlAttr::nla_type`] that are the attribute's number.";
        NLA_F_NESTED = 0x8000, "Bit of [`NlAttr::nla_type`]: the attribute holds attributes.";
    }
    usize "" {
        ALIGN ("NLMSG_ALIGNTO") = 4, "Alignment of messages and of attributes, in bytes.";
    }
}

/// Commands of the client [`NLDEV`].
pub mod op {
    numbers! {
        u16 "RDMA_NLDEV_CMD_" {
            GET = 1, "Reads one device, or all of them.";
            SET = 2, "Changes a device.";
            NEWLINK = 3, "Adds a software device.";
            DELLINK = 4, "Removes a software device.";
            PORT_GET = 5, "Reads a port.";
            SYS_GET = 6, "Reads settings of the subsystem.";
            SYS_SET = 7, "Changes settings of the subsystem.";
            RES_GET = 9, "Reads the number of objects in use.";
            RES_QP_GET = 10, "Reads queue pairs.";
            RES_CM_ID_GET = 11, "Reads connection identifiers.";
            RES_CQ_GET = 12, "Reads completion queues.";
            RES_MR_GET = 13, "Reads memory regions.";
            RES_PD_GET = 14, "Reads protection domains.";
            GET_CHARDEV = 15, "Finds the character device of a device.";
            STAT_SET = 16, "Binds statistic counters.";
            STAT_GET = 17, "Reads statistic counters.";
            STAT_DEL = 18, "Unbinds statistic counters.";
            RES_CTX_GET = 22, "Reads contexts.";
            RES_SRQ_GET = 23, "Reads shared receive queues.";
            STAT_GET_STATUS = 24, "Reads which optional counters exist, and which are on.";
        }
    }
}

/// Attributes of the client [`NLDEV`].
pub mod attr {
    numbers! {
        u16 "RDMA_NLDEV_ATTR_" {
            PAD = 0, "Padding before an attribute of 64 bits.";
            DEV_INDEX = 1, "Index of the device, u32.";
            DEV_NAME = 2, "Name of the device, string.";
            PORT_INDEX = 3, "Port, u32; number of ports in an answer about a device.";
            CAP_FLAGS = 4, "Capabilities, u64.";
            FW_VERSION = 5, "Firmware version, string; absent if empty.";
            NODE_GUID = 6, "GUID of the device, u64 in host order.";
            SYS_IMAGE_GUID = 7, "GUID of the system, u64 in host order.";
            SUBNET_PREFIX = 8, "Subnet prefix, u64 in host order.";
            LID = 9, "Local identifier, u32.";
            SM_LID = 10, "Local identifier of the subnet manager, u32.";
            LMC = 11, "Mask of local identifiers, u8.";
            PORT_STATE = 12, "State of the port, u8.";
            PORT_PHYS_STATE = 13, "Physical state of the port, u8.";
            DEV_NODE_TYPE = 14, "Kind of device, u8, see [`crate::types::node_type`].";
            RES_SUMMARY = 15, "Numbers of objects: a table of [`RES_SUMMARY_ENTRY`].";
            RES_SUMMARY_ENTRY = 16, "One kind of object: [`RES_SUMMARY_ENTRY_NAME`] and [`RES_SUMMARY_ENTRY_CURR`].";
            RES_SUMMARY_ENTRY_NAME = 17, "Name of a kind of object, string.";
            RES_SUMMARY_ENTRY_CURR = 18, "Current number, u64.";
            RES_QP = 19, "Queue pairs: a table of [`RES_QP_ENTRY`]. Its number stands for them in [`STAT_RES`].";
            RES_QP_ENTRY = 20, "One queue pair, or a row of them.";
            RES_LQPN = 21, "Number of the queue pair, u32.";
            RES_RQPN = 22, "Number of the queue pair that it is connected to, u32.";
            RES_RQ_PSN = 23, "Packet sequence number of the receive queue, u32.";
            RES_SQ_PSN = 24, "Packet sequence number of the send queue, u32.";
            RES_PATH_MIG_STATE = 25, "State of path migration, u8.";
            RES_TYPE = 26, "Type of a queue pair or of a shared queue, u8.";
            RES_STATE = 27, "State of a queue pair or of a connection, u8.";
            RES_PID = 28, "Process that has the object, u32.";
            RES_KERN_NAME = 29, "Part of the kernel that has the object, string.";
            RES_CM_ID = 30, "Connection identifiers: a table of [`RES_CM_ID_ENTRY`].";
            RES_CM_ID_ENTRY = 31, "One connection identifier.";
            RES_PS = 32, "Port space of a connection identifier, u32.";
            RES_SRC_ADDR = 33, "Own address, `sockaddr_storage`.";
            RES_DST_ADDR = 34, "Address of the other side, `sockaddr_storage`.";
            RES_CQ = 35, "Completion queues: a table of [`RES_CQ_ENTRY`].";
            RES_CQ_ENTRY = 36, "One completion queue.";
            RES_CQE = 37, "Entries of a completion queue, u32.";
            RES_USECNT = 38, "Users of an object, u64.";
            RES_POLL_CTX = 39, "How the kernel polls its own completion queue, u8.";
            RES_MR = 40, "Memory regions: a table of [`RES_MR_ENTRY`].";
            RES_MR_ENTRY = 41, "One memory region.";
            RES_RKEY = 42, "Remote key, u32; for `CAP_NET_ADMIN` only.";
            RES_LKEY = 43, "Local key, u32; for `CAP_NET_ADMIN` only.";
            RES_MRLEN = 45, "Bytes of a memory region, u64.";
            RES_PD = 46, "Protection domains: a table of [`RES_PD_ENTRY`].";
            RES_PD_ENTRY = 47, "One protection domain.";
            RES_LOCAL_DMA_LKEY = 48, "Key for all memory, u32; for `CAP_NET_ADMIN` only.";
            NDEV_INDEX = 50, "Index of the network interface, u32.";
            NDEV_NAME = 51, "Name of the network interface, string.";
            RES_PDN = 60, "Number of the protection domain, u32.";
            RES_CQN = 61, "Number of the completion queue, u32.";
            RES_MRN = 62, "Number of the memory region, u32.";
            RES_CM_IDN = 63, "Number of the connection identifier, u32.";
            RES_CTXN = 64, "Number of the context, u32.";
            LINK_TYPE = 65, "Driver of a software device, string: rxe or siw.";
            SYS_NETNS_MODE ("RDMA_NLDEV_SYS_ATTR_NETNS_MODE") = 66,
                "Devices are shared by network namespaces (1) or not (0), u8.";
            DEV_PROTOCOL = 67, "Protocol, string: ib, roce, iw and others.";
            CHARDEV_TYPE = 69, "Kind of character device, string: uverbs.";
            CHARDEV_NAME = 70, "Name of the character device, string.";
            CHARDEV_ABI = 71, "Version that the device reports, u64.";
            CHARDEV = 72, "Device number, u64.";
            UVERBS_DRIVER_ID = 73, "Driver, u32, see [`crate::types::driver_id`]; absent for some drivers.";
            STAT_MODE = 74, "How queue pairs are bound to counters, u32: 0 not, 1 by a rule, 2 one by one.";
            STAT_RES = 75, "Which objects are meant, u32: [`RES_QP`] or [`RES_MR`].";
            STAT_AUTO_MODE_MASK = 76, "Property that distinguishes queue pairs, u32: 1 type, 2 process.";
            STAT_COUNTER = 77, "Counters that are bound: a table of [`STAT_COUNTER_ENTRY`].";
            STAT_COUNTER_ENTRY = 78, "One of them.";
            STAT_COUNTER_ID = 79, "Its number, u32.";
            STAT_HWCOUNTERS = 80, "Statistic counters: a table of [`STAT_HWCOUNTER_ENTRY`].";
            STAT_HWCOUNTER_ENTRY = 81, "One of them.";
            STAT_HWCOUNTER_ENTRY_NAME = 82, "Its name, string.";
            STAT_HWCOUNTER_ENTRY_VALUE = 83, "Its value, u64.";
            DEV_DIM = 84, "Adaptive moderation is on, u8.";
            RES_CTX = 86, "Contexts: a table of [`RES_CTX_ENTRY`].";
            RES_CTX_ENTRY = 87, "One context.";
            RES_SRQ = 88, "Shared receive queues: a table of [`RES_SRQ_ENTRY`].";
            RES_SRQ_ENTRY = 89, "One shared receive queue.";
            RES_SRQN = 90, "Number of the shared receive queue, u32.";
            MIN_RANGE = 91, "First number of a row, u32.";
            MAX_RANGE = 92, "Last number of a row, u32.";
            SYS_COPY_ON_FORK ("RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK") = 93, "Registered memory is copied on fork, u8.";
            STAT_HWCOUNTER_INDEX = 94, "Place of a statistic counter in the driver's table, u32.";
            STAT_HWCOUNTER_DYNAMIC = 95, "An optional statistic counter is on, u8; absent of those that always are.";
            SYS_PRIVILEGED_QKEY_MODE ("RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE") = 96,
                "Anyone may use privileged queue keys, u8.";
            DEV_TYPE = 99, "Kind of sub-device, u8 (Linux 6.12).";
            PARENT_NAME = 100, "Parent of a sub-device, string (Linux 6.12).";
            NAME_ASSIGN_TYPE = 101, "How the device was named, u8 (Linux 6.12).";
            SYS_MONITOR_MODE ("RDMA_NLDEV_SYS_ATTR_MONITOR_MODE") = 103, "Events can be subscribed, u8 (Linux 6.12).";
            STAT_OPCOUNTER_ENABLED = 104, "Optional counters are bound by the rule too, u8 (Linux 7.2).";
            RES_SUMMARY_ENTRY_MAX = 118, "Maximum number, u64; absent if there is no limit (Linux 7.3).";
        }
    }
}

/// The message type of a command of a client.
#[doc(alias = "RDMA_NL_GET_TYPE")]
pub const fn message_type(client: u16, op: u16) -> u16 {
    (client << 10) + op
}

/// The message type of a command of the client [`NLDEV`].
pub const fn nldev(op: u16) -> u16 {
    message_type(NLDEV, op)
}

layout! {
    /// Head of a message; attributes follow it.
    struct NlMsgHdr = "nlmsghdr", 16 {
        0  nlmsg_len: u32, "Bytes of the message, with this head.";
        4  nlmsg_type: u16, "See [`message_type`].";
        6  nlmsg_flags: u16, "[`FLAG_REQUEST`] and others.";
        8  nlmsg_seq: u32, "Number that the answer repeats.";
        12 nlmsg_pid: u32, "Socket that the message is from; zero for the kernel.";
    }

    /// Head of an attribute; its value follows, then padding to [`ALIGN`].
    struct NlAttr = "nlattr", 4 {
        0 nla_len: u16, "Bytes of the attribute, with this head, without padding.";
        2 nla_type: u16, "Number of the attribute, with [`NLA_F_NESTED`] if it holds attributes.";
    }

    /// The part of the body of a message of type [`MSG_ERROR`] that is always present.
    struct NlMsgErr = "nlmsgerr", 20 {
        0 error: i32, "Negative errno, or zero.";
        4 msg: NlMsgHdr, "Head of the message that it answers.";
    }
}
