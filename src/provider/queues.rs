//! The queues of whichever driver: rings that the kernel made, or memory that the device reads itself.

use super::{mlx5, rxe};
use crate::completion::Completion;
use crate::error::{Error, Result};

/// A completion queue.
#[derive(Debug)]
pub(crate) enum Completions {
    Rings(rxe::Completions),
    Mlx5(mlx5::Completions),
}

impl Completions {
    /// How many completions it can hold.
    pub(crate) fn capacity(&self) -> u32 {
        match self {
            Self::Rings(ring) => ring.capacity(),
            Self::Mlx5(queue) => queue.capacity(),
        }
    }

    /// Hands up to `limit` completions to `take`, gives their places back at once, and says how many.
    pub(crate) fn poll(&mut self, limit: usize, take: impl FnMut(Completion)) -> usize {
        match self {
            Self::Rings(ring) => ring.poll(limit, take),
            Self::Mlx5(queue) => queue.poll(limit, take),
        }
    }

    /// mlx5's queue, for its queue pairs.
    pub(crate) fn mlx5(&self, op: &'static str) -> Result<&mlx5::Completions> {
        match self {
            Self::Mlx5(queue) => Ok(queue),
            Self::Rings(_) => Err(Error::malformed(op, "a completion queue of another driver")),
        }
    }
}
