//! How much of a queue is granted.
//!
//! The ring of a queue has as many slots as a power of two, and may so hold more than can be asked for. What is granted can be asked for
//! again, so it ends at the limit of the device.

use uverbs_abi::write::QpCap;

use super::Driver;

/// `RXE_MAX_QP_WR` and `RXE_MAX_SRQ_WR`, rxe_param.h, Linux 6.1 to 7.3.
const RXE_REQUESTS: u32 = 1 << 20;
/// `SIW_MAX_SRQ_WR` and `SIW_MAX_CQE`, siw.h, Linux 6.1 to 7.3.
const SIW_SHARED: u32 = 32 * 1024 * 10;
const SIW_ENTRIES: u32 = 32 * 1024 * 100;

impl Driver {
    /// The entries of a completion queue whose ring has `room`, after `asked` were requested and the kernel returned `told`.
    pub(crate) fn granted_entries(&self, asked: u32, told: u32, room: u32) -> u32 {
        match self {
            Self::Siw(_) => room.min(asked.max(SIW_ENTRIES)),
            Self::Soft => room.min(asked.max(told)),
            Self::Rxe | Self::Mlx5(_) | Self::Efa(_) | Self::Other => room,
        }
    }

    /// The requests of a shared receive queue whose ring has `room`, after `asked` were requested and the kernel returned `told`, which
    /// rxe of Linux 6.1 and siw do not adapt to the ring.
    pub(crate) fn granted_shared(&self, asked: u32, told: u32, room: u32) -> u32 {
        match self {
            Self::Rxe => room.min(asked.max(RXE_REQUESTS)),
            Self::Siw(_) => room.min(asked.max(SIW_SHARED)),
            Self::Soft => room.min(asked.max(told)),
            Self::Mlx5(_) | Self::Efa(_) | Self::Other => room,
        }
    }

    /// The capacity of a queue pair that the kernel returned, after `asked` was requested.
    pub(crate) fn granted_pair(&self, asked: &QpCap, told: QpCap) -> QpCap {
        match self {
            Self::Rxe => QpCap {
                max_send_wr: told.max_send_wr.min(asked.max_send_wr.max(RXE_REQUESTS)),
                max_recv_wr: told.max_recv_wr.min(asked.max_recv_wr.max(RXE_REQUESTS)),
                ..told
            },
            Self::Soft | Self::Siw(_) | Self::Mlx5(_) | Self::Efa(_) | Self::Other => told,
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::driver::siw;

    #[test]
    fn a_ring_that_holds_more_than_the_limit_is_granted_up_to_it() {
        let siw = Driver::Siw(siw::State::default());
        let most = (1 << 20, (1 << 21) - 1);
        assert_eq!(Driver::Rxe.granted_shared(most.0, most.0, most.1), most.0);
        assert_eq!(Driver::Rxe.granted_shared(4, 4, 7), 7);
        assert_eq!(siw.granted_shared(327_680, 327_680, 1 << 19), 327_680);
        assert_eq!(siw.granted_entries(3_276_800, 1 << 22, 1 << 22), 3_276_800);
        assert_eq!(siw.granted_entries(5, 8, 8), 8);
        assert_eq!(Driver::Soft.granted_entries(16, 16, 31), 16);
        let cap = |requests| QpCap { max_send_wr: requests, max_recv_wr: requests, ..QpCap::new_zeroed() };
        assert_eq!(Driver::Rxe.granted_pair(&cap(most.0), cap(most.1)), cap(most.0));
        // Linux 6.1 returns what was asked for.
        assert_eq!(Driver::Rxe.granted_pair(&cap(5), cap(5)), cap(5));
        assert_eq!(Driver::Rxe.granted_pair(&cap(5), cap(7)), cap(7));
    }
}
