//! Firmware commands that fail, on a card with a control line and an InfiniBand port: each command for connections, shared receive
//! queues, windows and domains, at each of its uses. `firmware.rs` has those for frames.
#![cfg(feature = "soft")]

mod common;

use std::time::Instant;

use common::*;
use uverbs::{
    Attributes, Completion, CompletionQueue, Context, Error, Operation, QpAttrMask, QpState, QueuePair, Rc,
    ReceiveRequest, Result, SendRequest, Status, WindowType,
};

fn on_every_infiniband_card(behaviour: impl Fn(&Target, &Control)) {
    on_every_card(has_infiniband, behaviour);
}

/// Takes `count` completions, all of success.
fn completed(cq: &mut CompletionQueue, count: usize) {
    let (start, mut found) = (Instant::now(), 0);
    while found < count {
        let mut batch = Completion::batch::<4>();
        let more = cq.poll(&mut batch);
        assert!(batch[..more].iter().all(|end| end.status == Status::Success), "{:?}", &batch[..more]);
        found += more;
        assert!(start.elapsed().as_secs() < 20, "only {found} completions");
    }
}

/// A connection that is established and reset.
fn connected(context: &Context, qp: &mut QueuePair<Rc>) -> Result<()> {
    let options = options_of(context)?;
    let own = qp.endpoint(&options, 1)?;
    qp.connect(&options, &own, &own)?;
    qp.modify(&Attributes::to(QpState::ReadyToSend).rnr_timer(2))?;
    assert_eq!(qp.state()?, QpState::ReadyToSend);
    qp.query(QpAttrMask::AV)?;
    Ok(())
}

/// Connections, datagrams, and a shared queue.
fn ordinary(context: &Context) -> Result<()> {
    context.query_device()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(16)?;
    cq.resize(40)?;
    cq.moderate(1, 1)?;
    let mut memory = pd.register(4096, ALL)?;
    memory.change_access(ALL)?;
    let windows = [pd.alloc_window(WindowType::One)?, pd.alloc_window(WindowType::Two)?];
    let mut srq = pd.srq(4).create()?;
    srq.arm(1)?;
    assert_eq!(srq.query()?.srq_limit, 1);
    let mut rc = pd.rc(&cq).create()?;
    let mut shared = pd.rc(&cq).srq(&srq).create()?;
    connected(context, &mut rc)?;
    connected(context, &mut shared)?;
    let options = options_of(context)?;
    let mut uc = pd.uc(&cq).create()?;
    let own = uc.endpoint(&options, 1)?;
    uc.connect(&options, &own, &own)?;
    let mut ud = pd.ud(&cq).create()?;
    ud.activate(&options, 1, 1)?;
    let mut group = own.gid;
    group[0] = 0xff;
    let group = ud.join_multicast(&group, 0xc001)?;

    let segments = [memory.segment(..8)?];
    rc.post_receive(&[ReceiveRequest::new(1, &segments)])?;
    srq.post_receive(&[ReceiveRequest::new(2, &segments)])?;
    for qp in [&mut rc, &mut shared] {
        qp.post_send(&[SendRequest::new(3, Operation::Send, &segments).signaled()])?;
    }
    completed(&mut cq, 4);

    group.leave().map_err(|(_, error)| error)?;
    ud.destroy().map_err(|(_, error)| error)?;
    uc.destroy().map_err(|(_, error)| error)?;
    rc.to_error()?;
    rc.reset()?;
    rc.destroy().map_err(|(_, error)| error)?;
    shared.destroy().map_err(|(_, error)| error)?;
    srq.destroy().map_err(|(_, error)| error)?;
    for window in windows {
        window.destroy().map_err(|(_, error)| error)?;
    }
    memory.destroy().map_err(|(_, error)| error)?;
    cq.destroy().map_err(|(_, error)| error)?;
    pd.destroy().map_err(|(_, error)| error)
}

