//! What bindings to C are told about a driver: how libibverbs' provider for it works.

use crate::driver::request::RequestKind;

/// How requests of the extended interface (`ibv_wr_start`) are written into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Whole, when their data is set, by code for the operation that was begun.
    AsBegun,
    /// Whole, when their data is set, by code for all operations.
    Whole,
    /// Part by part.
    InParts,
    /// There is no extended interface.
    Never,
}

/// How a completion is kept while its fields are read (`ibv_start_poll`). Values of these types are never made.
pub mod walk {
    /// In its slot, which is given back later.
    #[derive(Debug)]
    pub enum InPlace {}

    /// As the device has written it; a field is decoded when it is asked for.
    #[derive(Debug)]
    pub enum Unread {}

    /// Decoded, after its slot was given back.
    #[derive(Debug)]
    pub enum Told {}
}

/// What bindings are told about a driver.
pub trait Facts {
    /// How a completion is kept while its fields are read: one of [`walk`].
    type Walk;

    /// How requests of the extended interface are written.
    const WRITTEN: Written;

    /// Whether a request that is too large for the queue is reported as if the queue were full, and a queue pair with a shared receive queue
    /// has no receives of its own, as with libmlx5.
    const IS_LIKE_LIBMLX5: bool = false;

    /// Whether only this library changes the states of queue pairs, so that it knows them.
    const KNOWS_STATES: bool = true;

    /// The kind of all requests, if the driver has queue pairs for one only.
    const ONLY: Option<RequestKind> = None;
}
