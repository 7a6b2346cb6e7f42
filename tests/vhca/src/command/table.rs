//! Every command of the device.

use super::{
    Run, capability, counter, flow, function, general, memory, object, pacing, port, port_counter, qp, queue,
    queue_counter, transport,
};

/// A command: its name, the minimum lengths of its input and output, and its function.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) opcode: u16,
    pub(crate) name: &'static str,
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) run: Run,
}

const fn command(opcode: u16, name: &'static str, input: usize, output: usize, run: Run) -> Command {
    Command { opcode, name, input, output, run }
}

/// The commands by opcode. Names and numbers are those of `MLX5_CMD_OP_*` in the kernel's `include/linux/mlx5/mlx5_ifc.h`.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    command(0x100, "QUERY_HCA_CAP", 16, 16, capability::query),
    command(0x101, "QUERY_ADAPTER", 16, 272, function::query_adapter),
    command(0x102, "INIT_HCA", 16, 8, function::accept),
    command(0x103, "TEARDOWN_HCA", 16, 8, function::accept),
    command(0x104, "ENABLE_HCA", 16, 8, function::accept),
    command(0x105, "DISABLE_HCA", 16, 8, function::disable),
    command(0x107, "QUERY_PAGES", 16, 16, function::accept),
    command(0x108, "MANAGE_PAGES", 16, 8, function::accept),
    command(0x109, "SET_HCA_CAP", 16, 8, capability::set),
    command(0x10a, "QUERY_ISSI", 16, 112, function::query_issi),
    command(0x10b, "SET_ISSI", 16, 8, function::set_issi),
    command(0x10d, "SET_DRIVER_VERSION", 16, 8, function::accept),
    command(0x200, "CREATE_MKEY", 272, 16, memory::create),
    command(0x201, "QUERY_MKEY", 16, 80, memory::query),
    command(0x202, "DESTROY_MKEY", 16, 8, memory::destroy),
    command(0x203, "QUERY_SPECIAL_CONTEXTS", 16, 16, function::query_special_contexts),
    command(0x301, "CREATE_EQ", 280, 16, queue::create_eq),
    command(0x302, "DESTROY_EQ", 16, 8, queue::destroy_eq),
    command(0x303, "QUERY_EQ", 16, 80, queue::query_eq),
    command(0x400, "CREATE_CQ", 280, 16, queue::create_cq),
    command(0x401, "DESTROY_CQ", 16, 8, queue::destroy_cq),
    command(0x402, "QUERY_CQ", 16, 80, queue::query_cq),
    command(0x403, "MODIFY_CQ", 80, 8, queue::modify_cq),
    command(0x500, "CREATE_QP", 272, 16, qp::create),
    command(0x501, "DESTROY_QP", 16, 8, qp::destroy),
    command(0x502, "RST2INIT_QP", 16, 8, qp::modify),
    command(0x503, "INIT2RTR_QP", 16, 8, qp::modify),
    command(0x504, "RTR2RTS_QP", 16, 8, qp::modify),
    command(0x505, "RTS2RTS_QP", 16, 8, qp::modify),
    command(0x506, "SQERR2RTS_QP", 16, 8, qp::modify),
    command(0x507, "2ERR_QP", 16, 8, qp::modify),
    command(0x50a, "2RST_QP", 16, 8, qp::modify),
    command(0x50b, "QUERY_QP", 16, 256, qp::query),
    command(0x50c, "SQD_RTS_QP", 16, 8, qp::modify),
    command(0x50d, "MAD_IFC", 272, 272, function::accept),
    command(0x50e, "INIT2INIT_QP", 16, 8, qp::modify),
    command(0x700, "CREATE_SRQ", 280, 16, transport::create_srq),
    command(0x701, "DESTROY_SRQ", 16, 8, transport::destroy_srq),
    command(0x702, "QUERY_SRQ", 16, 80, transport::query_srq),
    command(0x705, "CREATE_XRC_SRQ", 280, 16, transport::create_xrc_srq),
    command(0x706, "DESTROY_XRC_SRQ", 16, 8, transport::destroy_xrc_srq),
    command(0x707, "QUERY_XRC_SRQ", 16, 80, transport::query_xrc_srq),
    command(0x708, "ARM_XRC_SRQ", 16, 8, transport::arm_xrc_srq),
    command(0x750, "QUERY_VPORT_STATE", 16, 16, function::query_vport_state),
    command(0x754, "QUERY_NIC_VPORT_CONTEXT", 16, 16, port::query_nic_context),
    command(0x755, "MODIFY_NIC_VPORT_CONTEXT", 256, 8, port::modify_nic_context),
    command(0x761, "SET_ROCE_ADDRESS", 48, 8, port::set_roce_address),
    command(0x762, "QUERY_HCA_VPORT_CONTEXT", 16, 16, port::query_context),
    command(0x764, "QUERY_HCA_VPORT_GID", 16, 16, port::query_gid),
    command(0x765, "QUERY_HCA_VPORT_PKEY", 16, 16, port::query_pkey),
    command(0x770, "QUERY_VPORT_COUNTER", 32, 528, port_counter::query_function),
    command(0x771, "ALLOC_Q_COUNTER", 16, 16, queue_counter::alloc),
    command(0x772, "DEALLOC_Q_COUNTER", 16, 8, queue_counter::dealloc),
    command(0x773, "QUERY_Q_COUNTER", 32, 256, queue_counter::query),
    command(0x780, "SET_PP_RATE_LIMIT", 64, 8, pacing::set),
    command(0x800, "ALLOC_PD", 16, 16, object::alloc_pd),
    command(0x801, "DEALLOC_PD", 16, 8, object::dealloc_pd),
    command(0x802, "ALLOC_UAR", 16, 16, object::alloc_uar),
    command(0x803, "DEALLOC_UAR", 16, 8, object::dealloc_uar),
    command(0x805, "ACCESS_REG", 16, 8, function::access_register),
    command(0x806, "ATTACH_TO_MCG", 32, 8, qp::attach),
    command(0x807, "DETACH_FROM_MCG", 32, 8, qp::detach),
    command(0x80e, "ALLOC_XRCD", 16, 16, object::alloc_xrcd),
    command(0x80f, "DEALLOC_XRCD", 16, 8, object::dealloc_xrcd),
    command(0x816, "ALLOC_TRANSPORT_DOMAIN", 16, 16, object::alloc_transport_domain),
    command(0x817, "DEALLOC_TRANSPORT_DOMAIN", 16, 8, object::dealloc_transport_domain),
    command(0x826, "QUERY_CONG_STATISTICS", 16, 272, port_counter::query_congestion),
    command(0x827, "ADD_VXLAN_UDP_DPORT", 16, 8, flow::add_vxlan_port),
    command(0x828, "DELETE_VXLAN_UDP_DPORT", 16, 8, flow::delete_vxlan_port),
    command(0x900, "CREATE_TIR", 272, 16, transport::create_tir),
    command(0x901, "MODIFY_TIR", 272, 8, transport::modify_tir),
    command(0x902, "DESTROY_TIR", 16, 8, transport::destroy_tir),
    command(0x903, "QUERY_TIR", 16, 272, transport::query_tir),
    command(0x904, "CREATE_SQ", 272, 16, queue::create_sq),
    command(0x905, "MODIFY_SQ", 272, 8, queue::modify_sq),
    command(0x906, "DESTROY_SQ", 16, 8, queue::destroy_sq),
    command(0x907, "QUERY_SQ", 16, 272, queue::query_sq),
    command(0x908, "CREATE_RQ", 272, 16, queue::create_rq),
    command(0x909, "MODIFY_RQ", 272, 8, queue::modify_rq),
    command(0x90a, "DESTROY_RQ", 16, 8, queue::destroy_rq),
    command(0x90b, "QUERY_RQ", 16, 272, queue::query_rq),
    command(0x90c, "CREATE_RMP", 272, 16, transport::create_rmp),
    command(0x90d, "MODIFY_RMP", 272, 8, transport::modify_rmp),
    command(0x90e, "DESTROY_RMP", 16, 8, transport::destroy_rmp),
    command(0x90f, "QUERY_RMP", 16, 272, transport::query_rmp),
    command(0x912, "CREATE_TIS", 192, 16, transport::create_tis),
    command(0x913, "MODIFY_TIS", 192, 8, transport::modify_tis),
    command(0x914, "DESTROY_TIS", 16, 8, transport::destroy_tis),
    command(0x915, "QUERY_TIS", 16, 176, transport::query_tis),
    command(0x916, "CREATE_RQT", 272, 16, transport::create_rqt),
    command(0x917, "MODIFY_RQT", 272, 8, transport::modify_rqt),
    command(0x918, "DESTROY_RQT", 16, 8, transport::destroy_rqt),
    command(0x919, "QUERY_RQT", 16, 272, transport::query_rqt),
    command(0x92f, "SET_FLOW_TABLE_ROOT", 64, 8, flow::set_root),
    command(0x930, "CREATE_FLOW_TABLE", 64, 16, flow::create_table),
    command(0x931, "DESTROY_FLOW_TABLE", 64, 8, flow::destroy_table),
    command(0x932, "QUERY_FLOW_TABLE", 64, 64, flow::query_table),
    command(0x933, "CREATE_FLOW_GROUP", 1024, 16, flow::create_group),
    command(0x934, "DESTROY_FLOW_GROUP", 64, 8, flow::destroy_group),
    command(0x936, "SET_FLOW_TABLE_ENTRY", 832, 8, flow::set_entry),
    command(0x938, "DELETE_FLOW_TABLE_ENTRY", 64, 8, flow::delete_entry),
    command(0x939, "ALLOC_FLOW_COUNTER", 16, 16, counter::alloc),
    command(0x93a, "DEALLOC_FLOW_COUNTER", 16, 8, counter::dealloc),
    command(0x93b, "QUERY_FLOW_COUNTER", 32, 32, counter::query),
    command(0x93c, "MODIFY_FLOW_TABLE", 64, 8, flow::modify_table),
    command(0xa00, "CREATE_GENERAL_OBJECT", 16, 16, general::create),
    command(0xa03, "DESTROY_GENERAL_OBJECT", 16, 8, general::destroy),
    command(0xa04, "CREATE_UCTX", 16, 16, object::create_uctx),
    command(0xa06, "DESTROY_UCTX", 16, 8, object::destroy_uctx),
    command(0xa08, "CREATE_UMEM", 48, 16, memory::create_umem),
    command(0xa0a, "DESTROY_UMEM", 16, 8, memory::destroy_umem),
];

impl Command {
    pub(crate) fn find(opcode: u16) -> Option<&'static Self> {
        COMMANDS.binary_search_by_key(&opcode, |command| command.opcode).ok().map(|index| &COMMANDS[index])
    }

    /// The name of an opcode, including opcodes that the device does not support.
    pub(crate) fn name(opcode: u16) -> &'static str {
        Self::find(opcode).map_or("?", |command| command.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_in_order() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.opcode < b.opcode));
    }
}
