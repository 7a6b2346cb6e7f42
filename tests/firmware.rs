//! Firmware commands that fail, on a card with a control line: each that creates, changes or reads an object and each that destroys one,
//! with every status, at the first use and at later ones. Not the allocation of a flow counter, which the kernel
//! does not survive (`exhaustion.rs`); `firmware_messages.rs` has the commands of connections.
#![cfg(feature = "soft")]

mod common;

use common::*;
use uverbs::{
    AccessFlags, Completion, Context, Error, Eth, FlowRule, HashFields, Point, Result, WorkQueueState,
};

fn to(last: u8) -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst([2, 0, 0, 0, 0, last]))
}

/// Runs a behaviour on a card with a control line, and flows of frames.
fn on_every_card(behaviour: impl Fn(&Target, &Control)) {
    common::on_every_card(|target| !has_infiniband(target), behaviour);
}

/// Everything from open to close, with firmware commands that may fail.
fn scenario(context: &Context) -> Result<()> {
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(4)?;
    let qp = pd.raw_packet(&cq).connect(1)?;
    let memory = pd.register(4096, AccessFlags::LOCAL_WRITE)?;
    let mut queue = pd.work_queue(&cq).depth(4).create()?;
    queue.modify(WorkQueueState::Ready)?;
    let table = context.create_indirection_table(&[&queue])?;
    let spread = pd.rss(&table).hash(HashFields::IPV4).create()?;
    let counters = context.create_counters()?;
    counters.attach(Point::Packets, 0)?;
    let rule = to(1).count(&counters);
    // Flows that count come last: if the first one failed, the device file would stay open (`exhaustion.rs`).
    let plain = [spread.create_flow(&to(3))?, qp.create_flow(&to(4))?, qp.create_flow(&to(5))?];
    let flows = [qp.create_flow(&rule)?, qp.create_flow(&to(2).count(&counters))?];
    counters.read(&mut [0])?;
    flows[0].reader()?.read()?;
    assert_eq!(cq.poll(&mut Completion::batch::<4>()), 0);
    drop((flows, plain, rule));
    counters.destroy().map_err(|(_, error)| error)?;
    spread.destroy().map_err(|(_, error)| error)?;
    table.destroy().map_err(|(_, error)| error)?;
    queue.destroy().map_err(|(_, error)| error)?;
    memory.destroy().map_err(|(_, error)| error)?;
    qp.destroy().map_err(|(_, error)| error)?;
    cq.destroy().map_err(|(_, error)| error)?;
    pd.destroy().map_err(|(_, error)| error)
}

const MAKING: &[&str] = &[
    "ALLOC_TRANSPORT_DOMAIN",
    "ALLOC_UAR",
    "ALLOC_PD",
    "CREATE_CQ",
    "CREATE_MKEY",
    "CREATE_TIS",
    "CREATE_SQ",
    "CREATE_RQ",
    "CREATE_RQT",
    "CREATE_TIR",
    "MODIFY_SQ",
    "MODIFY_RQ",
    "CREATE_FLOW_TABLE",
    "SET_FLOW_TABLE_ROOT",
    "CREATE_FLOW_GROUP",
    "SET_FLOW_TABLE_ENTRY",
    "QUERY_FLOW_COUNTER",
];

/// The effect of a command that destroys something, if the firmware refuses it once.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The driver ignores the error, and the firmware keeps the object.
    Untold,
    /// The same, and what the object uses cannot be destroyed.
    Held,
    /// This operation returns the error; closing the device file tries again.
    Told(&'static str),
}

/// The command, how many of them succeed before, and the effect of the refused one.
const ENDING: &[(&str, u32, Fate)] = &[
    ("DEALLOC_FLOW_COUNTER", 0, Fate::Untold),
    ("DELETE_FLOW_TABLE_ENTRY", 0, Fate::Held),
    ("DESTROY_FLOW_GROUP", 0, Fate::Untold),
    ("DESTROY_FLOW_TABLE", 0, Fate::Untold),
    ("DESTROY_TIR", 0, Fate::Held),
    ("DESTROY_TIR", 1, Fate::Held),
    ("DESTROY_RQT", 0, Fate::Told("indirection_table.destroy")),
    // The first belongs to a work queue, the second to a queue pair.
    ("DESTROY_RQ", 0, Fate::Told("wq.destroy")),
    ("DESTROY_RQ", 1, Fate::Held),
    ("DESTROY_SQ", 0, Fate::Held),
    ("DESTROY_TIS", 0, Fate::Untold),
    ("DESTROY_MKEY", 0, Fate::Told("mr.destroy")),
    ("DESTROY_CQ", 0, Fate::Told("cq.destroy")),
    ("DEALLOC_PD", 0, Fate::Told("pd.destroy")),
    ("DEALLOC_UAR", 0, Fate::Untold),
    ("DEALLOC_TRANSPORT_DOMAIN", 0, Fate::Untold),
];

