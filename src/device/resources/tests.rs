//! Lists from recorded answers of Linux, and from invalid answers.

use std::net::SocketAddr;

use nix::errno::Errno;
use uverbs_abi::netlink::{attr, op};
use uverbs_abi::types::{qp_state, qp_type};

use super::*;
use crate::device::netlink::testing::{
    Answer, Asked, INDEX, KERNELS, answered, attribute, captured, nested, with_device,
};
use crate::device::tests::Tree;
use crate::kernel::error::ErrorKind;

fn resources(answers: impl FnMut(&Asked) -> Answer + Send + Sync + 'static) -> Resources {
    Resources::with(with_device(answers), INDEX)
}

/// The lists of a kernel, from its recorded answers.
fn of_kernel(kernel: &'static str) -> Resources {
    resources(move |asked| {
        assert_eq!(asked.is_list, asked.command != op::RES_GET);
        let what = match asked.command {
            op::RES_GET => "summary",
            op::RES_QP_GET => "qp",
            op::RES_CQ_GET => "cq",
            op::RES_MR_GET => "mr",
            op::RES_PD_GET => "pd",
            op::RES_CTX_GET => "ctx",
            op::RES_SRQ_GET => "srq",
            _ => return Answer::Told(Vec::new()),
        };
        Answer::one(&captured(kernel, what))
    })
}

#[test]
fn summaries_are_those_of_linux() {
    for kernel in KERNELS {
        let counts = of_kernel(kernel).summary().expect("a summary");
        let shown: Vec<_> = counts.iter().map(|count| (count.kind.as_str(), count.number)).collect();
        let wanted = [("pd", 3), ("cq", 3), ("qp", 5), ("cm_id", 0), ("mr", 2), ("ctx", 2), ("srq", 1)];
        assert_eq!(shown[..7], wanted, "{kernel}");
        // A later kernel counts more kinds, and reports how many there may be.
        assert_eq!(shown.get(7), (kernel == "7.x").then_some(&("comp_cntr", 0)));
        assert_eq!(counts[0].limit, (kernel == "7.x").then_some(1 << 20));
        assert_eq!(counts[3].limit, None);
    }
}

#[test]
fn lists_are_those_of_linux() {
    for kernel in KERNELS {
        let mut resources = of_kernel(kernel);
        let pairs = resources.queue_pairs().expect("a list");
        let numbers: Vec<_> = pairs.iter().map(|row| row.number).collect();
        assert_eq!(numbers, [19, 20, 21, 22, 1], "{kernel}");
        let (mine, core) = (&pairs[0], &pairs[4]);
        assert_eq!((mine.port, mine.qp_type, mine.state), (Some(1), qp_type::RC, qp_state::INIT));
        assert_eq!((mine.remote, mine.protection_domain), (Some(0), Some(3)));
        assert!(mine.owner.pid().is_some());
        assert_eq!((core.qp_type, core.state, core.protection_domain), (1, qp_state::RTS, None));
        assert_eq!(core.owner, Owner::Kernel("ib_core".to_owned()));
        assert_eq!(core.owner.to_string(), "[ib_core]");

        let [core, first, second] = &resources.completion_queues().expect("a list")[..] else {
            panic!("three")
        };
        assert_eq!((core.entries, core.users, core.context), (1023, 2, None));
        assert_eq!((first.number, first.entries, first.adaptive), (3, 511, false));
        assert_eq!(first.users + second.users, 8);

        let [first, _] = &resources.memory_regions().expect("a list")[..] else { panic!("two") };
        assert_eq!((first.number, first.length, first.protection_domain), (2, 4096, Some(3)));
        // Linux 6.1 reports 0 for rxe's remote keys.
        assert!(first.local_key.is_some() && (first.remote_key == Some(0)) == (kernel == "6.1"));

        let domains = resources.protection_domains().expect("a list");
        assert_eq!(domains.iter().map(|row| row.users).sum::<u64>(), 8);
        assert_eq!((domains[0].number, domains[0].context), (0, None));

        let contexts = resources.contexts().expect("a list");
        assert_eq!(contexts.iter().map(|row| row.number).collect::<Vec<_>>(), [2, 3]);
        assert!(contexts.iter().all(|row| row.owner.pid().is_some()));

        let [queue] = &resources.shared_receive_queues().expect("a list")[..] else { panic!("one") };
        assert_eq!((queue.srq_type, queue.completion_queue), (0, None));
        let rows = if kernel == "6.1" { vec![20..=22] } else { vec![19..=19, 21..=22] };
        assert_eq!(queue.queue_pairs, rows, "{kernel}");

        assert_eq!(resources.connection_ids().expect("a list"), []);
    }
}

