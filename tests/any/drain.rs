//! Draining queue pairs: everything that was posted ends, and no wait hangs.

use std::time::Duration;

use crate::behaviours::each;
use crate::common::*;
use crate::held::hold;
use uverbs::{
    CompletionQueue, Context, Datagram, ErrorKind, Eth, FlowRule, Operation, ProtectionDomain, QpState,
    QpType, QueuePair, Rc, ReceiveRequest, SendRequest, Status, Uc, Ud,
};

const LONG: Duration = Duration::from_secs(20);
const ETIMEDOUT: i32 = 110;

/// Drains, and returns number and status of the completions.
fn drain<T: QpType>(qp: &mut QueuePair<T>, queues: &mut [&mut CompletionQueue]) -> Vec<(u64, Status)> {
    let mut ended = Vec::new();
    qp.drain(queues, LONG, |completion| ended.push((completion.wr_id, completion.status))).unwrap();
    ended
}

fn flushed(wr_ids: impl IntoIterator<Item = u64>) -> Vec<(u64, Status)> {
    wr_ids.into_iter().map(|wr_id| (wr_id, Status::Flushed)).collect()
}

/// The completions with these numbers, in their order.
fn only(ended: &[(u64, Status)], range: std::ops::Range<u64>) -> Vec<(u64, Status)> {
    ended.iter().filter(|(wr_id, _)| range.contains(wr_id)).copied().collect()
}

#[test]
fn everything_posted_is_flushed_in_order_and_nothing_comes_later() {
    hold(each::failures::everything_posted_is_flushed_in_order_and_nothing_comes_later);
}

#[test]
fn a_receive_that_is_posted_after_the_error_is_flushed() {
    on_every_connecting_device(|target| {
        if target.device.driver() == "erdma" {
            return skip(
                target,
                "programs cannot ask it to flush what is posted later (erdma_flush_worker, Linux 7.3)",
            );
        }
        let (mut one, _two) = rc_pair(target);
        one.qp.to_error().unwrap();
        if target.device.driver() == "mana" {
            // As with libmana.
            let receive = one.qp.post_receive(&[ReceiveRequest::new(1, &[])]);
            return refuses(receive, ErrorKind::InvalidInput, EINVAL, "not ready");
        }
        one.receive(1, 0..8);
        if target.device.driver() == "rxe" {
            // Receives have no doorbell. The device looks when the queue pair enters the error state again.
            one.qp.to_error().unwrap();
        }
        let flushed = one.completion();
        assert_eq!((flushed.wr_id, flushed.status), (1, Status::Flushed));
    });
}

#[test]
fn receives_for_frames_are_drained_and_what_has_arrived_is_not_lost() {
    on_every_wire(|_, wire, mut raw| {
        let _flow = raw.qp.create_flow(&FlowRule::normal(1).eth(Eth::any().dst(MAC))).unwrap();
        raw.post_receives(4);
        wire.inject(&frame(MAC, 60));
        let ended = drain(&mut raw.qp, &mut [&mut raw.cq]);
        assert_eq!(ended[0], (0, Status::Success));
        assert_eq!(ended[1..], flushed(1..4));
        assert_eq!(raw.completions().len(), 0);
        raw.memory.destroy().map_err(|(_, error)| error).expect("no request has the memory any more");
    });
}

#[test]
fn full_rings_are_drained() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let cq = context.create_cq(64).unwrap();
        let make = |pd: &ProtectionDomain, _: &CompletionQueue| {
            pd.rc(&cq).send_depth(8).receive_depth(8).create().unwrap()
        };
        let (mut one, mut two) = (Side::<Rc>::new(&context, make), Side::<Rc>::new(&context, make));
        connect(&context, &mut one.qp, &mut two.qp);
        one.cq = cq;
        let (sends, receives) = (one.qp.capacity().sends, one.qp.capacity().receives);
        for wr_id in 0..sends {
            one.qp.post_send(&[SendRequest::new(wr_id.into(), Operation::Send, &[])]).unwrap();
        }
        for wr_id in 0..receives {
            one.qp.post_receive(&[ReceiveRequest::new(100 + u64::from(wr_id), &[])]).unwrap();
        }
        let ended = drain(&mut one.qp, &mut [&mut one.cq]);
        assert_eq!(only(&ended, 0..100), flushed(0..sends.into()));
        assert_eq!(only(&ended, 100..200), flushed(100..100 + u64::from(receives)));
        assert_eq!(ended.len(), (sends + receives) as usize);
    });
}