/// Extended connections.
fn extended(context: &Context) -> Result<()> {
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(16)?);
    let domain = context.open_xrcd()?;
    let memory = pd.register(4096, ALL)?;
    let mut srq = domain.srq(&pd, &cq, 4).create()?;
    srq.arm(1)?;
    srq.query()?;
    let mut receiver = domain.receive_qp().create()?;
    let mut sender = pd.xrc_send(&cq).create()?;
    let options = options_of(context)?;
    let (here, there) = (sender.endpoint(&options, 1)?, receiver.endpoint(&options, 2)?);
    receiver.connect(&options, &here)?;
    sender.connect(&options, &here, &there)?;
    assert_eq!((sender.state()?, receiver.state()?), (QpState::ReadyToSend, QpState::ReadyToReceive));
    let segments = [memory.segment(..8)?];
    srq.post_receive(&[ReceiveRequest::new(1, &segments)])?;
    let to = Operation::Send.to_srq(srq.number().expect("a queue of a domain"));
    sender.post_send(&[SendRequest::new(2, to, &segments).signaled()])?;
    completed(&mut cq, 2);
    receiver.to_error()?;
    receiver.reset()?;
    sender.reset()?;
    sender.destroy().map_err(|(_, error)| error)?;
    receiver.destroy().map_err(|(_, error)| error)?;
    srq.destroy().map_err(|(_, error)| error)?;
    domain.destroy().map_err(|(_, error)| error)?;
    memory.destroy().map_err(|(_, error)| error)?;
    cq.destroy().map_err(|(_, error)| error)?;
    pd.destroy().map_err(|(_, error)| error)
}

/// Runs a scenario on a device whose firmware is to refuse something.
fn run(target: &Target, scenario: &Scenario) -> Option<Error> {
    target.device.open().and_then(|context| scenario.1(&context)).err()
}

/// All faults are ended.
#[track_caller]
fn recovers(target: &Target, control: &Control) {
    control.heal();
    SCENARIOS.iter().for_each(|scenario| assert!(run(target, scenario).is_none()));
}

/// The commands of a scenario, and the number of each.
fn commands(target: &Target, control: &Control, scenario: &Scenario) -> Vec<(String, u32)> {
    control.ask("trace clear");
    assert!(run(target, scenario).is_none());
    let lines = control.ask("commands");
    let words = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.map(|words| (words[1].to_owned(), words[2].parse().expect("a number"))).collect()
}

