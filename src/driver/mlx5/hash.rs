//! Queue pairs over an indirection table, which need only a request.
//!
//! Source: `create_rss_raw_qp_tir`, qp.c, Linux 6.1.

use uverbs_abi::mlx5::{CreateQpResp, CreateQpRss, RX_HASH_FUNC_TOEPLITZ};
use zerocopy::{FromZeros, IntoBytes};

/// A queue pair that spreads frames and is about to be created.
#[derive(Debug)]
pub(crate) struct HashPlan {
    request: CreateQpRss,
    response: CreateQpResp,
}

impl HashPlan {
    /// With a Toeplitz hash of these fields, whose bits are those of `ibv_rx_hash_fields`, with this key, and flags
    /// for tunnels and loopback.
    pub(in crate::driver) fn new(fields: u64, key: &[u8; 40], flags: u16) -> Self {
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
        Self { request, response: CreateQpResp::new_zeroed() }
    }

    /// The request for the driver, and the place for its response.
    pub(in crate::driver) fn payload(&mut self) -> (&[u8], &mut [u8]) {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }
}
