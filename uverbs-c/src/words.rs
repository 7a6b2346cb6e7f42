//! Names of numbers, and rates: the texts that programs print are those of libibverbs.

use std::ffi::{CStr, c_int};

use crate::boundary::Pointer;

/// Statuses of completions, from zero.
const STATUS: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

/// Operations of requests, from zero; two numbers have no name.
const OPERATION: [&CStr; 16] = [
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    c"unknown",
    c"unknown",
    c"flush",
    c"atomic-write",
];

const EVENT: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const NODE: [&CStr; 8] = [
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT: [&CStr; 6] = [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

fn word(words: &'static [&'static CStr], number: c_int) -> Pointer {
    let known = usize::try_from(number).ok().and_then(|number| words.get(number));
    Pointer::to_text(known.copied().unwrap_or(c"unknown"))
}

pub(crate) extern "C" fn wc_status_str(status: c_int) -> Pointer {
    word(&STATUS, status)
}

pub(crate) extern "C" fn wr_opcode_str(opcode: c_int) -> Pointer {
    word(&OPERATION, opcode)
}

pub(crate) extern "C" fn event_type_str(event: c_int) -> Pointer {
    word(&EVENT, event)
}

pub(crate) extern "C" fn node_type_str(node: c_int) -> Pointer {
    word(&NODE, node)
}

pub(crate) extern "C" fn port_state_str(state: c_int) -> Pointer {
    word(&PORT, state)
}

/// Codes of rates, with each rate as a multiple of 2.5 Gb/s (-1 if it is not one) and in Mb/s.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2500),
    (3, 4, 10000),
    (4, 12, 30000),
    (5, 2, 5000),
    (6, 8, 20000),
    (7, 16, 40000),
    (8, 24, 60000),
    (9, 32, 80000),
    (10, 48, 120000),
    (11, -1, 14062),
    (12, -1, 56250),
    (13, -1, 112500),
    (14, -1, 168750),
    (15, -1, 25781),
    (16, -1, 103125),
    (17, -1, 206250),
    (18, -1, 309375),
    (19, 11, 28125),
    (20, 20, 53125),
    (21, 160, 425000),
    (22, 240, 637500),
    (23, 320, 850000),
    (24, 480, 1275000),
];

/// `IBV_RATE_MAX`, returned for a rate without a code.
const MOST: c_int = 0;

pub(crate) extern "C" fn rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|known| known.0 == rate).map_or(-1, |known| known.1)
}

pub(crate) extern "C" fn mult_to_rate(mult: c_int) -> c_int {
    RATES.iter().find(|known| known.1 == mult && mult > 0).map_or(MOST, |known| known.0)
}

pub(crate) extern "C" fn rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|known| known.0 == rate).map_or(-1, |known| known.2)
}

pub(crate) extern "C" fn mbps_to_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|known| known.2 == mbps).map_or(MOST, |known| known.0)
}
