//! Reading all counters of a pool without waiting for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use uverbs_abi::mlx5::DevxAsyncCmdHdr;
use uverbs_abi::mlx5::prm::QueryFlowCounterIn;
use zerocopy::FromBytes;

use super::devx::command as devx;
use super::pool::PoolCore;
use super::reader::Values;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::event;

const OP: &str = "pool.query";

/// Bytes before the firmware's answer.
const NUMBER: usize = size_of::<DevxAsyncCmdHdr>();

/// Asynchronous reads of all counters of a [`CounterPool`](super::CounterPool). Each is one command, and its answer arrives
/// through a file that can be polled ([`AsFd`]).
///
/// It keeps the pool alive. Dropping it waits until the firmware has answered all commands.
#[derive(Debug)]
pub struct PoolQueries {
    answers: OwnedFd,
    pool: Arc<PoolCore>,
    request: QueryFlowCounterIn,
    /// The last answer, after its number.
    answer: Box<[u8]>,
    started: u64,
}

impl PoolQueries {
    pub(super) fn new(pool: Arc<PoolCore>) -> Result<Self> {
        let answers = devx::answers(pool.row.object.context(), OP)?;
        event::set_nonblocking(OP, &answers)?;
        let (request, answer) = (pool.row.request(), vec![0; NUMBER + pool.row.answer_size()]);
        Ok(Self { answers, pool, request, answer: answer.into(), started: 0 })
    }

    /// Starts a read and returns its number; the first is 1.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) if answers of 1 MiB are outstanding or not taken yet, which are 16 answers of
    /// the largest pool.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY` (devx.c, Linux 6.1).
    pub fn start(&mut self) -> Result<u64> {
        let number = self.started + 1;
        let place = (self.answers.as_fd(), number);
        devx::start_query(&self.pool.row.object, OP, &self.request, self.pool.row.answer_size(), place)
            .map_err(|error| {
                error
                    .hinted_if(ErrorKind::Exhausted, "too many reads are under way; take their answers first")
            })?;
        self.started = number;
        Ok(number)
    }

    /// The next answer with its number, or none if there is none yet. It does not block, with the exception below. Answers arrive
    /// in the order in which the reads were started.
    ///
    /// The kernel also returns zeros for a command that never reached the firmware (devx_query_callback, devx.c, Linux 6.1,
    /// ignores the status). If all counters are zero, they are therefore read once more, and the call waits for that read.
    ///
    /// # Errors
    /// Those of [`PoolReader::read`](super::PoolReader::read). The answer is lost then.
    pub fn try_next(&mut self) -> Result<Option<(u64, Values<'_>)>> {
        match self.take()? {
            Some(number) => Ok(Some((number, self.values()?))),
            None => Ok(None),
        }
    }

    /// Takes the next answer, and returns its number.
    pub(super) fn take(&mut self) -> Result<Option<u64>> {
        self.pool.row.object.context().check_origin(OP)?;
        let Some(len) = devx::take(OP, &self.answers, &mut self.answer)? else { return Ok(None) };
        let head = DevxAsyncCmdHdr::read_from_prefix(&self.answer).map(|(head, _)| head);
        let head = head.ok().filter(|_| len == self.answer.len());
        let head = head.ok_or_else(|| Error::malformed(OP, "an answer of another length"))?;
        Ok(Some(head.wr_id))
    }

    /// The values in the last answer.
    pub(super) fn values(&mut self) -> Result<Values<'_>> {
        let row = &self.pool.row;
        let answer = self.answer.get_mut(NUMBER..).unwrap_or_default();
        if answer.iter().all(|byte| *byte == 0) {
            devx::query(&row.object, OP, &self.request, answer)?;
        } else {
            devx::judge(OP, Ok(()), answer)?;
        }
        Ok(Values::new(&self.pool, row.counters(OP, answer)?))
    }

    /// Waits until there is an answer or `timeout` has elapsed (none: forever). Returns whether there is one.
    ///
    /// # Errors
    /// Those of `poll(2)`; [`Disassociated`](crate::ErrorKind::Disassociated) in a child of `fork`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        self.pool.row.object.context().check_origin(OP)?;
        event::wait(OP, &self.answers, timeout)
    }
}

impl AsFd for PoolQueries {
    /// The file of answers. It is readable when [`PoolQueries::try_next`] has one.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.answers.as_fd()
    }
}
