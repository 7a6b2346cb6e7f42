//! What the layer for bindings has more than the safe interface.

use uverbs::abi::rxe::Sge;
use uverbs::abi::types::{QpAttrMask, QpCreateFlags, qp_state, qp_type};
use uverbs::abi::write::{ModifyQp, Wc};
use uverbs::raw::{QueuePair, QueuePairInit, ReceiveQueue, SendQueue};
use uverbs::{Capacity, SoftDevice};
use zerocopy::FromZeros;

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
    cq.forget(qps[0].0.number());
    assert_eq!(cq.poll_wc(&mut completions, |place, wc| *place = wc), 2);
    assert_eq!([0, 1].map(|at| completions[at].wr_id), [1, 3]);
    assert_eq!([0, 1].map(|at| completions[at].qp_num), [qps[1].0.number(); 2]);
    assert_eq!(cq.poll_wc(&mut completions, |place, wc| *place = wc), 0);
}