type Scenario = (&'static str, fn(&Context) -> Result<()>);

const SCENARIOS: [Scenario; 2] = [("ordinary", ordinary), ("extended", extended)];

/// Commands that destroy something. The other test has the reset of a queue pair, with which the driver also begins to destroy one.
fn is_ending(command: &str) -> bool {
    ["DESTROY_", "DEALLOC_", "DETACH_", "2RST_"].iter().any(|start| command.starts_with(start))
}

/// Commands whose error is not reported, or that this program does not request: the speed of a port, which the driver replaces by a
/// default, and the kernel's queries of a queue pair that it destroys.
fn may_be_passed_over(command: &str) -> bool {
    matches!(command, "ACCESS_REG" | "QUERY_QP")
}

#[test]
fn every_command_that_makes_something_may_fail_at_each_of_its_uses() {
    on_every_infiniband_card(|target, control| {
        // The driver creates some objects when they are first needed.
        recovers(target, control);
        let objects = control.ask("objects");
        for scenario in &SCENARIOS {
            let all = commands(target, control, scenario);
            let is_there = |name: &str| all.iter().any(|(command, _)| command == name);
            for name in ["CREATE_QP", "RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP", "2ERR_QP", "CREATE_MKEY"] {
                assert!(is_there(name), "{name} is not in {}: {all:?}", scenario.0);
            }
            for (command, count) in all.iter().filter(|(command, _)| !is_ending(command)) {
                let first = STATUSES.iter().map(|&(status, errno)| (status, errno, 0));
                let mut told = 0;
                for (status, errno, after) in first.chain((1..*count).map(|after| (3, EINVAL, after))) {
                    let what = format!("{}: {command} with status {status} after {after}", scenario.0);
                    // If a context is refused with EINVAL, it is requested once more, as kernels before Linux 5.7 require.
                    let is_asked_twice = (command.as_str(), errno) == ("ALLOC_TRANSPORT_DOMAIN", EINVAL);
                    let times = if is_asked_twice { 2 } else { 1 };
                    control.ask(&format!("fail {command} {status} {times} 0 {after}"));
                    match run(target, scenario) {
                        Some(error) => is_of(&error, errno, &what),
                        None => assert!(may_be_passed_over(command), "nothing came of {what}"),
                    }
                    told += 1;
                    control.heal();
                    assert_eq!(control.ask("objects"), objects, "{what}");
                }
                assert!(told > 0);
            }
            recovers(target, control);
        }
    });
}

/// The effect of a command that destroys something, if the firmware refuses it once.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The driver ignores the error, and the firmware keeps the object.
    Untold,
    /// The same, and nothing is kept: the next command destroys it too.
    Passed,
    /// This operation returns the error; a second attempt succeeds.
    Told(&'static str),
    /// The same, but the kernel cannot try again, or an object whose error was ignored still uses this one.
    Held(&'static str),
}

/// The scenario, the command, how many of them succeed before, and the effect of the refused one.
const ENDING: &[(usize, &str, u32, Fate)] = &[
    (0, "DESTROY_MKEY", 0, Fate::Told("mw.destroy")),
    (0, "DESTROY_MKEY", 2, Fate::Told("mr.destroy")),
    (0, "DESTROY_CQ", 0, Fate::Told("cq.destroy")),
    (0, "DESTROY_RMP", 0, Fate::Told("srq.destroy")),
    (0, "DEALLOC_PD", 0, Fate::Told("pd.destroy")),
    (0, "DEALLOC_UAR", 0, Fate::Untold),
    (0, "DEALLOC_TRANSPORT_DOMAIN", 0, Fate::Untold),
    // For datagrams, for an unreliable connection, for the program's own reset, and for the shared queue.
    (0, "2RST_QP", 0, Fate::Passed),
    (0, "2RST_QP", 1, Fate::Passed),
    (0, "2RST_QP", 2, Fate::Told("qp.modify")),
    (0, "2RST_QP", 3, Fate::Passed),
    (1, "2RST_QP", 0, Fate::Told("qp.modify")),
    (1, "2RST_QP", 1, Fate::Told("qp.modify")),
    (1, "DESTROY_XRC_SRQ", 0, Fate::Told("srq.destroy")),
    (0, "DETACH_FROM_MCG", 0, Fate::Held("qp.leave_multicast")),
    (0, "DESTROY_QP", 0, Fate::Held("cq.destroy")),
    (0, "DESTROY_QP", 1, Fate::Held("cq.destroy")),
    (0, "DESTROY_QP", 2, Fate::Held("cq.destroy")),
    (0, "DESTROY_QP", 3, Fate::Held("srq.destroy")),
    (1, "DESTROY_QP", 0, Fate::Held("cq.destroy")),
    (1, "DESTROY_QP", 1, Fate::Held("xrcd.destroy")),
    (1, "DEALLOC_XRCD", 0, Fate::Held("xrcd.destroy")),
];

#[test]
fn every_command_that_ends_something_may_fail_once() {
    on_every_infiniband_card(|target, control| {
        recovers(target, control);
        for &(scenario, command, after, fate) in ENDING {
            let scenario = &SCENARIOS[scenario];
            for &(status, errno) in STATUSES {
                let told = match fate {
                    Fate::Held(_) => continue,
                    Fate::Untold | Fate::Passed => None,
                    Fate::Told(op) => Some((op, errno)),
                };
                let request = format!("fail {command} {status} 1 0 {after}");
                let is_left = matches!(fate, Fate::Untold);
                println!("{}: {request}", scenario.0);
                refuses_an_end(control, &request, told, is_left, || run(target, scenario));
            }
            recovers(target, control);
        }
    });
}

/// The kernel warns of objects that it cannot destroy when the device file is closed, and forgets them (`uverbs_destroy_ufile_hw`,
/// rdma_core.c, Linux 6.1).
#[test]
fn what_the_firmware_holds_on_to_is_told_and_others_live_on() {
    on_every_infiniband_card(|target, control| {
        if !is_switched_off_afterwards() {
            return skip(target, "the kernel would warn of what it cannot destroy");
        }
        recovers(target, control);
        for &(scenario, command, after, fate) in ENDING {
            // A command whose error is ignored is also sent by the program at another time.
            let times: &[u32] = if matches!(fate, Fate::Passed) { &[1] } else { &[1, 1_000_000] };
            for times in times {
                let what = format!("{command} {times} times after {after}");
                control.ask(&format!("fail {command} 3 {times} 0 {after}"));
                let answer = run(target, &SCENARIOS[scenario]);
                match fate {
                    Fate::Untold | Fate::Passed => assert!(answer.is_none(), "{what}"),
                    Fate::Told(op) | Fate::Held(op) => {
                        let error = answer.expect(&what);
                        // If it is always refused, the error may concern an object that is destroyed earlier.
                        let others = ["mw.destroy", "srq.destroy", "xrcd.destroy", "cq.destroy", "qp.modify"];
                        let is_named = error.op() == op || (*times > 1 && others.contains(&error.op()));
                        assert!(is_named, "{what}: {error}");
                        is_of(&error, EINVAL, &what);
                    }
                }
                recovers(target, control);
            }
        }
    });
}