#[test]
fn unreliable_queue_pairs_and_datagrams_are_drained() {
    on_every_connecting_device_with("datagrams", datagrams, |target| {
        let context = target.open();
        let options = options(&context);
        let mut uc = Side::<Uc>::new(&context, |pd, cq| pd.uc(cq).create().unwrap());
        let own = uc.qp.endpoint(&options, 1).unwrap();
        uc.qp.connect(&options, &own, &own).unwrap();
        uc.receive(1, 0..8);
        assert_eq!(drain(&mut uc.qp, &mut [&mut uc.cq]), flushed([1]));

        let mut ud = Side::<Ud>::new(&context, |pd, cq| pd.ud(cq).create().unwrap());
        ud.qp.activate(&options, 5, 0).unwrap();
        let to = ud.pd.create_ah(&options.route(&own)).unwrap();
        let datagram = Datagram { to: &to, qp_num: ud.qp.number(), qkey: 5, immediate: None };
        (1..=3).for_each(|wr_id| ud.receive(wr_id, 0..100));
        ud.send(10, datagram, 0..8);
        let ended = drain(&mut ud.qp, &mut [&mut ud.cq]);
        // The datagram is sent and received, or it is flushed.
        assert_eq!(only(&ended, 10..11).len(), 1);
        let receives = only(&ended, 1..4);
        assert_eq!(receives.iter().map(|(wr_id, _)| *wr_id).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(receives[1..], flushed([2, 3]));
    });
}

#[test]
fn nothing_posted_is_drained_at_once_in_every_state_but_reset() {
    on_every_connecting_device_with("datagrams", datagrams, |target| {
        let context = target.open();
        let mut side = Side::<Ud>::new(&context, |pd, cq| pd.ud(cq).create().unwrap());
        let drained = side.qp.drain(&mut [&mut side.cq], LONG, |_| {});
        refuses(drained, ErrorKind::InvalidInput, EINVAL, "no transition from Reset to Error");
        let options = options(&context);
        side.qp.activate(&options, 1, 0).unwrap();
        assert_eq!(drain(&mut side.qp, &mut [&mut side.cq]), []);
        // And the queue pair can be used again.
        side.qp.reset().unwrap();
        side.qp.activate(&options, 1, 0).unwrap();
        side.receive(3, 0..8);
        assert_eq!(drain(&mut side.qp, &mut [&mut side.cq]), flushed([3]));
    });
}

#[test]
fn both_completion_queues_are_needed() {
    on_every_connecting_device_with("datagrams", datagrams, |target| {
        let context = target.open();
        let mut other = context.create_cq(16).unwrap();
        let make =
            |pd: &ProtectionDomain, cq: &CompletionQueue| pd.ud(cq).receive_cq(&other).create().unwrap();
        let mut side = Side::<Ud>::new(&context, make);
        side.qp.activate(&options(&context), 1, 0).unwrap();
        side.receive(1, 0..8);
        let lacks = side.qp.drain(&mut [&mut side.cq], LONG, |_| panic!("nothing was polled"));
        refuses(lacks, ErrorKind::InvalidInput, EINVAL, "every completion queue");
        assert_eq!(side.qp.state().unwrap(), QpState::ReadyToSend, "nothing was done");
        assert_eq!(drain(&mut side.qp, &mut [&mut other, &mut side.cq]), flushed([1]));
    });
}

#[test]
fn completions_of_others_are_handed_on_too() {
    on_every_connecting_device_with("datagrams", datagrams, |target| {
        let context = target.open();
        let mut side = Side::<Ud>::new(&context, |pd, cq| pd.ud(cq).create().unwrap());
        let mut second = side.pd.ud(&side.cq).create().unwrap();
        let options = options(&context);
        side.qp.activate(&options, 1, 0).unwrap();
        second.activate(&options, 1, 0).unwrap();
        side.receive(1, 0..8);
        second.post_receive(&[ReceiveRequest::new(2, &[])]).unwrap();
        let ended = drain(&mut second, &mut [&mut side.cq]);
        assert_eq!(ended, flushed([2]));
        side.qp.to_error().unwrap();
        let mut rest = drain(&mut second, &mut [&mut side.cq]);
        rest.extend(drain(&mut side.qp, &mut [&mut side.cq]));
        assert_eq!(rest, flushed([1]));
    });
}

#[test]
fn receives_of_a_shared_queue_stay_there() {
    let make = |context: &Context| context.alloc_pd()?.create_srq(8);
    on_every_connecting_device_with("shared receive queues", make, |target| {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let mut srq = pd.create_srq(8).unwrap();
        let share = |_: &ProtectionDomain, cq: &CompletionQueue| pd.rc(cq).srq(&srq).create().unwrap();
        let (mut two, mut three) = (Side::<Rc>::new(&context, share), Side::<Rc>::new(&context, share));
        let mut one = Side::<Rc>::new(&context, |pd, cq| pd.rc(cq).create().unwrap());
        connect(&context, &mut one.qp, &mut two.qp);
        let memory = pd.register(64, ALL).unwrap();
        let segments = [memory.segment(0..64).unwrap()];
        srq.post_receive(&[ReceiveRequest::new(1, &segments), ReceiveRequest::new(2, &segments)]).unwrap();
        one.send(1, Operation::Send, 0..8);
        assert_eq!((one.completion().wr_id, two.completion().wr_id), (1, 1));
        two.qp.post_send(&[SendRequest::new(5, Operation::Send, &[])]).unwrap();
        assert_eq!(drain(&mut two.qp, &mut [&mut two.cq]), flushed([5]));

        let mut four = Side::<Rc>::new(&context, |pd, cq| pd.rc(cq).create().unwrap());
        connect(&context, &mut four.qp, &mut three.qp);
        four.send(1, Operation::Send, 0..8);
        let got = three.completion();
        assert_eq!((got.wr_id, got.status), (2, Status::Success));
    });
}

/// A completion queue after an overrun returns nothing more; on the soft device always.
#[test]
fn lost_completions_end_the_wait() {
    let target = Target::soft(uverbs::soft::Profile::default());
    let context = target.open();
    let mut cq = context.create_cq(1).unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut qp = pd.ud(&cq).create().unwrap();
    qp.activate(&options(&context), 1, 0).unwrap();
    (0..9).for_each(|wr_id| qp.post_receive(&[ReceiveRequest::new(wr_id, &[])]).unwrap());
    let drained = qp.drain(&mut [&mut cq], Duration::from_millis(1), |_| {});
    refuses(drained, ErrorKind::TimedOut, ETIMEDOUT, "completion queue without room");
}

/// After the removal of the device, nothing completes any more.
#[test]
fn a_device_that_goes_ends_the_wait() {
    let target = Target::soft(uverbs::soft::Profile::default());
    let context = target.open();
    let mut side = Side::<Ud>::new(&context, |pd, cq| pd.ud(cq).create().unwrap());
    side.qp.activate(&options(&context), 1, 0).unwrap();
    side.receive(1, 0..8);
    target.soft.as_ref().unwrap().unplug();
    let drained = side.qp.drain(&mut [&mut side.cq], LONG, |_| {});
    assert_eq!(drained.unwrap_err().kind(), ErrorKind::Disassociated);
}
