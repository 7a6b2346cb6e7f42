//! A kernel that a test simulates.

use std::collections::VecDeque;
use std::fmt;

use nix::errno::Errno;
use uverbs_abi::netlink::{self as nl, NlMsgHdr, attr, op};
use zerocopy::{FromBytes, IntoBytes};

use super::exchange::Line;
use super::{Attributes, Exchange, LONG, number};
pub(in crate::device) use super::{attribute, put};
use crate::kernel::error::Result;

/// A request: its command, whether it is for a list, and the attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::device) struct Asked {
    pub(in crate::device) command: u16,
    pub(in crate::device) is_list: bool,
    pub(in crate::device) attributes: Vec<u8>,
}

impl Asked {
    pub(in crate::device) fn number(&self, wanted: u16) -> Option<u32> {
        Attributes(&self.attributes).find(|(kind, _)| *kind == wanted).and_then(|(_, value)| number(value))
    }
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(in crate::device) enum Answer {
    /// The attributes of a message; for a list, those of several.
    Told(Vec<Vec<u8>>),
    Refused(Errno),
    /// A list that ends with an errno.
    Ended(Errno),
    /// The errno of sending.
    Send(Errno),
    /// Only so many bytes of the answer.
    Cut(Vec<u8>, usize),
    /// No answer.
    Silence,
}

impl Answer {
    pub(in crate::device) fn one(attributes: &[u8]) -> Self {
        Self::Told(vec![attributes.to_vec()])
    }
}

type Answers = Box<dyn FnMut(&Asked) -> Answer + Send + Sync>;

struct Kernel {
    answers: Answers,
    told: VecDeque<Vec<u8>>,
    /// A list was truncated: no other one can be requested until the line is renewed.
    is_busy: bool,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kernel")
    }
}

pub(in crate::device) fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let header = NlMsgHdr {
        nlmsg_len: (size_of::<NlMsgHdr>() + body.len()) as u32,
        nlmsg_type: kind,
        nlmsg_flags: 0,
        nlmsg_seq: sequence,
        nlmsg_pid: 0,
    };
    [header.as_bytes(), body].concat()
}

fn negative(errno: Errno) -> [u8; 4] {
    (-(errno as i32)).to_ne_bytes()
}

impl Line for Kernel {
    fn send(&mut self, datagram: &[u8]) -> Result<(), Errno> {
        let (header, attributes) = NlMsgHdr::read_from_prefix(datagram).expect("a header");
        assert_eq!(header.nlmsg_len as usize, datagram.len());
        assert_eq!(header.nlmsg_type >> 10, nl::NLDEV);
        let is_list = header.nlmsg_flags & nl::FLAG_DUMP != 0;
        let (command, sequence) = (header.nlmsg_type & 0x3ff, header.nlmsg_seq);
        let asked = Asked { command, is_list, attributes: attributes.to_vec() };
        let kind = nl::nldev(command);
        let answer =
            if is_list && self.is_busy { Answer::Refused(Errno::EBUSY) } else { (self.answers)(&asked) };
        self.is_busy |= is_list && matches!(answer, Answer::Cut(..));
        match answer {
            Answer::Told(bodies) => {
                self.told.extend(bodies.iter().map(|body| message(kind, sequence, body)));
                if is_list {
                    self.told.push_back(message(nl::MSG_DONE, sequence, &[0; 4]));
                }
            }
            Answer::Refused(errno) => {
                // Followed by the header of the request.
                let body = [&negative(errno)[..], header.as_bytes()].concat();
                self.told.push_back(message(nl::MSG_ERROR, sequence, &body));
            }
            Answer::Ended(errno) => {
                self.told.push_back(message(nl::MSG_DONE, sequence, &negative(errno)));
            }
            Answer::Cut(body, len) => {
                let mut whole = message(kind, sequence, &body);
                whole.truncate(len);
                self.told.push_back(whole);
            }
            Answer::Send(errno) => return Err(errno),
            Answer::Silence => {}
        }
        Ok(())
    }

    fn take(&mut self, room: &mut [u8]) -> Result<usize, Errno> {
        let datagram = self.told.pop_front().ok_or(Errno::EAGAIN)?;
        let len = datagram.len().min(room.len());
        room[..len].copy_from_slice(&datagram[..len]);
        Ok(datagram.len())
    }

    fn renew(&mut self, _: &'static str) -> Result<()> {
        self.told.clear();
        self.is_busy = false;
        Ok(())
    }
}

/// A line whose requests get these answers.
pub(in crate::device) fn answered(answers: impl FnMut(&Asked) -> Answer + Send + Sync + 'static) -> Exchange {
    Exchange::new(Kernel { answers: Box::new(answers), told: VecDeque::new(), is_busy: false }, LONG)
}

/// Answers as a kernel with the device of index 3 and its one port. `more` answers further requests about them.
pub(in crate::device) fn with_device(
    mut more: impl FnMut(&Asked) -> Answer + Send + Sync + 'static,
) -> Exchange {
    answered(move |asked| {
        let port = asked.number(attr::PORT_INDEX);
        let is_known = asked.number(attr::DEV_INDEX) == Some(INDEX) && port.is_none_or(|port| port == 1);
        match asked.command {
            _ if !is_known => Answer::Refused(Errno::EINVAL),
            op::GET | op::PORT_GET => Answer::one(&[]),
            _ => more(asked),
        }
    })
}

pub(in crate::device) const INDEX: u32 = 3;

/// An attribute that contains attributes.
pub(in crate::device) fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | nl::NLA_F_NESTED, &parts.concat())
}

/// A recorded answer of Linux: see the beginning of the file.
pub(in crate::device) fn captured(kernel: &str, what: &str) -> Vec<u8> {
    let lines = include_str!("../../../tests/golden/netlink.txt").lines().map(|line| line.split(' '));
    let mut wanted = lines.filter_map(|mut words| {
        let is_it = words.next() == Some(kernel) && words.next() == Some(what);
        words.next().filter(|_| is_it)
    });
    let digits = wanted.next().expect("there is such an answer");
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

pub(in crate::device) const KERNELS: [&str; 2] = ["6.1", "7.x"];
