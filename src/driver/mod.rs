//! What differs between drivers: the context's payload, the shape of queues, the counters' payload.

pub(crate) mod mlx5;
pub(crate) mod queues;
pub(crate) mod ring;
pub(crate) mod rxe;

use nix::errno::Errno;
use uverbs_abi::mlx5::AllocUcontextReqV2;
use uverbs_abi::types::driver_id;

use crate::error::{Error, Result};

/// The user half of a driver. A match on it stands where drivers differ, and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// rxe, software RoCE: queues are rings shared with the kernel.
    Rxe,
    /// mlx5, ConnectX: the one kernel driver with flow counters.
    Mlx5,
    /// The soft device: rxe's rings and mlx5's counters.
    #[cfg_attr(not(feature = "soft"), expect(dead_code))]
    Soft,
    /// A driver whose own payloads this crate does not know.
    Other,
}

impl Driver {
    pub(crate) fn of(driver: u32) -> Self {
        match driver {
            driver_id::RXE => Self::Rxe,
            driver_id::MLX5 => Self::Mlx5,
            _ => Self::Other,
        }
    }

    /// What the driver wants to be told when a context is made, with DEVX or without.
    pub(crate) fn context_request(self, devx: bool) -> Option<AllocUcontextReqV2> {
        (self == Self::Mlx5).then(|| mlx5::context_request(devx))
    }

    /// What it wants to be told if it refuses that: see [`mlx5::static_context_request`].
    pub(crate) fn older_context_request(self) -> Option<AllocUcontextReqV2> {
        (self == Self::Mlx5).then(mlx5::static_context_request)
    }

    /// Whether queues are rxe's rings; else the error that says so.
    pub(crate) fn needs_rings(self, op: &'static str) -> Result<()> {
        match self {
            Self::Rxe | Self::Soft => Ok(()),
            Self::Mlx5 | Self::Other => {
                let hint = "this version of the crate has this for rxe and the soft device only";
                Err(Error::refused(op, Errno::EOPNOTSUPP, hint))
            }
        }
    }

    /// Whether flows carry mlx5's payload.
    pub(crate) fn counts_as_mlx5(self) -> bool {
        matches!(self, Self::Mlx5 | Self::Soft)
    }
}
