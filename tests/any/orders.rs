//! One exchange in every order of its steps: posting receives, posting sends, polling. The result is the same in every order, as far as
//! the transport guarantees it.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use uverbs::{
    Attributes, CompletionQueue, ConnectionOptions, Context, Eth, EventKind, FlowRule, ProtectionDomain,
    QpState, Rc, ReceiveRequest, SoftDevice, Status, Subject, Uc, Ud,
};

const LONG: Duration = Duration::from_secs(20);
fn both() -> Vec<(u64, Status)> {
    vec![(SEND, Status::Success), (RECEIVE, Status::Success)]
}

/// A step of one of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Receive(usize),
    Send(usize),
}

/// Every order of these steps.
fn orders(steps: &[Step]) -> Vec<Vec<Step>> {
    if steps.is_empty() {
        return vec![vec![]];
    }
    let first = |at: usize| {
        let mut rest = steps.to_vec();
        let step = rest.remove(at);
        orders(&rest).into_iter().map(move |order| [vec![step], order].concat())
    };
    (0..steps.len()).flat_map(first).collect()
}

const STEPS: [Step; 4] = [Step::Receive(0), Step::Send(0), Step::Receive(1), Step::Send(1)];

/// Which side polls after each of the four steps, two bits for each. On a real device fewer combinations are tried, because its timing
/// differs anyway.
fn polls(target: &Target) -> Vec<usize> {
    if target.soft.is_some() { (0..256).collect() } else { vec![0, 0xff] }
}

/// Executes the steps of an order, with polls in between.
fn run<T: Carrier>(parties: &mut [Party<T>; 2], order: &[Step], polls: usize) {
    for (at, step) in order.iter().enumerate() {
        match *step {
            Step::Receive(side) => parties[side].receive(RECEIVE),
            Step::Send(side) => parties[side].send(SEND),
        }
        for (side, party) in parties.iter_mut().enumerate() {
            if polls >> (2 * at + side) & 1 == 1 {
                party.poll();
            }
        }
    }
}

#[test]
fn a_reliable_exchange_ends_in_every_order() {
    with_each_queue(|target, shared| {
        let mut parties = parties::<Rc>(&target.open(), shared);
        for order in orders(&STEPS) {
            for polls in polls(target) {
                run(&mut parties, &order, polls);
                for party in &mut parties {
                    party.until(target, SEND, &order);
                    party.until(target, RECEIVE, &order);
                    assert_eq!(party.take(), both(), "{order:?}");
                }
            }
        }
    });
}

/// Without a receive a message is lost, and the sender does not notice.
fn messages_that_find_a_receive_arrive<T: Carrier>() {
    with_each_queue(|target, shared| {
        let mut parties = parties::<T>(&target.open(), shared);
        for order in orders(&STEPS) {
            for polls in polls(target) {
                run(&mut parties, &order, polls);
                let at = |wanted| order.iter().position(|step| *step == wanted);
                let arrives = |to: usize| at(Step::Receive(to)) < at(Step::Send(1 - to));
                for side in [0, 1] {
                    parties[side].until(target, SEND, &order);
                    if !arrives(side) {
                        // A real device may look for the receive late enough to find it.
                        let is_lost = |party: &mut Party<T>| {
                            party.poll();
                            !party.has(RECEIVE)
                        };
                        assert!(is_lost(&mut parties[side]) || target.soft.is_none(), "{order:?}");
                        parties[1 - side].send(LATE);
                        parties[1 - side].until(target, LATE, &order);
                    }
                    parties[side].until(target, RECEIVE, &order);
                }
                for party in &mut parties {
                    let mut ended = party.take();
                    ended.retain(|(wr_id, _)| *wr_id != LATE);
                    assert_eq!(ended, both(), "{order:?}");
                }
            }
        }
    });
}

#[test]
fn an_unreliable_message_arrives_when_its_receive_was_posted_before() {
    messages_that_find_a_receive_arrive::<Uc>();
}

#[test]
fn a_datagram_arrives_when_its_receive_was_posted_before() {
    messages_that_find_a_receive_arrive::<Ud>();
}

/// The steps of a ping-pong, for each side in its order: a reply follows the message.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Receive,
    Send,
    /// Polls until its receive has ended.
    Asked,
    /// Polls until both have.
    Done,
}

const ASKS: [&[Turn]; 2] =
    [&[Turn::Receive, Turn::Send, Turn::Done], &[Turn::Send, Turn::Receive, Turn::Done]];
const ANSWERS: [&[Turn]; 1] = [&[Turn::Receive, Turn::Asked, Turn::Send, Turn::Done]];

