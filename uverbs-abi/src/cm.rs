//! The connection manager's device file (`/dev/infiniband/rdma_cm`): commands that are written to it, and its events.
//!
//! A command is one write: a [`CmdHdr`] followed by the command's struct. The kernel writes the answer to the address in the
//! command's field `response`. Events are read with the command [`GET_EVENT`].
//!
//! Layouts and numbers are those of Linux 7.3 (rdma_user_cm.h). Commands that newer ones have replaced are numbers only.

use crate::write::AhAttr;

numbers! {
    u32 "RDMA_USER_CM_" {
        ABI_VERSION = 4, "Version of the ABI, in `/sys/class/misc/rdma_cm/abi_version`.";
    }
    usize "RDMA_" {
        MAX_PRIVATE_DATA = 256, "Room for private data in a command and in an event.";
    }
    u32 "RDMA_USER_CM_CMD_" {
        CREATE_ID = 0, "Creates an identifier.";
        DESTROY_ID = 1, "Destroys an identifier, with its events.";
        BIND_IP = 2, "Replaced by [`BIND`].";
        RESOLVE_IP = 3, "Replaced by [`RESOLVE_ADDR`].";
        RESOLVE_ROUTE = 4, "Finds the route to the resolved address.";
        QUERY_ROUTE = 5, "Replaced by [`QUERY`].";
        CONNECT = 6, "Sends a connection request; on the client of datagrams a lookup.";
        LISTEN = 7, "Begins to receive connection requests.";
        ACCEPT = 8, "Accepts a request; with `valid` zero acknowledges the reply.";
        REJECT = 9, "Rejects a request.";
        DISCONNECT = 10, "Ends a connection, or answers the peer's end.";
        INIT_QP_ATTR = 11, "Reads the attributes of a queue pair for its next state.";
        GET_EVENT = 12, "Reads the next event.";
        GET_OPTION = 13, "Not implemented by any kernel.";
        SET_OPTION = 14, "Sets an option of an identifier.";
        NOTIFY = 15, "Tells the kernel of an event of the queue pair.";
        JOIN_IP_MCAST = 16, "Replaced by [`JOIN_MCAST`].";
        LEAVE_MCAST = 17, "Leaves a multicast group.";
        MIGRATE_ID = 18, "Moves an identifier to this file.";
        QUERY = 19, "Reads the addresses, the path or the GIDs of an identifier.";
        BIND = 20, "Binds an identifier to an own address.";
        RESOLVE_ADDR = 21, "Finds the device and the neighbour of a destination.";
        JOIN_MCAST = 22, "Joins a multicast group.";
    }
    u32 "RDMA_USER_CM_" {
        QUERY_ADDR = 0, "[`Query::option`]: addresses, answered by [`QueryAddrResp`].";
        QUERY_PATH = 1, "[`Query::option`]: path records.";
        QUERY_GID = 2, "[`Query::option`]: GIDs, answered by [`QueryAddrResp`].";
    }
    u16 "RDMA_" {
        PS_IPOIB = 0x0002, "Port space: datagrams of IP over InfiniBand.";
        PS_IB = 0x013f, "Port space: InfiniBand, with any type of queue pair.";
        PS_TCP = 0x0106, "Port space: connections.";
        PS_UDP = 0x0111, "Port space: datagrams.";
    }
    u32 "RDMA_" {
        OPTION_ID = 0, "[`SetOption::level`]: options of an identifier.";
        OPTION_IB = 1, "[`SetOption::level`]: options of InfiniBand.";
    }
    u32 "RDMA_OPTION_ID_" {
        TOS = 0, "[`SetOption::optname`]: type of service, u8.";
        REUSEADDR = 1, "[`SetOption::optname`]: the address may be bound more than once, i32.";
        AFONLY = 2, "[`SetOption::optname`]: no IPv4 on an IPv6 address, i32.";
        ACK_TIMEOUT = 3, "[`SetOption::optname`]: timeout for an acknowledgement, 4.096 us * 2^n, u8.";
    }
    u16 "RDMA_MC_JOIN_FLAG_" {
        FULLMEMBER = 0, "[`JoinMcast::join_flags`]: receives and sends.";
        SENDONLY_FULLMEMBER = 1, "[`JoinMcast::join_flags`]: only sends.";
    }
    u32 "RDMA_CM_EVENT_" {
        ADDR_RESOLVED = 0, "The address is resolved.";
        ADDR_ERROR = 1, "The address could not be resolved; the status is a negative errno.";
        ROUTE_RESOLVED = 2, "The route is resolved.";
        ROUTE_ERROR = 3, "The route could not be resolved; the status is a negative errno.";
        CONNECT_REQUEST = 4, "A listener has a new connection, of which this event has the identifier.";
        CONNECT_RESPONSE = 5, "The peer has accepted; the program finishes the connection.";
        CONNECT_ERROR = 6, "The connection failed; the status is a negative errno.";
        UNREACHABLE = 7, "The peer did not answer.";
        REJECTED = 8, "The peer has rejected.";
        ESTABLISHED = 9, "The connection is established.";
        DISCONNECTED = 10, "The connection has ended.";
        DEVICE_REMOVAL = 11, "The device was removed.";
        MULTICAST_JOIN = 12, "A multicast group was joined.";
        MULTICAST_ERROR = 13, "A multicast group could not be joined, or was lost.";
        ADDR_CHANGE = 14, "The hardware address of the interface has changed.";
        TIMEWAIT_EXIT = 15, "The queue pair's number may be used again.";
    }
}

