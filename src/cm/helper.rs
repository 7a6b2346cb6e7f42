//! Threads for calls that block inside the kernel: connecting over iWARP, and destroying a client that was not answered.
//!
//! The first such call starts a thread, which ends when nothing has come for a while. Only if a call is still blocked when another one
//! comes is there a second thread, so that no connection waits for a host that does not answer another.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;

use crate::kernel::error::{Error, Result};

type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for another call before it ends.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    idle: usize,
}

#[derive(Default)]
pub(super) struct Helper {
    shared: Arc<(Mutex<Work>, Condvar)>,
}

impl Helper {
    /// Runs a call in a thread.
    pub(super) fn run(&self, job: Job) -> Result<()> {
        let (work, more) = &*self.shared;
        let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
        work.jobs.push_back(job);
        if work.idle >= work.jobs.len() {
            more.notify_one();
            return Ok(());
        }
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("uverbs-cm".to_owned()).spawn(move || serve(&shared));
        if thread.is_err() {
            // What the call owns is dropped without the lock, since that may block as well.
            let job = work.jobs.pop_back();
            drop(work);
            drop(job);
            return Err(Error::refused("cm.helper", Errno::EAGAIN, "no thread could be started"));
        }
        Ok(())
    }
}

fn serve((work, more): &(Mutex<Work>, Condvar)) {
    let mut held = work.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = held.jobs.pop_front() {
            drop(held);
            job();
            held = work.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        held.idle += 1;
        let (next, waited) = more.wait_timeout(held, PATIENCE).unwrap_or_else(PoisonError::into_inner);
        held = next;
        held.idle -= 1;
        if waited.timed_out() && held.jobs.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_call_does_not_wait_for_one_that_is_blocked() {
        let helper = Helper::default();
        let ((free, blocked), (told, done)) = (channel::<()>(), channel());
        helper.run(Box::new(move || assert!(blocked.recv().is_err()))).expect("a thread");
        for round in 0..3 {
            let told = told.clone();
            helper.run(Box::new(move || told.send(round).expect("the test"))).expect("a thread");
            assert_eq!(done.recv(), Ok(round));
        }
        drop(free);
    }
}
