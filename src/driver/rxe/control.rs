//! What rxe says about its device.

use uverbs_abi::rxe::{CreateAhResp, Mminfo};
use uverbs_abi::write::{AhAttr, QpCap};

use crate::driver::request::Address;
use crate::driver::seam::{AhPlan, Control, GuardedKeys, Kernel, SrqChange};
use crate::kernel::error::Result;

/// `RXE_MAX_QP_WR` and `RXE_MAX_SRQ_WR`, rxe_param.h, Linux 6.1 to 7.3.
const MOST_REQUESTS: u32 = 1 << 20;

/// The driver has no state of its own.
#[derive(Debug, Default)]
pub(crate) struct State;

impl Control for State {
    fn name(&self) -> &'static str {
        "rxe"
    }

    fn firmware(&self, raw: u64) -> Option<String> {
        let part = |shift: u32| raw >> shift & 0xffff;
        Some(format!("{}.{}.{}", part(32), part(16), part(0)))
    }

    #[cfg(feature = "raw")]
    fn has_flushes(&self) -> bool {
        true
    }

    fn guarded_keys(&self) -> GuardedKeys {
        GuardedKeys::OfDriver
    }

    /// `rxe_alloc_pd`, rxe_verbs.c, Linux 6.1 to 7.3.
    fn numbers_domains(&self) -> bool {
        false
    }

    /// - It uses each region that advice names as one that is paged (`rxe_ib_prefetch_sg_list`, rxe_odp.c, Linux 7.3); see
    ///   [`Paged`](crate::device::context).
    /// - It finds the page of an address by its distance from the beginning of the region in the process, also if the region has other
    ///   addresses for the device (`rxe_check_pagefault`, rxe_odp.c, Linux 7.3).
    ///
    /// Of the other drivers, only that of mlx5 has paging, and checks both.
    fn believes_paging(&self) -> bool {
        true
    }

    fn plan_ah(&self, _: &'static str, attr: &AhAttr) -> Result<AhPlan> {
        let address = |_: &_, [number, ..]: [u32; 4]| Address { number, ..Address::default() };
        Ok(AhPlan::new(attr, size_of::<CreateAhResp>(), address))
    }

    fn may_resize_cq(&self, _: &'static str, _: u32, _: &dyn Kernel) -> Result<()> {
        Ok(())
    }

    fn plan_srq_change(&self, _: &'static str) -> Result<SrqChange> {
        Ok(SrqChange::Rings(Mminfo::default()))
    }

    fn granted_shared(&self, asked: u32, _: u32, room: u32) -> u32 {
        room.min(asked.max(MOST_REQUESTS))
    }

    fn granted_pair(&self, asked: &QpCap, told: QpCap) -> QpCap {
        QpCap {
            max_send_wr: told.max_send_wr.min(asked.max_send_wr.max(MOST_REQUESTS)),
            max_recv_wr: told.max_recv_wr.min(asked.max_recv_wr.max(MOST_REQUESTS)),
            ..told
        }
    }

    /// `rxe_counter_inc`, sw/rxe, Linux 6.1.
    fn counter_bits(&self, _: &str) -> Option<u8> {
        Some(64)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn a_ring_that_holds_more_than_the_limit_is_granted_up_to_it() {
        let most = (1 << 20, (1 << 21) - 1);
        assert_eq!(State.granted_shared(most.0, most.0, most.1), most.0);
        assert_eq!(State.granted_shared(4, 4, 7), 7);
        let cap = |requests| QpCap { max_send_wr: requests, max_recv_wr: requests, ..QpCap::new_zeroed() };
        assert_eq!(State.granted_pair(&cap(most.0), cap(most.1)), cap(most.0));
        // Linux 6.1 returns what was asked for.
        assert_eq!(State.granted_pair(&cap(5), cap(5)), cap(5));
        assert_eq!(State.granted_pair(&cap(5), cap(7)), cap(7));
    }
}