#[test]
fn connections_have_their_addresses() {
    let number = |kind: u16, value: u32| attribute(kind, &value.to_ne_bytes());
    let address = |kind: u16, family: i32, at: usize, address: &[u8]| {
        let mut bytes = vec![0; 128];
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&[0x12, 0xb7]);
        bytes[at..at + address.len()].copy_from_slice(address);
        attribute(kind, &bytes)
    };
    let mut local = [0; 16];
    local[15] = 1;
    let entry = nested(
        attr::RES_CM_ID_ENTRY,
        &[
            number(attr::PORT_INDEX, 1),
            number(attr::RES_PS, 0x106),
            attribute(attr::RES_STATE, &[5]),
            address(attr::RES_SRC_ADDR, nix::libc::AF_INET6, 8, &local),
            address(attr::RES_DST_ADDR, nix::libc::AF_INET, 4, &[192, 0, 2, 1]),
            number(attr::RES_CM_IDN, 8),
        ],
    );
    let unknown = nested(
        attr::RES_CM_ID_ENTRY,
        &[address(attr::RES_SRC_ADDR, 27, 4, &[1]), number(attr::RES_CM_IDN, 9)],
    );
    let table = nested(attr::RES_CM_ID, &[entry, unknown]);
    let mut resources = resources(move |_| Answer::one(&table));
    let [first, second] = &resources.connection_ids().expect("a list")[..] else { panic!("two") };
    let parsed = |text: &str| text.parse::<SocketAddr>().ok();
    assert_eq!((first.local, first.remote), (parsed("[::1]:4791"), parsed("192.0.2.1:4791")));
    assert_eq!((first.state, first.port_space, first.queue_pair), (5, 0x106, None));
    assert_eq!((second.number, second.local, &second.owner), (9, None, &Owner::Unknown));
}

#[test]
fn lists_come_in_several_messages() {
    let message = captured("6.1", "qp");
    let mut resources = resources(move |_| Answer::Told(vec![message.clone(), message.clone()]));
    assert_eq!(resources.queue_pairs().expect("a list").len(), 10);
}

#[test]
fn refusals_are_told_apart() {
    // A device that has disappeared: EINVAL, after the list.
    let mut gone = Resources::with(
        answered(|asked| match asked.is_list {
            true => Answer::Ended(Errno::EINVAL),
            false => Answer::Refused(Errno::EINVAL),
        }),
        INDEX,
    );
    assert_eq!(gone.summary().unwrap_err().kind(), ErrorKind::Disassociated);
    assert_eq!(gone.contexts().unwrap_err().kind(), ErrorKind::Disassociated);
    let mut silent = resources(|_| Answer::Silence);
    assert_eq!(silent.summary().unwrap_err().op(), "resources.summary");
    // No netlink, and a soft device.
    let tree = Tree::rxe("resources");
    let devices = crate::device::devices_in(&tree.0).expect("a tree");
    let error = devices[0].resources().unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("RDMA netlink"), "{error}");
    let mut soft = SoftDevice::default().device().resources().expect("the counts");
    assert!(soft.summary().expect("the counts").iter().all(|count| count.number == 0));
    assert_eq!(soft.queue_pairs().unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn answers_that_are_cut_anywhere_bring_no_panic() {
    for what in ["summary", "qp", "cq", "mr", "pd", "ctx", "srq"] {
        let whole = captured("7.x", what);
        for len in 0..whole.len() {
            let part = whole[..len].to_vec();
            let mut resources = resources(move |_| Answer::one(&part));
            let counted = resources.summary().expect("what there is").len();
            let listed = resources.queue_pairs().expect("what there is").len();
            assert!(counted <= 8 && listed <= 5);
            resources.shared_receive_queues().expect("what there is");
        }
    }
}

#[test]
fn names_cannot_command_a_terminal() {
    let owner = Owner::Process { pid: 7, thread: 7, name: Some("a\x1b[2J\n".to_owned()) };
    assert_eq!(owner.to_string(), "a\\u{1b}[2J\\n[7]");
    assert_eq!(Owner::Process { pid: 7, thread: 8, name: None }.to_string(), "process 7");
    assert_eq!(Owner::Unknown.to_string(), "unknown");
}