layout! {
    /// What each command begins with.
    struct CmdHdr = "rdma_ucm_cmd_hdr", 8 {
        0 cmd: u32, "[`CREATE_ID`] or another.";
        4 in_ ("in"): u16, "Bytes that follow.";
        6 out: u16, "Room for the answer in bytes.";
    }

    /// Request of [`CREATE_ID`].
    struct CreateId = "rdma_ucm_create_id", 24 {
        0  uid: u64, "Number that its events will carry; with zero there are none.";
        8  response: u64, "Address of the answer.";
        16 ps: u16, "[`PS_TCP`] or another.";
        18 qp_type: u8, "See [`crate::types::qp_type`].";
        19 reserved: [u8; 5], "Zero.";
    }

    /// Answer of [`CREATE_ID`] and [`JOIN_MCAST`].
    struct CreateIdResp = "rdma_ucm_create_id_resp", 4 {
        0 id: u32, "The new identifier, or membership.";
    }

    /// Request of [`DESTROY_ID`] and [`LEAVE_MCAST`].
    struct DestroyId = "rdma_ucm_destroy_id", 16 {
        0  response: u64, "Address of the answer.";
        8  id: u32, "The identifier, or the membership.";
        12 reserved: u32, "Zero.";
    }

    /// Answer of [`DESTROY_ID`] and [`LEAVE_MCAST`].
    struct DestroyIdResp = "rdma_ucm_destroy_id_resp", 4 {
        0 events_reported: u32, "Number of its events that were read.";
    }

    /// Request of [`BIND`].
    struct Bind = "rdma_ucm_bind", 136 {
        0 id: u32, "The identifier.";
        4 addr_size: u16, "Size of the address: 16 for IPv4, 28 for IPv6.";
        6 reserved: u16, "Zero.";
        8 addr: [u8; 128], "The address, as a socket address.";
    }

    /// Request of [`RESOLVE_ADDR`].
    struct ResolveAddr = "rdma_ucm_resolve_addr", 272 {
        0   id: u32, "The identifier.";
        4   timeout_ms: u32, "Time in milliseconds.";
        8   src_size: u16, "Size of the own address; zero if the kernel chooses it.";
        10  dst_size: u16, "Size of the destination.";
        12  reserved: u32, "Zero.";
        16  src_addr: [u8; 128], "The own address, as a socket address.";
        144 dst_addr: [u8; 128], "The destination, as a socket address.";
    }

    /// Request of [`RESOLVE_ROUTE`].
    struct ResolveRoute = "rdma_ucm_resolve_route", 8 {
        0 id: u32, "The identifier.";
        4 timeout_ms: u32, "Time in milliseconds, not zero.";
    }

    /// Request of [`QUERY`].
    struct Query = "rdma_ucm_query", 16 {
        0  response: u64, "Address of the answer.";
        8  id: u32, "The identifier.";
        12 option: u32, "[`QUERY_ADDR`] or another.";
    }

    /// Answer of [`QUERY`] with [`QUERY_ADDR`] or [`QUERY_GID`].
    struct QueryAddrResp = "rdma_ucm_query_addr_resp", 280 {
        0   node_guid: u64, "GUID of the device in network order; zero if there is no device yet.";
        8   port_num: u8, "Port, from 1.";
        9   reserved: u8, "Zero.";
        10  pkey: u16, "Partition key.";
        12  src_size: u16, "Size of the own address.";
        14  dst_size: u16, "Size of the destination.";
        16  src_addr: [u8; 128], "The own address, as a socket address.";
        144 dst_addr: [u8; 128], "The destination, as a socket address.";
        272 ibdev_index: u32, "Index of the device, as RDMA netlink has it.";
        276 reserved1: u32, "Zero.";
    }

    /// Parameters of a connection.
    struct ConnParam = "rdma_ucm_conn_param", 272 {
        0   qp_num: u32, "Number of the queue pair.";
        4   qkey: u32, "Queue key, for datagrams.";
        8   private_data: [u8; 256], "Data for the peer's program, or from it.";
        264 private_data_len: u8, "Its length.";
        265 srq: u8, "1: receives come from a shared queue.";
        266 responder_resources: u8, "Reads and atomic operations of the peer that this side accepts at once.";
        267 initiator_depth: u8, "Reads and atomic operations that this side has in flight at most.";
        268 flow_control: u8, "1: end-to-end flow control.";
        269 retry_count: u8, "Retries without an acknowledgement.";
        270 rnr_retry_count: u8, "Retries when the receiver is not ready; 7 for ever.";
        271 valid: u8, "1: the parameters count.";
    }

    /// Parameters of a connection request or of an answer about datagrams, in an event.
    struct UdParam = "rdma_ucm_ud_param", 304 {
        0   qp_num: u32, "Number of the peer's queue pair.";
        4   qkey: u32, "Its queue key.";
        8   ah_attr: AhAttr, "The address of the peer.";
        40  private_data: [u8; 256], "Data from the peer's program.";
        296 private_data_len: u8, "Its length.";
        297 reserved: [u8; 7], "Zero.";
    }

    /// Enhancements of a connection that vendors define.
    struct Ece = "rdma_ucm_ece", 8 {
        0 vendor_id: u32, "The vendor.";
        4 attr_mod: u32, "Its enhancements.";
    }

    /// Request of [`CONNECT`].
    struct Connect = "rdma_ucm_connect", 288 {
        0   conn_param: ConnParam, "The parameters.";
        272 id: u32, "The identifier.";
        276 reserved: u32, "Zero.";
        280 ece: Ece, "Enhancements.";
    }

    /// Request of [`LISTEN`].
    struct Listen = "rdma_ucm_listen", 8 {
        0 id: u32, "The identifier.";
        4 backlog: u32, "Requests that wait at most; zero for the most that the kernel allows.";
    }

    /// Request of [`ACCEPT`].
    struct Accept = "rdma_ucm_accept", 296 {
        0   uid: u64, "Number that events of the connection will carry.";
        8   conn_param: ConnParam, "The parameters.";
        280 id: u32, "The identifier.";
        284 reserved: u32, "Zero.";
        288 ece: Ece, "Enhancements.";
    }

    /// Request of [`REJECT`].
    struct Reject = "rdma_ucm_reject", 264 {
        0 id: u32, "The identifier.";
        4 private_data_len: u8, "Length of the data.";
        5 reason: u8, "Zero, or a reason that the kernel allows.";
        6 reserved: [u8; 2], "Zero.";
        8 private_data: [u8; 256], "Data for the peer's program.";
    }

    /// Request of [`DISCONNECT`].
    struct Disconnect = "rdma_ucm_disconnect", 4 {
        0 id: u32, "The identifier.";
    }

    /// Request of [`INIT_QP_ATTR`], answered by [`crate::write::QpAttr`].
    struct InitQpAttr = "rdma_ucm_init_qp_attr", 16 {
        0  response: u64, "Address of the answer.";
        8  id: u32, "The identifier.";
        12 qp_state: u32, "The state to go to, see [`crate::types::qp_state`].";
    }

    /// Request of [`NOTIFY`].
    struct Notify = "rdma_ucm_notify", 8 {
        0 id: u32, "The identifier.";
        4 event: u32, "The event of the queue pair, see [`crate::types::event_type`].";
    }

    /// Request of [`JOIN_MCAST`], answered by [`CreateIdResp`].
    struct JoinMcast = "rdma_ucm_join_mcast", 152 {
        0  response: u64, "Address of the answer.";
        8  uid: u64, "Number that the membership's events will carry.";
        16 id: u32, "The identifier.";
        20 addr_size: u16, "Size of the address.";
        22 join_flags: u16, "[`FULLMEMBER`] or another.";
        24 addr: [u8; 128], "The group, as a socket address.";
    }

    /// Request of [`GET_EVENT`], answered by [`EventResp`].
    struct GetEvent = "rdma_ucm_get_event", 8 {
        0 response: u64, "Address of the answer.";
    }

    /// An event. Its parameters are those of the identifier's kind.
    struct EventResp = "rdma_ucm_event_resp", 336 {
        0   uid: u64, "Number of the program's for the identifier; for a request that of the listener.";
        8   id: u32, "The identifier; for a request the new one, for a multicast event the membership.";
        12  event: u32, "[`ADDR_RESOLVED`] or another.";
        16  status: u32, "A signed number: zero, a negative errno, or a reason.";
        20  param ("param.ud"): UdParam, "The parameters: [`UdParam`], or a [`ConnParam`] at its start.";
        324 reserved: u32, "Zero.";
        328 ece: Ece, "Enhancements.";
    }

    /// Request of [`SET_OPTION`].
    struct SetOption = "rdma_ucm_set_option", 24 {
        0  optval: u64, "Address of the value.";
        8  id: u32, "The identifier.";
        12 level: u32, "[`OPTION_ID`] or another.";
        16 optname: u32, "[`TOS`] or another.";
        20 optlen: u32, "Length of the value.";
    }

    /// Request of [`MIGRATE_ID`], written to the new file and answered by [`MigrateResp`].
    struct MigrateId = "rdma_ucm_migrate_id", 16 {
        0  response: u64, "Address of the answer.";
        8  id: u32, "The identifier.";
        12 fd: u32, "Descriptor of the old file.";
    }

    /// Answer of [`MIGRATE_ID`].
    struct MigrateResp = "rdma_ucm_migrate_resp", 4 {
        0 events_reported: u32, "Number of its events that were read.";
    }
}