/// Executes the next step of a side, and returns whether it was the last.
fn take_turn<T: Carrier>(party: &mut Party<T>, turns: &mut &[Turn]) -> bool {
    let [turn, rest @ ..] = *turns else { return true };
    let is_over = match turn {
        Turn::Receive => {
            party.receive(RECEIVE);
            true
        }
        Turn::Send => {
            party.send(SEND);
            true
        }
        Turn::Asked | Turn::Done => {
            party.poll();
            party.has(RECEIVE) && (matches!(turn, Turn::Asked) || party.has(SEND))
        }
    };
    if is_over {
        *turns = rest;
    }
    turns.is_empty()
}

#[test]
fn a_ping_pong_ends_whoever_comes_first() {
    with_each_queue(|target, shared| {
        let mut parties = parties::<Rc>(&target.open(), shared);
        // Which side makes each of the first eight steps; then they alternate.
        let length = if target.soft.is_some() { 8 } else { 3 };
        for (asks, schedule) in ASKS.iter().flat_map(|asks| (0..1 << length).map(move |bits| (asks, bits))) {
            let mut turns = [*asks, ANSWERS[0]];
            let mut rounds = 0;
            let start = Instant::now();
            while turns.iter().any(|turns| !turns.is_empty()) {
                let side = if rounds < length { schedule >> rounds & 1 } else { rounds % 2 };
                take_turn(&mut parties[side], &mut turns[side]);
                rounds += 1;
                let is_over = if target.soft.is_some() { rounds > 30 } else { start.elapsed() > LONG };
                assert!(!is_over, "{asks:?}, {schedule:#b}: {turns:?} are left");
            }
            for party in &mut parties {
                assert_eq!(party.take(), both(), "{asks:?}, {schedule:#b}");
            }
        }
    });
}

#[test]
fn a_ping_pong_between_two_threads_ends() {
    with_each_queue(|target, shared| {
        let [mut one, mut two] = parties::<Rc>(&target.open(), shared);
        let rounds = if target.soft.is_some() { 100 } else { 20 };
        let play = |party: &mut Party<Rc>, turns: &[&[Turn]]| {
            for round in 0..rounds {
                let (start, mut turns) = (Instant::now(), turns[round % turns.len()]);
                while !take_turn(party, &mut turns) {
                    assert!(start.elapsed() < LONG, "round {round}: {turns:?} are left");
                    thread::yield_now();
                }
                assert_eq!(party.take(), both());
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| play(&mut one, &ASKS));
            play(&mut two, &ANSWERS);
        });
    });
}

#[test]
fn a_queue_pair_that_talks_to_itself_does_so_in_both_orders() {
    with_each_queue(|target, shared| {
        let context = target.open();
        let mut party = party::<Rc>(&context, shared);
        let options = options(&context);
        let own = party.side.qp.endpoint(&options, 5).unwrap();
        party.side.qp.connect(&options, &own, &own).unwrap();
        for order in orders(&[Step::Receive(0), Step::Send(0)]) {
            for step in &order {
                match step {
                    Step::Receive(_) => party.receive(RECEIVE),
                    Step::Send(_) => party.send(SEND),
                }
            }
            party.until(target, SEND, &order);
            party.until(target, RECEIVE, &order);
            assert_eq!(party.take(), both(), "{order:?}");
        }
    });
}

#[test]
fn a_sender_of_little_patience_fails_unless_the_receive_is_there() {
    with_each_queue(|target, shared| {
        for retries in [0, 1, 6] {
            let context = target.open();
            let [mut one, mut two] = [(); 2].map(|()| party::<Rc>(&context, shared));
            let options = ConnectionOptions { rnr_retries: retries, ..options(&context) };
            connect_parties(&mut one, &mut two, options);
            two.receive(RECEIVE);
            one.send(SEND);
            one.until(target, SEND, &retries);
            two.until(target, RECEIVE, &retries);
            assert_eq!([one.take()[0].1, two.take()[0].1], [Status::Success; 2]);
            one.send(SEND);
            one.until(target, SEND, &retries);
            assert_eq!(one.take(), [(SEND, Status::RnrRetryExceeded)]);
            two.receive(RECEIVE);
            two.poll();
            assert_eq!(two.take(), []);
        }
    });
}

