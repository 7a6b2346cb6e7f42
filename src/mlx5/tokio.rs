//! Reading all counters of a pool as a future of tokio.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::queries::PoolQueries;
use super::reader::Values;
use crate::kernel::error::{Error, Result};

/// Reads all counters of a [`CounterPool`](super::CounterPool) from tasks of tokio. Each read is one command, and no thread is
/// blocked meanwhile.
///
/// ```no_run
/// # async fn task(pool: uverbs::mlx5::CounterPool) -> uverbs::Result<()> {
/// use uverbs::mlx5::AsyncPoolReader;
///
/// let counter = pool.take()?;
/// let mut reader = AsyncPoolReader::new(pool.queries()?)?;
/// println!("{:?}", reader.read().await?.of(&counter));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncPoolReader {
    queries: PoolQueries,
    file: AsyncFd<OwnedFd>,
}

impl AsyncPoolReader {
    /// Watches the file through which answers arrive.
    ///
    /// # Errors
    /// Those of `dup(2)` and `epoll_ctl(2)`.
    ///
    /// # Panics
    /// If called outside a runtime of tokio with its I/O driver enabled.
    pub fn new(queries: PoolQueries) -> Result<Self> {
        let file = queries.as_fd().try_clone_to_owned().map_err(of_io)?;
        #[allow(deprecated, reason = "as for `Events`")]
        let file = AsyncFd::with_interest(file, Interest::READABLE).map_err(of_io)?;
        Ok(Self { queries, file })
    }

    /// Reads all counters of the pool, with one command.
    ///
    /// If the future is dropped, the command continues, and the next read skips its answer.
    ///
    /// # Errors
    /// Those of [`PoolQueries::start`] and [`PoolQueries::try_next`].
    pub async fn read(&mut self) -> Result<Values<'_>> {
        let number = self.queries.start()?;
        loop {
            let mut ready = self.file.readable().await.map_err(of_io)?;
            match self.queries.take()? {
                Some(taken) if taken == number => break,
                Some(_) => {}
                None => ready.clear_ready(),
            }
        }
        self.queries.values()
    }
}

fn of_io(error: io::Error) -> Error {
    Error::io("pool.query", &error)
}
