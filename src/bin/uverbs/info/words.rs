//! Names for numbers, as ibv_devinfo gives them.

use uverbs::abi::types::{link_layer, mtu, node_type, phys_state, port_state};

/// The transport of a kind of node, with libibverbs' number for it.
pub(super) fn transport(node: u8) -> (&'static str, u8) {
    match node {
        node_type::RNIC => ("iWARP", 1),
        node_type::USNIC => ("usNIC", 2),
        node_type::USNIC_UDP => ("usNIC UDP", 3),
        node_type::UNSPECIFIED => ("unspecified", 4),
        _ => ("InfiniBand", 0),
    }
}

pub(super) fn atomics(number: u32) -> &'static str {
    match number {
        0 => "ATOMIC_NONE",
        1 => "ATOMIC_HCA",
        2 => "ATOMIC_GLOB",
        _ => "invalid atomic capability",
    }
}

pub(crate) fn state(number: u8) -> &'static str {
    match number {
        port_state::DOWN => "PORT_DOWN",
        port_state::INIT => "PORT_INIT",
        port_state::ARMED => "PORT_ARMED",
        port_state::ACTIVE => "PORT_ACTIVE",
        port_state::ACTIVE_DEFER => "PORT_ACTIVE_DEFER",
        _ => "invalid state",
    }
}

pub(super) fn bytes(number: u8) -> &'static str {
    match number {
        mtu::MTU_256 => "256",
        mtu::MTU_512 => "512",
        mtu::MTU_1024 => "1024",
        mtu::MTU_2048 => "2048",
        mtu::MTU_4096 => "4096",
        _ => "invalid MTU",
    }
}

/// The bytes of a packet's payload: the codes are powers of two.
pub(crate) fn mtu(code: u8) -> Option<u32> {
    (mtu::MTU_256..=mtu::MTU_4096).contains(&code).then(|| 128 << code)
}

pub(crate) fn link(number: u8) -> &'static str {
    match number {
        link_layer::UNSPECIFIED => "Unspecified",
        link_layer::INFINIBAND => "InfiniBand",
        link_layer::ETHERNET => "Ethernet",
        _ => "Unknown",
    }
}

/// Virtual lanes are coded.
pub(super) fn lanes(number: u8) -> &'static str {
    match number {
        1 => "1",
        2 => "2",
        3 => "4",
        4 => "8",
        5 => "15",
        _ => "invalid value",
    }
}

pub(crate) fn width(number: u8) -> &'static str {
    match number {
        1 => "1",
        2 => "4",
        4 => "8",
        8 => "12",
        16 => "2",
        _ => "invalid width",
    }
}

pub(crate) fn speed(number: u32) -> &'static str {
    match number {
        1 => "2.5 Gbps",
        2 => "5.0 Gbps",
        4 | 8 => "10.0 Gbps",
        16 => "14.0 Gbps",
        32 => "25.0 Gbps",
        64 => "50.0 Gbps",
        128 => "100.0 Gbps",
        256 => "200.0 Gbps",
        _ => "invalid speed",
    }
}

/// With ibv_devinfo's own spelling: listings are compared.
pub(super) fn physical(number: u8) -> &'static str {
    match number {
        phys_state::SLEEP => "SLEEP",
        phys_state::POLLING => "POLLING",
        phys_state::DISABLED => "DISABLED",
        phys_state::PORT_CONFIGURATION_TRAINING => "PORT_CONFIGURATION TRAINNING",
        phys_state::LINK_UP => "LINK_UP",
        phys_state::LINK_ERROR_RECOVERY => "LINK_ERROR_RECOVERY",
        phys_state::PHY_TEST => "PHY TEST",
        _ => "invalid physical state",
    }
}
