//! Numbers of the commands, and a table of them.

use super::*;
use crate::flow;
use core::mem::size_of;

numbers! {
    u32 "IB_USER_VERBS_" {
        FLAG_EXTENDED ("IB_USER_VERBS_CMD_FLAG_EXTENDED") = 0x8000_0000, "Bit of an extended command.";
        NUMBER_MASK ("IB_USER_VERBS_CMD_COMMAND_MASK") = 0xff, "Bits of a command's number.";
    }
    u32 "IB_USER_VERBS_CMD_" {
        GET_CONTEXT = 0, "Creates the file's context; see [`GetContext`].";
        QUERY_DEVICE = 1, "Reads the limits of the device.";
        QUERY_PORT = 2, "Reads the attributes of a port.";
        ALLOC_PD = 3, "Creates a protection domain.";
        DEALLOC_PD = 4, "Destroys it.";
        CREATE_AH = 5, "Creates an address handle.";
        MODIFY_AH = 6, "Numbered, never implemented.";
        QUERY_AH = 7, "Numbered, never implemented.";
        DESTROY_AH = 8, "Destroys an address handle.";
        REG_MR = 9, "Registers memory.";
        REG_SMR = 10, "Numbered, never implemented.";
        REREG_MR = 11, "Changes a memory region.";
        QUERY_MR = 12, "Numbered, never implemented.";
        DEREG_MR = 13, "Deregisters memory.";
        ALLOC_MW = 14, "Creates a memory window.";
        BIND_MW = 15, "Numbered, never implemented.";
        DEALLOC_MW = 16, "Destroys a memory window.";
        CREATE_COMP_CHANNEL = 17, "Creates a completion channel.";
        CREATE_CQ = 18, "Creates a completion queue.";
        RESIZE_CQ = 19, "Resizes it.";
        DESTROY_CQ = 20, "Destroys it.";
        POLL_CQ = 21, "Takes completions; for drivers without a shared ring.";
        PEEK_CQ = 22, "Numbered, never implemented.";
        REQ_NOTIFY_CQ = 23, "Arms a completion queue; for drivers that cannot do it in user space.";
        CREATE_QP = 24, "Creates a queue pair.";
        QUERY_QP = 25, "Reads its attributes.";
        MODIFY_QP = 26, "Changes its attributes and state.";
        DESTROY_QP = 27, "Destroys it.";
        POST_SEND = 28, "Posts sends, or rings the doorbell of a software device.";
        POST_RECV = 29, "Posts receives.";
        ATTACH_MCAST = 30, "Joins a multicast group.";
        DETACH_MCAST = 31, "Leaves a multicast group.";
        CREATE_SRQ = 32, "Creates a shared receive queue.";
        MODIFY_SRQ = 33, "Changes its size or limit.";
        QUERY_SRQ = 34, "Reads its attributes.";
        DESTROY_SRQ = 35, "Destroys it.";
        POST_SRQ_RECV = 36, "Posts receives to it.";
        OPEN_XRCD = 37, "Opens a domain of extended reliable connections.";
        CLOSE_XRCD = 38, "Closes it.";
        CREATE_XSRQ = 39, "Creates a shared receive queue of any type.";
        OPEN_QP = 40, "Opens a queue pair of such a domain.";
    }
    u32 "" {
        EX_QUERY_DEVICE ("1u << 31 | IB_USER_VERBS_EX_CMD_QUERY_DEVICE") = FLAG_EXTENDED | 1,
            "Reads limits and capabilities of the device.";
        EX_CREATE_CQ ("1u << 31 | IB_USER_VERBS_EX_CMD_CREATE_CQ") = FLAG_EXTENDED | 18,
            "Creates a completion queue with flags.";
        EX_CREATE_QP ("1u << 31 | IB_USER_VERBS_EX_CMD_CREATE_QP") = FLAG_EXTENDED | 24,
            "Creates a queue pair with flags.";
        EX_MODIFY_QP ("1u << 31 | IB_USER_VERBS_EX_CMD_MODIFY_QP") = FLAG_EXTENDED | 26,
            "Changes a queue pair, rate limit included.";
        EX_CREATE_FLOW ("1u << 31 | IB_USER_VERBS_EX_CMD_CREATE_FLOW") = FLAG_EXTENDED | 50, "Creates a flow.";
        EX_DESTROY_FLOW ("1u << 31 | IB_USER_VERBS_EX_CMD_DESTROY_FLOW") = FLAG_EXTENDED | 51, "Destroys it.";
        EX_CREATE_WQ ("1u << 31 | IB_USER_VERBS_EX_CMD_CREATE_WQ") = FLAG_EXTENDED | 52, "Creates a work queue.";
        EX_MODIFY_WQ ("1u << 31 | IB_USER_VERBS_EX_CMD_MODIFY_WQ") = FLAG_EXTENDED | 53, "Changes its state and flags.";
        EX_DESTROY_WQ ("1u << 31 | IB_USER_VERBS_EX_CMD_DESTROY_WQ") = FLAG_EXTENDED | 54, "Destroys it.";
        EX_CREATE_RWQ_IND_TBL ("1u << 31 | IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL") = FLAG_EXTENDED | 55,
            "Creates an indirection table.";
        EX_DESTROY_RWQ_IND_TBL ("1u << 31 | IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL") = FLAG_EXTENDED | 56,
            "Destroys it.";
        EX_MODIFY_CQ ("1u << 31 | IB_USER_VERBS_EX_CMD_MODIFY_CQ") = FLAG_EXTENDED | 57,
            "Changes the moderation of a completion queue.";
    }
}

