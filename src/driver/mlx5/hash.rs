//! Queue pairs over an indirection table, which need only a request.
//!
//! Source: `create_rss_raw_qp_tir`, qp.c, Linux 6.1.

use uverbs_abi::mlx5::{CreateQpResp, CreateQpRss, RX_HASH_FUNC_TOEPLITZ};
use zerocopy::{FromZeros, IntoBytes};

use crate::driver::seam::Exchange;

/// With a Toeplitz hash of these fields, whose bits are those of `ibv_rx_hash_fields`, with this key, and flags for tunnels and loopback.
pub(super) fn plan_hash(fields: u64, key: &[u8; 40], flags: u16) -> Exchange {
    let mut rx_hash_key = [0; 128];
    rx_hash_key[..key.len()].copy_from_slice(key);
    let request = CreateQpRss {
        rx_hash_fields_mask: fields,
        rx_hash_function: RX_HASH_FUNC_TOEPLITZ,
        rx_key_len: key.len() as u8,
        rx_hash_key,
        flags: flags.into(),
        ..CreateQpRss::new_zeroed()
    };
    Exchange { request: request.as_bytes().to_vec(), answer: vec![0; size_of::<CreateQpResp>()] }
}
