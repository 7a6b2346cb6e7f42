//! What RDMA netlink says of the device: that it exists, and which driver it has. Of siw nothing else names the driver.
//!
//! Answers have the form of `nldev_get_dumpit` and `nldev_get_chardev` (nldev.c, Linux 6.1). Everything else is refused.

use nix::libc;
use uverbs_abi::netlink::{self as nl, NlAttr, NlMsgErr, NlMsgHdr, attr, op};
use zerocopy::{FromBytes, IntoBytes};

use crate::tree::{self, kind};

/// The index of the device.
const INDEX: u32 = 0;

/// The answers to the requests of a datagram.
pub(crate) fn answer(mut requests: &[u8]) -> Vec<u8> {
    let mut answers = Vec::new();
    while let Ok((request, _)) = NlMsgHdr::read_from_prefix(requests) {
        answer_one(&mut answers, request);
        let len = (request.nlmsg_len as usize).next_multiple_of(nl::ALIGN);
        requests = requests.get(len..).unwrap_or_default();
    }
    answers
}

fn answer_one(answers: &mut Vec<u8>, request: NlMsgHdr) {
    const GET: u16 = nl::nldev(op::GET);
    const GET_CHARDEV: u16 = nl::nldev(op::GET_CHARDEV);
    let is_list = request.nlmsg_flags & nl::FLAG_DUMP == nl::FLAG_DUMP;
    match (request.nlmsg_type, is_list) {
        (GET, true) => {
            put(answers, request, GET, nl::FLAG_MULTI, &device());
            put(answers, request, nl::MSG_DONE, nl::FLAG_MULTI, &0_i32.to_ne_bytes());
        }
        (GET_CHARDEV, false) => put(answers, request, GET_CHARDEV, 0, &node()),
        _ => {
            let refused = NlMsgErr { error: -libc::EOPNOTSUPP, msg: request };
            put(answers, request, nl::MSG_ERROR, 0, refused.as_bytes());
        }
    }
}

/// Appends an answer.
fn put(answers: &mut Vec<u8>, request: NlMsgHdr, kind: u16, flags: u16, body: &[u8]) {
    let head = NlMsgHdr {
        nlmsg_len: (size_of::<NlMsgHdr>() + body.len()) as u32,
        nlmsg_type: kind,
        nlmsg_flags: flags,
        nlmsg_seq: request.nlmsg_seq,
        nlmsg_pid: 0,
    };
    answers.extend_from_slice(head.as_bytes());
    answers.extend_from_slice(body);
}

/// Attributes, one after the other.
fn attributes(of: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (nla_type, value) in of {
        let head = NlAttr { nla_len: (size_of::<NlAttr>() + value.len()) as u16, nla_type: *nla_type };
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(nl::ALIGN), 0);
    }
    bytes
}

fn device() -> Vec<u8> {
    attributes(&[
        (attr::DEV_INDEX, &INDEX.to_ne_bytes()),
        (attr::PORT_INDEX, &1_u32.to_ne_bytes()),
        (attr::DEV_NAME, &text(kind().name)),
        (attr::NODE_GUID, &tree::GUID.to_ne_bytes()),
        (attr::SYS_IMAGE_GUID, &tree::GUID.to_ne_bytes()),
        (attr::DEV_NODE_TYPE, &[kind().node_type]),
    ])
}

fn node() -> Vec<u8> {
    let (major, minor) = tree::NUMBER;
    attributes(&[
        (attr::CHARDEV, &u64::from(major << 8 | minor).to_ne_bytes()),
        (attr::CHARDEV_ABI, &u64::from(kind().abi_version).to_ne_bytes()),
        (attr::CHARDEV_NAME, &text(tree::NODE)),
        (attr::UVERBS_DRIVER_ID, &kind().driver_id.to_ne_bytes()),
    ])
}

fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}
