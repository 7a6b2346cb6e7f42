//! What the layer for bindings has more than the safe interface.

use uverbs::abi::flow::{ATTR_ALL_DEFAULT, ATTR_MC_DEFAULT, ATTR_NORMAL, ATTR_SNIFFER, FlowAttr};
use uverbs::abi::types::{QpAttrMask, QpCreateFlags, SendFlags, qp_state, qp_type, wc_status};
use uverbs::abi::write::{ModifyQp, QpDest};
use uverbs::raw::{Extended, Opcode, QueuePair, QueuePairInit, ReceiveQueue, SendQueue, Sge};
use uverbs::{Capacity, Counters, ErrorKind, FlowRule, Point, SoftDevice};
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
        receives.post_one(round as u64, &[Sge { addr: 0x1000, length: 64, lkey: 5 }]).unwrap();
        modify(qp, qp_state::ERR, QpAttrMask::empty());
        modify(qp, qp_state::RESET, QpAttrMask::empty());
    }
    let mut completions = [Extended::default(); 8];
    cq.forget(qps[0].0.number());
    assert_eq!(cq.poll_places(&mut completions), 2);
    assert_eq!([0, 1].map(|at| completions[at].wc.wr_id), [1, 3]);
    assert_eq!([0, 1].map(|at| completions[at].wc.qp_num), [qps[1].0.number(); 2]);
    assert_eq!(cq.poll_places(&mut completions), 0);
}

#[test]
fn a_message_that_was_posted_first_finds_its_receive() {
    let context = SoftDevice::default().open().unwrap();
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(8).unwrap());
    let mut srq = pd.create_srq(4).unwrap();
    for shared in [false, true] {
        let capacity = Capacity { sends: 1, receives: 4, receive_segments: 1, ..Capacity::default() };
        let flags = QpCreateFlags::empty();
        let init = || QueuePairInit {
            type_: qp_type::RC,
            send_cq: &cq,
            receive_cq: &cq,
            srq: shared.then_some(&srq),
            capacity,
            cookie: 0,
            flags,
        };
        // It talks to itself.
        let (qp, mut sends, mut receives) = pd.create_parts(&init()).unwrap();
        let dest = QpDest {
            dgid: context.gid(1, 0).unwrap().raw,
            is_global: 1,
            port_num: 1,
            ..QpDest::new_zeroed()
        };
        type A = QpAttrMask;
        let steps = [
            (qp_state::INIT, A::PORT | A::PKEY_INDEX | A::ACCESS_FLAGS),
            (
                qp_state::RTR,
                A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN | A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER,
            ),
            (qp_state::RTS, A::SQ_PSN | A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC),
        ];
        for (qp_state, mask) in steps {
            let request = ModifyQp {
                attr_mask: (A::STATE | mask).bits(),
                qp_state,
                port_num: 1,
                dest,
                dest_qp_num: qp.number(),
                path_mtu: 3,
                rnr_retry: 7,
                ..ModifyQp::new_zeroed()
            };
            qp.modify(&request, &mut sends, receives.as_mut()).unwrap();
        }
        sends.put(1, SendFlags::SIGNALED, &Opcode::Send, &[]).unwrap();
        sends.publish().unwrap();
        let mut completions = [Extended::default(); 4];
        assert_eq!(cq.poll_places(&mut completions), 0);
        match &mut receives {
            Some(receives) => receives.post_one(2, &[]).unwrap(),
            None => srq.queue_mut().unwrap().post_one(2, &[]).unwrap(),
        }
        assert_eq!(cq.poll_places(&mut completions), 2, "shared: {shared}");
        let mut wr_ids = [0, 1].map(|at| (completions[at].wc.wr_id, completions[at].wc.status));
        wr_ids.sort_unstable();
        assert_eq!(wr_ids, [(1, wc_status::SUCCESS), (2, wc_status::SUCCESS)]);
    }
}

#[test]
fn a_rule_in_the_kernels_layout_counts_only_where_the_kernel_survives_it() {
    let context = SoftDevice::default().open().unwrap();
    let (counters, other) = (context.create_counters().unwrap(), context.create_counters().unwrap());
    counters.attach(Point::Packets, 0).unwrap();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
    let qp = pd.raw_packet(&cq).connect(1).unwrap();
    let ethernet = FlowRule::normal(1).eth(uverbs::Eth::any()).specs().to_vec();
    let count = FlowRule::normal(1).count(&other).specs().to_vec();
    let rule = |type_, parts: &[&[u8]], counters: Option<(&Counters, usize)>| {
        let attr = FlowAttr { type_, port: 1, num_of_specs: parts.len() as u8, ..FlowAttr::new_zeroed() };
        FlowRule::from_kernel(attr, &parts.concat(), counters)
    };
    let at = ethernet.len();
    let refused = |rule: uverbs::Result<FlowRule>, hint: &str| {
        let error = rule.unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidInput, Some(22)), "{error}");
        assert!(error.hint().unwrap().contains(hint), "{error}");
    };
    for type_ in [ATTR_ALL_DEFAULT, ATTR_MC_DEFAULT, ATTR_SNIFFER, 9] {
        refused(rule(type_, &[&count], Some((&counters, 0))), "normal rule");
        refused(rule(type_, &[&ethernet, &count], Some((&counters, at))), "normal rule");
        rule(type_, &[], None).unwrap();
    }
    // One that names an object by its handle alone would get past the guard between reads and binds.
    refused(rule(ATTR_NORMAL, &[&count], None), "needs counters");
    refused(rule(ATTR_ALL_DEFAULT, &[&count], None), "needs counters");
    refused(rule(ATTR_NORMAL, &[&count, &count], Some((&counters, 0))), "one counters object");
    refused(rule(ATTR_NORMAL, &[&count, &count], Some((&counters, 16))), "one counters object");
    refused(rule(ATTR_NORMAL, &[&ethernet], Some((&counters, 0))), "no count action");
    refused(rule(ATTR_NORMAL, &[&ethernet, &count], Some((&counters, at + 8))), "no count action");
    // A spec that the kernel would stop at, and what it would look at before.
    let mut shorter = count.clone();
    shorter[4] = 7;
    refused(rule(ATTR_NORMAL, &[&shorter, &count], Some((&counters, 16))), "no count action");
    shorter[4] = 8;
    refused(rule(ATTR_NORMAL, &[&ethernet, &shorter[..8]], Some((&counters, at))), "16 bytes");

    let flow = qp.create_flow(&rule(ATTR_NORMAL, &[&ethernet, &count], Some((&counters, at))).unwrap());
    drop(flow.unwrap());
    let mut most = vec![0; 880];
    most[864..].copy_from_slice(&count);
    refused(FlowRule::from_kernel(FlowAttr::new_zeroed(), &most, Some((&counters, 864))), "no count action");
}