/// One command that kernels implement.
#[derive(Clone, Copy, Debug)]
pub struct CommandInfo {
    /// Number, with [`FLAG_EXTENDED`].
    pub number: u32,
    /// Name of the constant in this module.
    pub name: &'static str,
    /// Bytes of the request's fixed part.
    pub request: usize,
    /// Bytes of the response's fixed part; zero if there is none.
    pub response: usize,
}

/// Writes the table: name, request, response.
macro_rules! commands {
    ($($name:ident: $request:ty $(=> $response:ty)?;)*) => {
        /// Every command that kernels implement, in the order of their numbers.
        pub const COMMANDS: &[CommandInfo] = &[$(CommandInfo {
            number: $name,
            name: stringify!($name),
            request: size_of::<$request>(),
            response: 0 $(+ size_of::<$response>())?,
        },)*];
    };
}

commands! {
    GET_CONTEXT: GetContext => GetContextResp;
    QUERY_DEVICE: QueryDevice => QueryDeviceResp;
    QUERY_PORT: QueryPort => QueryPortResp;
    ALLOC_PD: AllocPd => AllocPdResp;
    DEALLOC_PD: DeallocPd;
    CREATE_AH: CreateAh => CreateAhResp;
    DESTROY_AH: DestroyAh;
    REG_MR: RegMr => RegMrResp;
    REREG_MR: ReregMr => ReregMrResp;
    DEREG_MR: DeregMr;
    ALLOC_MW: AllocMw => AllocMwResp;
    DEALLOC_MW: DeallocMw;
    CREATE_COMP_CHANNEL: CreateCompChannel => CreateCompChannelResp;
    CREATE_CQ: CreateCq => CreateCqResp;
    RESIZE_CQ: ResizeCq => ResizeCqResp;
    DESTROY_CQ: DestroyCq => DestroyCqResp;
    POLL_CQ: PollCq => PollCqResp;
    REQ_NOTIFY_CQ: ReqNotifyCq;
    CREATE_QP: CreateQp => CreateQpResp;
    QUERY_QP: QueryQp => QueryQpResp;
    MODIFY_QP: ModifyQp;
    DESTROY_QP: DestroyQp => DestroyQpResp;
    POST_SEND: PostSend => PostSendResp;
    POST_RECV: PostRecv => PostRecvResp;
    ATTACH_MCAST: AttachMcast;
    DETACH_MCAST: DetachMcast;
    CREATE_SRQ: CreateSrq => CreateSrqResp;
    MODIFY_SRQ: ModifySrq;
    QUERY_SRQ: QuerySrq => QuerySrqResp;
    DESTROY_SRQ: DestroySrq => DestroySrqResp;
    POST_SRQ_RECV: PostSrqRecv => PostSrqRecvResp;
    OPEN_XRCD: OpenXrcd => OpenXrcdResp;
    CLOSE_XRCD: CloseXrcd;
    CREATE_XSRQ: CreateXsrq => CreateSrqResp;
    OPEN_QP: OpenQp => CreateQpResp;
    EX_QUERY_DEVICE: ExQueryDevice => ExQueryDeviceResp;
    EX_CREATE_CQ: ExCreateCq => ExCreateCqResp;
    EX_CREATE_QP: ExCreateQp => ExCreateQpResp;
    EX_MODIFY_QP: ExModifyQp => ExModifyQpResp;
    EX_CREATE_FLOW: flow::CreateFlow => flow::CreateFlowResp;
    EX_DESTROY_FLOW: flow::DestroyFlow;
    EX_CREATE_WQ: ExCreateWq => ExCreateWqResp;
    EX_MODIFY_WQ: ExModifyWq;
    EX_DESTROY_WQ: ExDestroyWq => ExDestroyWqResp;
    EX_CREATE_RWQ_IND_TBL: ExCreateRwqIndTable => ExCreateRwqIndTableResp;
    EX_DESTROY_RWQ_IND_TBL: ExDestroyRwqIndTable;
    EX_MODIFY_CQ: ExModifyCq;
}
