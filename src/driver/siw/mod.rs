//! The user half of siw, software iWARP.
//!
//! Queues are arrays of slots in memory of the kernel, which returns where they can be mapped. A flag in each slot says who owns it, and
//! neither side has an index. There are only connected queue pairs, and a connection manager connects them: a queue pair gets its
//! connection, and with it the state in which it can send, in the kernel and not by a command of this crate.
//!
//! Source: siw_verbs.c, siw_qp.c, siw_qp_tx.c, siw_qp_rx.c and siw_cq.c, Linux 6.1 to 7.3; providers/siw/siw.c, rdma-core 65. The kernel
//! refuses a place that is too small for its response, and a missing one.

#[cfg(feature = "raw")]
pub(crate) mod binding;
mod completions;
mod control;
mod plans;
mod receives;
mod sends;
mod slots;

#[cfg(test)]
mod tests;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_abi::siw::{RegMrReq, RegMrResp};
use uverbs_abi::write::QueryQpResp;
use zerocopy::{FromZeros, IntoBytes};

pub(crate) use self::completions::Completions;
pub(crate) use self::receives::Receives;
pub(crate) use self::sends::Sends;
use super::seam::Exchange;

/// The hint for other types of queue pairs.
const TYPES: &str = "siw has reliable connections (rc) only";

/// The hint for a queue pair that is not ready.
const NOT_CONNECTED: &str = "a queue pair of iWARP is ready when a connection manager (rdma_cm) has connected it: no change of its state does that";

const NO_STATES: &str = "before Linux 6.8 siw does not say in which state a queue pair is";

/// State that the objects of a context share.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Low byte of the next region's keys.
    next_key: AtomicU32,
    /// Whether the driver returns the state of queue pairs, once it is known.
    tells_states: OnceLock<bool>,
}

impl State {
    /// The low byte of a region's keys differs from that of the region that had the same place before (`siw_reg_user_mr`, siw_verbs.c).
    fn keys_of_region(&self) -> Exchange {
        let stag_key = self.next_key.fetch_add(1, Ordering::Relaxed) as u8;
        let request = RegMrReq { stag_key, ..RegMrReq::new_zeroed() }.as_bytes().to_vec();
        Exchange { request, answer: vec![0; size_of::<RegMrResp>()] }
    }

    /// Whether the driver returns the state of queue pairs (`siw_query_qp`, siw_verbs.c, since Linux 6.8). The response of older kernels
    /// is meaningless but looks valid, so the kernel can be identified only by its release.
    fn has_states(&self) -> bool {
        *self.tells_states.get_or_init(|| {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            is_at_least(&release, [6, 8])
        })
    }

    /// Keeps of a response only what `siw_query_qp` fills in.
    fn keep_answered(&self, answer: &mut QueryQpResp) {
        *answer = QueryQpResp {
            qp_state: if self.has_states() { answer.qp_state } else { 0 },
            qp_access_flags: answer.qp_access_flags,
            path_mtu: answer.path_mtu,
            max_rd_atomic: answer.max_rd_atomic,
            max_dest_rd_atomic: answer.max_dest_rd_atomic,
            max_send_wr: answer.max_send_wr,
            max_recv_wr: answer.max_recv_wr,
            max_send_sge: answer.max_send_sge,
            max_recv_sge: answer.max_recv_sge,
            max_inline_data: answer.max_inline_data,
            ..QueryQpResp::new_zeroed()
        };
    }
}

/// Whether a kernel's release, such as `6.12.1-amd64`, is no older than this one.
fn is_at_least(release: &str, wanted: [u32; 2]) -> bool {
    let (mut parts, mut digits, mut at) = ([0_u32; 2], 0, 0);
    for byte in release.bytes() {
        match byte {
            b'0'..=b'9' => {
                parts[at] = parts[at].saturating_mul(10).saturating_add((byte - b'0').into());
                digits += 1;
            }
            b'.' if at == 0 && digits > 0 => (at, digits) = (1, 0),
            _ => break,
        }
    }
    at == 1 && digits > 0 && parts >= wanted
}
