//! Paging on demand.

use super::Driver;

impl Driver {
    /// Whether the driver takes memory for paged on demand, and for where it expects it, without a check:
    /// - It uses each region that advice names as one that is paged (`rxe_ib_prefetch_sg_list`, rxe_odp.c, Linux 7.3); see
    ///   [`Paged`](crate::device::context).
    /// - It finds the page of an address by its distance from the beginning of the region in the process, also if the region has other
    ///   addresses for the device (`rxe_check_pagefault`, rxe_odp.c, Linux 7.3).
    ///
    /// Of the other drivers, only that of mlx5 has paging, and checks both.
    pub(crate) fn believes_paging(&self) -> bool {
        match self {
            Self::Rxe => true,
            Self::Mlx5(_) | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => false,
        }
    }
}
