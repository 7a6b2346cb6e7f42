//! Everything that differs between drivers.
//!
//! Code outside this folder names no driver. It calls a method of [`Driver`] and gets a value or a plan. A plan contains the driver's
//! request, room for its response, and the memory that the device may access. After the kernel has created the object, `open` returns
//! the queue. If a driver does not support something, the method returns an error with a hint.
//!
//! What needs no queue, a driver says itself ([`Control`]), and how its queues are created ([`Queues`]). All that names every driver is made
//! from the list in this file.

pub(crate) mod completion;
pub(crate) mod cq;
#[cfg(feature = "raw")]
pub(crate) mod cursor;
pub(crate) mod efa;
pub(crate) mod erdma;
mod flow;
pub(crate) mod list;
pub(crate) mod mana;
pub(crate) mod mlx5;
mod others;
mod plans;
#[cfg(feature = "raw")]
pub mod provider;
pub(crate) mod request;
pub(crate) mod ring;
pub(crate) mod rq;
pub(crate) mod rxe;
pub(crate) mod seam;
pub(crate) mod siw;
pub(crate) mod sq;

/// Calls a macro, whose path is in the brackets, with the list of drivers with queues, followed by other tokens: the only list of them. For
/// each driver: what bindings are told about it, its variant, its folder, `Box` if its queues are stored in boxes, and the variant of its
/// shared receive queues.
#[doc(hidden)]
#[cfg_attr(feature = "raw", macro_export)]
macro_rules! with_drivers {
    ([$($then:tt)+] $($more:tt)*) => {
        $($then)+! {
            [
                /// rxe, and the soft device.
                Rxe: rxe, shared receives in Rxe;
                /// mlx5.
                Mlx5: mlx5, shared receives in Mlx5Shared;
                /// efa.
                Efa: efa Box, shared receives in Efa;
                /// siw.
                Siw: siw Box, shared receives in Siw;
                /// erdma.
                Erdma: erdma Box, shared receives in Erdma;
                /// mana.
                Mana: mana Box, shared receives in Mana;
            ]
            $($more)*
        }
    };
}
pub(crate) use with_drivers;

use std::ops::Deref;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::types::qp_type;
use uverbs_abi::write::QpCap;

use self::cq::Completions;
pub(crate) use self::plans::CounterValues;
use self::plans::{CounterPlan, stored};
#[cfg(feature = "raw")]
pub(crate) use self::provider::ProviderKind;
use self::rq::Receives;
#[cfg(feature = "raw")]
pub use self::seam::CompletionFields;
pub(crate) use self::seam::{
    ContextPlan, CqShape, CqSide, Created, GuardedKeys, Kernel, Known, PointData, Points, QpQueues, QpShape,
    RefusedBind, Sides, SrqSide,
};
use self::seam::{Control, Planned, Queues, without_work_queues};
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use self::seam::{DriverCq, DriverQp, PacketCaps};
use self::sq::Sends;
use crate::kernel::error::{Error, Result};

const NO_SRD: &str = "of the devices that this crate knows, only those of efa have reliable datagrams (srd)";
const NO_CHOICES: &str = "the device's driver has no flags of its own for the queue";
const NO_MEMORY: &str = "of the devices that this crate knows, only those of efa support completion queues in memory of the program";

/// The error for something that this version of the crate does not support for a driver.
fn lacks<T>(op: &'static str, hint: &'static str) -> Result<T> {
    Err(Error::refused(op, Errno::EOPNOTSUPP, hint))
}

