//! Numbers of the kernel in words.

use uverbs::abi::types::{qp_state, qp_type};

/// The type of a queue pair (`enum ib_qp_type`, ib_verbs.h), among them those of the kernel alone.
pub(super) fn qp_type(number: u8) -> String {
    let word = match number {
        0 => "SMI",
        1 => "GSI",
        qp_type::RC => "RC",
        qp_type::UC => "UC",
        qp_type::UD => "UD",
        qp_type::RAW_PACKET => "RAW_PACKET",
        qp_type::XRC_INI => "XRC_INI",
        qp_type::XRC_TGT => "XRC_TGT",
        qp_type::DRIVER => "DRIVER",
        _ => return format!("type {number}"),
    };
    word.to_owned()
}

/// The state of a queue pair.
pub(super) fn qp_state(number: u8) -> String {
    let word = match number {
        qp_state::RESET => "RESET",
        qp_state::INIT => "INIT",
        qp_state::RTR => "RTR",
        qp_state::RTS => "RTS",
        qp_state::SQD => "SQD",
        qp_state::SQE => "SQE",
        qp_state::ERR => "ERR",
        _ => return format!("state {number}"),
    };
    word.to_owned()
}

/// The state of an identifier of the connection manager (`enum rdma_cm_state`, core/cma_priv.h, Linux 6.1).
pub(super) fn cm_state(number: u8) -> String {
    const STATES: [&str; 11] = [
        "IDLE",
        "ADDR_QUERY",
        "ADDR_RESOLVED",
        "ROUTE_QUERY",
        "ROUTE_RESOLVED",
        "CONNECT",
        "DISCONNECT",
        "ADDR_BOUND",
        "LISTEN",
        "DEVICE_REMOVAL",
        "DESTROYING",
    ];
    STATES.get(usize::from(number)).map_or_else(|| format!("state {number}"), |word| (*word).to_owned())
}

/// The type of a shared receive queue (`enum ib_srq_type`, ib_verbs.h).
pub(super) fn srq_type(number: u8) -> String {
    let word = match number {
        0 => "basic",
        1 => "XRC",
        2 => "tag matching",
        _ => return format!("type {number}"),
    };
    word.to_owned()
}
