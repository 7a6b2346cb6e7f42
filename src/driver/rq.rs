//! The receive queues of all drivers.

use std::borrow::Borrow;

use super::list::{rings, stored};
use super::request::{Refused, Sge};
#[cfg(feature = "raw")]
use super::seam::OwnRing;
use super::seam::{FillReceives, Late, LowerReceive, ReceiveBatch, ReceiveRing, SrqSide};
use super::with_drivers;
use super::{mlx5, rxe};

/// The receive queue of a queue pair, or a shared one, of any driver.
#[derive(Debug)]
pub struct Receives(pub(crate) Rings);

// The soft device watches rxe's rings.
with_drivers!([rings] Receives, Soft: rxe::Watched, Mlx5Shared: mlx5::SharedReceives, Lost: Lost,);

/// Uses a queue, or only its type. The code is compiled for each driver.
macro_rules! with_receives {
    ($queue:expr, type $ring:ident => $work:expr) => {
        $crate::driver::with_drivers!(
            [$crate::driver::list::match_types]
            rq Receives [
                Soft: $crate::driver::rxe::Watched,
                Mlx5Shared: $crate::driver::mlx5::SharedReceives,
                Lost: $crate::driver::rq::Lost,
            ]
            $queue, $ring => $work
        )
    };
    ($queue:expr, $ring:ident => $work:expr) => {
        $crate::driver::with_drivers!([$crate::driver::list::match_rings] rq [Soft Mlx5Shared Lost] $queue, $ring => $work)
    };
}
pub(crate) use with_receives;

/// A queue of one driver, among those of all drivers.
pub(crate) trait Stored: ReceiveRing + Sized {
    /// The queue, if it is of this driver.
    fn of(queue: &mut Receives) -> Option<&mut Self>;
}

with_drivers!([stored] Receives, Soft: rxe::Watched, Mlx5Shared: mlx5::SharedReceives, Lost: Lost,);

/// A ring of rxe, which the soft device watches if it is one of its own.
impl From<rxe::Receiving> for Receives {
    fn from((ring, device): rxe::Receiving) -> Self {
        match device {
            Some(device) => rxe::Watched::new(ring, device).into(),
            None => ring.into(),
        }
    }
}

impl Receives {
    /// Number of places for what requests need.
    pub(crate) fn slots(&self) -> usize {
        with_receives!(&self.0, ring => ring.slots())
    }

    /// Number of requests that it can hold.
    pub(crate) fn capacity(&self) -> u32 {
        with_receives!(&self.0, ring => ring.capacity())
    }

    /// The slot that is filled next.
    pub(crate) fn next_slot(&self) -> u32 {
        with_receives!(&self.0, ring => ring.next_slot())
    }

    /// Whether all that was posted has completed, if this is known without an extra request.
    pub(crate) fn is_idle(&self) -> Option<bool> {
        with_receives!(&self.0, ring => ring.is_idle())
    }

    /// In the error state: removes the requests that the device does not read any more and has not flushed, oldest first.
    pub(crate) fn take_late(&mut self, each: impl FnMut(Late)) {
        with_receives!(&mut self.0, ring => ring.take_late(each));
    }

    /// The queue pair has entered a state.
    pub(crate) fn enter(&mut self, state: u8) {
        with_receives!(&mut self.0, ring => ring.enter(state));
    }

    /// Hands the ring over, if a program may use it directly.
    #[cfg(feature = "raw")]
    pub(crate) fn hand_over(&mut self) -> Option<OwnRing> {
        with_receives!(&mut self.0, ring => ring.hand_over())
    }

    /// The ring that the device now uses could not be mapped: nothing can be posted any more.
    pub(crate) fn lose(&mut self) {
        *self = Lost(self.next_slot()).into();
    }

    /// The part that queue pairs need that receive from it, if it is shared.
    pub(crate) fn side(&self) -> SrqSide {
        with_receives!(&self.0, ring => ring.side())
    }

    /// The device's number of a shared queue, if the driver returns it.
    #[cfg(feature = "raw")]
    pub(crate) fn number(&self) -> Option<u32> {
        with_receives!(&self.0, ring => ring.number())
    }
}

/// A ring that was lost, and its next slot: the one that the device now uses could not be mapped.
#[derive(Debug)]
pub(crate) struct Lost(u32);

impl ReceiveRing for Lost {
    fn slots(&self) -> usize {
        0
    }

    fn next_slot(&self) -> u32 {
        self.0
    }

    fn post<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        how.fill(&mut ReceiveBatch::new(&*self, pieces))
    }

    fn rewind(&mut self) {}
}

impl LowerReceive for &Lost {
    fn next_slot(&self) -> u32 {
        self.0
    }

    fn put<P>(&mut self, _: u64, _: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        Err(Refused::Lost)
    }
}