/// Runs the scenario on a device whose firmware is to refuse something.
fn run(target: &Target) -> Option<Error> {
    target.device.open().and_then(|context| scenario(&context)).err()
}

/// All faults are ended.
#[track_caller]
fn recovers(target: &Target, control: &Control) {
    control.heal();
    scenario(&target.open()).unwrap();
}

#[test]
fn every_command_that_makes_something_may_fail() {
    on_every_card(|target, control| {
        // The driver creates some objects when they are first needed.
        recovers(target, control);
        let objects = control.ask("objects");
        for command in MAKING {
            let later = [(3, EINVAL, 1), (8, ENOMEM, 2)];
            // Later ones belong to the end of a table, at which the driver does not survive a refusal (docs/internals/kernels.md).
            let later = later.iter().filter(|_| *command != "SET_FLOW_TABLE_ROOT").copied();
            let first = STATUSES.iter().map(|&(status, errno)| (status, errno, 0));
            for (status, errno, after) in first.chain(later) {
                let what = format!("{command} with status {status} after {after}");
                // If a context is refused with EINVAL, it is requested once more, as kernels before Linux 5.7 require.
                let times = if (command, errno) == (&"ALLOC_TRANSPORT_DOMAIN", EINVAL) { 2 } else { 1 };
                control.ask(&format!("fail {command} {status} {times} 0 {after}"));
                match run(target) {
                    Some(error) => is_of(&error, errno, &what),
                    // There are fewer commands, or only the driver is affected.
                    None => {
                        println!("nothing came of {what}");
                        assert_ne!(after, 0, "{what}");
                    }
                }
                control.heal();
                assert_eq!(control.ask("objects"), objects, "{what}");
            }
            recovers(target, control);
        }
    });
}

#[test]
fn every_command_that_ends_something_may_fail_once() {
    on_every_card(|target, control| {
        recovers(target, control);
        for &(command, after, fate) in ENDING {
            for &(status, errno) in STATUSES {
                let told = match fate {
                    Fate::Held => continue,
                    Fate::Untold => None,
                    Fate::Told(op) => Some((op, errno)),
                };
                let request = format!("fail {command} {status} 1 0 {after}");
                refuses_an_end(control, &request, told, told.is_none(), || run(target));
            }
            recovers(target, control);
        }
    });
}

/// The kernel warns of objects that it cannot destroy when the device file is closed, and forgets them (`uverbs_destroy_ufile_hw`,
/// rdma_core.c, Linux 6.1).
#[test]
fn what_the_firmware_holds_on_to_is_told_and_others_live_on() {
    on_every_card(|target, control| {
        if !is_switched_off_afterwards() {
            return skip(target, "the kernel would warn of what it cannot destroy");
        }
        recovers(target, control);
        for &(command, after, fate) in ENDING {
            for (status, errno, times) in [(1, EIO, 1), (3, EINVAL, 1_000_000)] {
                let what = format!("{command} with status {status}, {times} times after {after}");
                control.ask(&format!("fail {command} {status} {times} 0 {after}"));
                let answer = run(target);
                match fate {
                    Fate::Untold => assert!(answer.is_none(), "{what}"),
                    Fate::Held => {
                        let error = answer.expect(&what);
                        let used = ["indirection_table.destroy", "wq.destroy", "cq.destroy"];
                        assert!(used.contains(&error.op()), "{what}: {error}");
                        is_of(&error, EINVAL, &what);
                    }
                    Fate::Told(op) => {
                        let error = answer.expect(&what);
                        assert_eq!(error.op(), op);
                        is_of(&error, errno, &what);
                    }
                }
                recovers(target, control);
            }
        }
    });
}

#[test]
fn a_read_that_the_firmware_refuses_leaves_the_counters_whole() {
    on_every_card(|target, control| {
        let raw = Raw::new(&target.open());
        let counters = packets_and_bytes(&raw.context);
        let flow = raw.qp.create_flow(&to(1).count(&counters)).unwrap();
        let mut reader = flow.reader().unwrap();
        target.wire().unwrap().inject(&frame(MAC, 60));
        for &(status, errno) in STATUSES {
            control.ask(&format!("fail QUERY_FLOW_COUNTER {status} 2"));
            is_of(&counters.read(&mut [0; 2]).unwrap_err(), errno, "a read");
            is_of(&reader.read().unwrap_err(), errno, "a reader");
            assert_eq!(read2(&counters), [1, 60]);
            assert_eq!(reader.read().unwrap(), [1, 60]);
        }
    });
}