#[test]
fn who_sleeps_on_a_channel_is_woken_by_the_receive_that_was_missing() {
    with_each_queue(|target, shared| {
        let context = target.open();
        let channel = context.create_comp_channel().unwrap();
        let [mut one, mut two] = [1, 2].map(|cookie| {
            let mut party = party::<Rc>(&context, shared);
            party.side.cq = context.cq(8).channel(&channel).cookie(cookie).create().unwrap();
            let builder = party.side.pd.rc(&party.side.cq).inline(64);
            party.side.qp = match &party.srq {
                Some(srq) => builder.srq(srq).create().unwrap(),
                None => builder.create().unwrap(),
            };
            party
        });
        Rc::connect(&context, &mut one, &mut two);
        one.side.cq.notify(false).unwrap();
        two.side.cq.notify(false).unwrap();
        one.send(SEND);
        assert_eq!(channel.next_event().unwrap(), None);
        two.receive(RECEIVE);
        let mut cookies = [(); 2].map(|()| {
            let wait = if target.soft.is_some() { Duration::ZERO } else { LONG };
            assert!(channel.wait(Some(wait)).unwrap(), "an event");
            channel.next_event().unwrap().expect("an event")
        });
        cookies.sort_unstable();
        assert_eq!(cookies, [1, 2]);
        one.until(target, SEND, &shared);
        two.until(target, RECEIVE, &shared);
    });
}

#[test]
fn a_send_queue_is_drained_when_the_receive_comes_that_it_waits_for() {
    with_each_queue(|target, shared| {
        if target.soft.is_none() {
            // req_retry and rxe_requester, rxe_req.c, Linux 6.1.
            return skip(
                target,
                "to rxe a request that is to be tried again has not begun: it waits until it is ready to send",
            );
        }
        let context = target.open();
        let [mut one, mut two] = parties::<Rc>(&context, shared);
        let subject = Subject::QueuePair(0);
        one.send(SEND);
        one.side.qp.modify(&Attributes::to(QpState::SendQueueDrain)).unwrap();
        no_event_about(&context, subject);
        two.receive(RECEIVE);
        assert_eq!(event_about(&context, subject), EventKind::SqDrained);
        one.until(target, SEND, &shared);
    });
}

#[test]
fn a_sender_that_waits_ends_when_either_side_breaks() {
    with_each_queue(|target, shared| {
        let context = target.open();
        let [mut one, mut two] = parties::<Rc>(&context, shared);
        one.send(SEND);
        target.settle();
        one.side.qp.to_error().unwrap();
        one.until(target, SEND, &shared);
        assert_eq!(one.take(), [(SEND, Status::Flushed)]);
        two.receive(RECEIVE);
        two.poll();
        assert_eq!(two.take(), [], "nothing comes of it any more");

        // Seven retries mean for ever on rxe (COMPST_ERROR_RETRY, rxe_comp.c, Linux 6.1).
        let [mut one, mut two] = [(); 2].map(|()| party::<Rc>(&context, shared));
        connect_parties(
            &mut one,
            &mut two,
            ConnectionOptions { retries: 1, timeout: 17, ..options(&context) },
        );
        one.send(SEND);
        two.side.qp.to_error().unwrap();
        one.until(target, SEND, &shared);
        assert_eq!(one.take(), [(SEND, Status::RetryExceeded)]);
    });
}

/// `one` waits for `two`, whose completion queue has room for one: another completion in that queue moves `two` to the error state.
fn with_a_full_queue(fill: impl FnOnce(&SoftDevice, &Context, &ProtectionDomain, &CompletionQueue)) {
    let device = SoftDevice::default();
    let context = device.open().unwrap();
    let small = context.create_cq(1).unwrap();
    let [mut one, mut two] = [(); 2].map(|()| party::<Rc>(&context, false));
    two.side.qp = two.side.pd.rc(&small).create().unwrap();
    Rc::connect(&context, &mut one, &mut two);
    one.send(SEND);
    one.poll();
    assert_eq!(one.take(), []);
    fill(&device, &context, &two.side.pd, &small);
    one.poll();
    assert_eq!(one.take(), [(SEND, Status::RetryExceeded)]);
}

#[test]
fn a_sender_that_waits_ends_when_a_completion_breaks_the_receiver() {
    with_a_full_queue(|_, context, pd, small| {
        let [mut three, mut four] = [(); 2].map(|()| party::<Rc>(context, false));
        three.side.qp = pd.rc(small).inline(64).create().unwrap();
        Rc::connect(context, &mut three, &mut four);
        three.send(1);
        three.send(3);
        // Retried after the one that waits for the queue pair that enters the error state.
        let room = [four.side.memory.segment(0..64).unwrap()];
        four.side.qp.post_receive(&[ReceiveRequest::new(2, &room); 2]).unwrap();
    });
}

#[test]
fn a_sender_that_waits_ends_when_a_frame_breaks_the_receiver() {
    with_a_full_queue(|device, _, pd, small| {
        let mut frames = pd.raw_packet(small).connect(1).unwrap();
        let _flow = frames.create_flow(&FlowRule::normal(1).eth(Eth::any().dst(MAC))).unwrap();
        let memory = pd.register(4096, ALL).unwrap();
        let room = [memory.segment(0..2048).unwrap()];
        frames.post_receive(&[ReceiveRequest::new(1, &room); 2]).unwrap();
        (0..2).for_each(|_| device.inject(&frame(MAC, 60)));
    });
}
