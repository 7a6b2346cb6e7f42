//! Completion queues for bindings: completions as the kernel lays them out, and what a destroy reports.

use std::sync::Arc;

use uverbs_abi::write::{DestroyCqResp, Wc};
use zerocopy::FromBytes;

use super::CompletionQueue;
use crate::error::{Error, ErrorKind, Result};
use crate::object;
use crate::raw::QueuePair;

impl CompletionQueue {
    /// The kernel's handle of the queue.
    pub fn handle(&self) -> u32 {
        self.shared.id()
    }

    /// Takes completions, as many as there are places; `fill` puts each into its place. Says how many. Flags are the
    /// kernel's ([`WcFlags`](crate::WcFlags)).
    #[inline]
    pub fn poll_wc<T>(&mut self, places: &mut [T], fill: impl Fn(&mut T, Wc)) -> usize {
        let context = self.shared.context();
        self.ring.poll_wc(places, || context.is_here(), fill)
    }

    /// Takes out the completions of a queue pair that was reset, as drivers of cards do (mlx5_modify_qp,
    /// providers/mlx5/verbs.c, rdma-core 44): they tell of requests that the program counts as forgotten. rxe leaves them
    /// (rxe_qp_reset, rxe_qp.c, Linux 6.12).
    pub fn forget(&mut self, qp: &QueuePair) {
        if self.shared.context().is_here() {
            self.ring.forget(qp.number());
        }
    }

    /// Destroys the queue, and says how many of its events were read, so that whoever handed out pointers can wait for
    /// the last user of one.
    ///
    /// # Errors
    /// As [`CompletionQueue::destroy`].
    pub fn destroy_reporting(self) -> Result<DestroyCqResp, (Self, Error)> {
        let Self { ring, shared, tally } = self;
        let mut shared = match Arc::try_unwrap(shared) {
            Ok(shared) => shared,
            Err(shared) => {
                let error = object::shared("cq.destroy", "a queue pair still uses the completion queue");
                return Err((Self { ring, shared, tally }, error));
            }
        };
        match shared.object.release_reporting() {
            Ok(bytes) => Ok(DestroyCqResp::read_from_bytes(&bytes).unwrap_or_default()),
            // A device that has gone has taken the queue along.
            Err(error) if error.kind() == ErrorKind::Disassociated => Ok(DestroyCqResp::default()),
            Err(error) => Err((Self { ring, shared: Arc::new(shared), tally }, error)),
        }
    }
}

#[cfg(all(test, feature = "soft"))]
mod tests {
    use uverbs_abi::rxe::Sge;
    use uverbs_abi::types::{QpAttrMask, QpCreateFlags, qp_state, qp_type};
    use uverbs_abi::write::{ModifyQp, Wc};
    use zerocopy::FromZeros;

    use crate::raw::{QueuePair, QueuePairInit, ReceiveQueue, SendQueue};
    use crate::{Capacity, SoftDevice};

    #[test]
    fn completions_of_a_queue_pair_can_be_taken_out() {
        let context = SoftDevice::default().open().unwrap();
        let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(8).unwrap());
        let capacity = Capacity { sends: 1, receives: 4, receive_segments: 1, ..Capacity::default() };
        let flags = QpCreateFlags::empty();
        let init = || QueuePairInit {
            type_: qp_type::UD,
            send_cq: &cq,
            receive_cq: &cq,
            srq: None,
            capacity,
            cookie: 0,
            flags,
        };
        let mut qps = [pd.create_parts(&init()).unwrap(), pd.create_parts(&init()).unwrap()];
        let modify =
            |(qp, sends, receives): &mut (QueuePair, SendQueue, Option<ReceiveQueue>), qp_state, more| {
                let attr_mask = (QpAttrMask::STATE | more).bits();
                let request = ModifyQp { attr_mask, qp_state, port_num: 1, ..ModifyQp::new_zeroed() };
                qp.modify(&request, sends, receives.as_mut()).unwrap();
            };
        // Flushed by turns, so that what stays and what goes lie side by side.
        for (round, at) in [0, 1, 0, 1].into_iter().enumerate() {
            let qp = &mut qps[at];
            modify(qp, qp_state::INIT, QpAttrMask::PORT | QpAttrMask::PKEY_INDEX | QpAttrMask::QKEY);
            let receives = qp.2.as_mut().unwrap();
            receives.put(round as u64, [Sge { addr: 0x1000, length: 64, lkey: 5 }].into_iter()).unwrap();
            receives.publish();
            modify(qp, qp_state::ERR, QpAttrMask::empty());
            modify(qp, qp_state::RESET, QpAttrMask::empty());
        }
        let mut completions = [Wc::default(); 8];
        cq.forget(&qps[0].0);
        assert_eq!(cq.poll_wc(&mut completions, |place, wc| *place = wc), 2);
        assert_eq!([0, 1].map(|at| completions[at].wr_id), [1, 3]);
        assert_eq!([0, 1].map(|at| completions[at].qp_num), [qps[1].0.number(); 2]);
        assert_eq!(cq.poll_wc(&mut completions, |place, wc| *place = wc), 0);
    }
}