/// The enum of drivers, and the hint for those that are not in it.
macro_rules! drivers {
    ([$($(#[$doc:meta])* $name:ident: $folder:ident $($boxed:ident)?, shared receives in $shared:ident;)*]) => {
        const NO_QUEUES: &str = concat!(
            "this version of the crate has queues for these only: the soft device",
            $(", ", stringify!($folder),)*
        );

        /// The user half of a driver, with the state that the queues of a context share.
        #[derive(Debug)]
        pub(crate) enum Driver {
            $($(#[$doc])* $name($folder::State),)*
            /// The soft device: rxe's rings and mlx5's counters.
            #[cfg_attr(not(feature = "soft"), expect(dead_code))]
            Soft,
            /// A driver whose payloads this crate does not know.
            Other,
        }

        impl Driver {
            pub(crate) fn of(driver: u32) -> Self {
                match driver {
                    $(<$folder::State as Queues>::NUMBER => Self::$name($folder::State::default()),)*
                    _ => Self::Other,
                }
            }

            /// The context was created; the plan contains the response.
            pub(crate) fn opened(&mut self, plan: &ContextPlan) {
                match self {
                    $(Self::$name(state) => state.opened(&plan.answer),)*
                    // They answer nothing.
                    Self::Soft | Self::Other => {}
                }
            }

            /// Which of the providers for bindings its queues have.
            #[cfg(feature = "raw")]
            pub(crate) fn provider(&self) -> ProviderKind {
                match self {
                    $(Self::$name(_) => ProviderKind::$name,)*
                    // Without queues of its own nothing depends on it.
                    Self::Soft | Self::Other => ProviderKind::Rxe,
                }
            }
        }

        impl Deref for Driver {
            type Target = dyn Control;

            fn deref(&self) -> &(dyn Control + 'static) {
                match self {
                    $(Self::$name(state) => state,)*
                    Self::Soft => &others::Soft,
                    Self::Other => &others::Other,
                }
            }
        }
    };
}

with_drivers!([drivers]);

/// Uses the state of a driver with queues. The soft device has rxe's.
macro_rules! with_queues {
    (
        [$($(#[$doc:meta])* $name:ident: $folder:ident $($boxed:ident)?, shared receives in $shared:ident;)*]
        $driver:expr, $op:expr, $state:ident => $work:expr
    ) => {
        match $driver {
            $(Driver::$name($state) => $work,)*
            Driver::Soft => {
                let $state = &rxe::State;
                $work
            }
            Driver::Other => lacks($op, NO_QUEUES),
        }
    };
}

impl Driver {
    /// A completion counter of the device, and where its values are read. The kernel reports whether the device has such counters.
    pub(crate) fn plan_completion_counter(&self, op: &'static str) -> Result<CounterPlan> {
        if self.counts_in_memory() {
            return efa::CounterPlan::new(op).map(CounterPlan::Memory);
        }
        Ok(CounterPlan::Kernel)
    }

    /// A completion queue.
    pub(crate) fn plan_cq(
        &self,
        op: &'static str,
        shape: &CqShape<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<u32, Completions> {
        if !self.has_choices() && shape.memory.is_some() {
            return lacks(op, NO_MEMORY);
        }
        if !self.has_choices() && shape.driver != DriverCq::default() {
            return lacks(op, NO_CHOICES);
        }
        with_drivers!([with_queues] self, op, state => Ok(stored(state.plan_cq(op, shape, kernel)?, Into::into)))
    }

    /// A queue pair.
    pub(crate) fn plan_qp(
        &self,
        op: &'static str,
        shape: &QpShape,
        sides: Sides<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<QpCap, QpQueues<Sends, Receives>> {
        if !self.has_choices() && shape.type_ == qp_type::DRIVER {
            return lacks(op, NO_SRD);
        }
        if !self.has_choices() && shape.driver != DriverQp::default() {
            return lacks(op, NO_CHOICES);
        }
        with_drivers!([with_queues] self, op, state => {
            Ok(stored(state.plan_qp(op, shape, sides, kernel)?, |QpQueues { sends, receives, cap, known }| {
                QpQueues { sends: sends.into(), receives: receives.map(Into::into), cap, known }
            }))
        })
    }

    /// A shared receive queue; one of extended connections completes in `queue`.
    pub(crate) fn plan_srq(
        &self,
        op: &'static str,
        wanted: [u32; 2],
        queue: Option<&Arc<dyn CqSide>>,
        kernel: &dyn Kernel,
    ) -> Planned<[u32; 2], Receives> {
        if queue.is_some() {
            self.plan_xrcd(op)?;
        }
        with_drivers!([with_queues] self, op, state => {
            Ok(stored(state.plan_srq(op, wanted, queue, kernel)?, Into::into))
        })
    }

    /// A receive work queue that completes in this queue.
    pub(crate) fn plan_wq(
        &self,
        op: &'static str,
        wanted: [u32; 2],
        queue: &Arc<dyn CqSide>,
        kernel: &dyn Kernel,
    ) -> Planned<[u32; 2], Receives> {
        with_drivers!([with_queues] self, op, state => {
            Ok(stored(state.plan_wq(op, wanted, queue, kernel)?, Into::into))
        })
    }

    /// The driver's data for a change of a work queue's state.
    pub(crate) fn plan_wq_change(&self, op: &'static str) -> Result<&'static [u8]> {
        self.wq_change().ok_or_else(|| without_work_queues(op))
    }

    /// A table of work queues, for which the driver needs no data.
    pub(crate) fn plan_table(&self, op: &'static str) -> Result<()> {
        self.plan_wq_change(op).map(drop)
    }
}
