//! The rows of the lists, parsed from the kernel's answers (`fill_res_*_entry`, core/nldev.c, Linux 6.1 and 7.3).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use nix::libc;
use uverbs_abi::netlink::attr;

use super::owner::Owner;
use crate::device::netlink::{Attributes, number, wide};

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePairRow {
    /// Its number.
    pub number: u32,
    /// The port, from 1; none before it is assigned.
    pub port: Option<u32>,
    /// Its type, one of [`uverbs_abi::types::qp_type`].
    pub qp_type: u8,
    /// Its state, one of [`uverbs_abi::types::qp_state`].
    pub state: u8,
    /// Number of the connected queue pair, if there is a connection.
    pub remote: Option<u32>,
    /// The packet sequence number that is expected next; only for connections.
    pub receive_psn: Option<u32>,
    /// The packet sequence number that is sent next.
    pub send_psn: u32,
    /// Its protection domain, as numbered in [`ProtectionDomainRow`]; none for objects of the kernel.
    pub protection_domain: Option<u32>,
    /// Its owner.
    pub owner: Owner,
}

/// A completion queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionQueueRow {
    /// Its number in this list.
    pub number: u32,
    /// Capacity in completions.
    pub entries: u32,
    /// Number of queue pairs and shared queues that complete to it.
    pub users: u64,
    /// Whether the kernel moderates its events adaptively.
    pub adaptive: bool,
    /// Its context, as numbered in [`ContextRow`]; none for objects of the kernel.
    pub context: Option<u32>,
    /// Its owner.
    pub owner: Owner,
}

/// A memory region.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryRegionRow {
    /// Its number in this list.
    pub number: u32,
    /// Bytes.
    pub length: u64,
    /// Its local key; only with `CAP_NET_ADMIN`.
    pub local_key: Option<u32>,
    /// Its remote key; only with `CAP_NET_ADMIN`. Linux 6.1 reports 0 for rxe.
    pub remote_key: Option<u32>,
    /// Its protection domain; none for objects of the kernel.
    pub protection_domain: Option<u32>,
    /// Its owner.
    pub owner: Owner,
}

/// A protection domain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtectionDomainRow {
    /// Its number in this list.
    pub number: u32,
    /// Number of objects in it.
    pub users: u64,
    /// Its context; none for objects of the kernel.
    pub context: Option<u32>,
    /// Its owner.
    pub owner: Owner,
}

/// A context.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextRow {
    /// Its number in this list.
    pub number: u32,
    /// Its owner.
    pub owner: Owner,
}

/// An identifier of the connection manager.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionIdRow {
    /// Its number in this list.
    pub number: u32,
    /// The port, from 1; none before it is assigned.
    pub port: Option<u32>,
    /// Its queue pair, if it has one.
    pub queue_pair: Option<u32>,
    /// The type of the queue pair, one of [`uverbs_abi::types::qp_type`].
    pub qp_type: Option<u8>,
    /// Its port space: 0x106 TCP, 0x111 UDP, 0x13f InfiniBand, 2 IPoIB (`enum rdma_ucm_port_space`).
    pub port_space: u32,
    /// Its state, as the kernel numbers them (`enum rdma_cm_state`, core/cma_priv.h): 5 is connected, 8 listening.
    pub state: u8,
    /// The local address, if it is an IP address.
    pub local: Option<SocketAddr>,
    /// The address of the other side, if it is an IP address.
    pub remote: Option<SocketAddr>,
    /// Its owner.
    pub owner: Owner,
}

/// A shared receive queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedReceiveQueueRow {
    /// Its number in this list.
    pub number: u32,
    /// Its type: 0 basic, 1 for extended connections, 2 with tag matching (`enum ib_srq_type`).
    pub srq_type: u8,
    /// Its protection domain.
    pub protection_domain: Option<u32>,
    /// Its completion queue, if it has one of its own.
    pub completion_queue: Option<u32>,
    /// The queue pairs that receive from it.
    pub queue_pairs: Vec<RangeInclusive<u32>>,
    /// Its owner.
    pub owner: Owner,
}

/// The attributes of one entry.
#[derive(Clone, Copy)]
struct Entry<'a>(&'a [u8]);

impl<'a> Entry<'a> {
    fn value(self, wanted: u16) -> Option<&'a [u8]> {
        Attributes(self.0).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }

    fn number(self, wanted: u16) -> Option<u32> {
        self.value(wanted).and_then(number)
    }

    fn wide(self, wanted: u16) -> Option<u64> {
        self.value(wanted).and_then(wide)
    }

    fn byte(self, wanted: u16) -> Option<u8> {
        self.value(wanted)?.first().copied()
    }

    fn owner(self) -> Owner {
        Owner::of(Attributes(self.0))
    }
}

// An entry without a number is not a row.

impl QueuePairRow {
    pub(super) fn of(entry: &[u8]) -> Option<Self> {
        let entry = Entry(entry);
        Some(Self {
            number: entry.number(attr::RES_LQPN)?,
            port: entry.number(attr::PORT_INDEX),
            qp_type: entry.byte(attr::RES_TYPE).unwrap_or(0),
            state: entry.byte(attr::RES_STATE).unwrap_or(0),
            remote: entry.number(attr::RES_RQPN),
            receive_psn: entry.number(attr::RES_RQ_PSN),
            send_psn: entry.number(attr::RES_SQ_PSN).unwrap_or(0),
            protection_domain: entry.number(attr::RES_PDN),
            owner: entry.owner(),
        })
    }
}

impl CompletionQueueRow {
    pub(super) fn of(entry: &[u8]) -> Option<Self> {
        let entry = Entry(entry);
        Some(Self {
            number: entry.number(attr::RES_CQN)?,
            entries: entry.number(attr::RES_CQE).unwrap_or(0),
            users: entry.wide(attr::RES_USECNT).unwrap_or(0),
            adaptive: entry.byte(attr::DEV_DIM) == Some(1),
            context: entry.number(attr::RES_CTXN),
            owner: entry.owner(),
        })
    }
}

impl MemoryRegionRow {
    pub(super) fn of(entry: &[u8]) -> Option<Self> {
        let entry = Entry(entry);
        Some(Self {
            number: entry.number(attr::RES_MRN)?,
            length: entry.wide(attr::RES_MRLEN).unwrap_or(0),
            local_key: entry.number(attr::RES_LKEY),
            remote_key: entry.number(attr::RES_RKEY),
            protection_domain: entry.number(attr::RES_PDN),
            owner: entry.owner(),
        })
    }
}

impl ProtectionDomainRow {
    pub(super) fn of(entry: &[u8]) -> Option<Self> {
        let entry = Entry(entry);
        Some(Self {
            number: entry.number(attr::RES_PDN)?,
            users: entry.wide(attr::RES_USECNT).unwrap_or(0),
            context: entry.number(attr::RES_CTXN),
            owner: entry.owner(),
        })
    }
}

impl ContextRow {
    pub(super) fn of(entry: &[u8]) -> Option<Self> {
        let entry = Entry(entry);
        Some(Self { number: entry.number(attr::RES_CTXN)?, owner: entry.owner() })
    }
}

impl ConnectionIdRow {
    pub(super) fn of(entry: &[u8]) -> Option<Self> {
        let entry = Entry(entry);
        Some(Self {
            number: entry.number(attr::RES_CM_IDN)?,
            port: entry.number(attr::PORT_INDEX),
            queue_pair: entry.number(attr::RES_LQPN),
            qp_type: entry.byte(attr::RES_TYPE),
            port_space: entry.number(attr::RES_PS).unwrap_or(0),
            state: entry.byte(attr::RES_STATE).unwrap_or(0),
            local: entry.value(attr::RES_SRC_ADDR).and_then(address),
            remote: entry.value(attr::RES_DST_ADDR).and_then(address),
            owner: entry.owner(),
        })
    }
}

impl SharedReceiveQueueRow {
    pub(super) fn of(entry: &[u8]) -> Option<Self> {
        let entry = Entry(entry);
        Some(Self {
            number: entry.number(attr::RES_SRQN)?,
            srq_type: entry.byte(attr::RES_TYPE).unwrap_or(0),
            protection_domain: entry.number(attr::RES_PDN),
            completion_queue: entry.number(attr::RES_CQN),
            queue_pairs: entry.value(attr::RES_QP).map_or_else(Vec::new, numbers),
            owner: entry.owner(),
        })
    }
}

/// Queue pairs, individually or in ranges (`fill_res_srq_qps`).
fn numbers(table: &[u8]) -> Vec<RangeInclusive<u32>> {
    let entries = Attributes(table).filter(|(kind, _)| *kind == attr::RES_QP_ENTRY);
    let row = |(_, entry)| {
        let entry = Entry(entry);
        let first = entry.number(attr::RES_LQPN).or_else(|| entry.number(attr::MIN_RANGE))?;
        Some(first..=entry.number(attr::MAX_RANGE).unwrap_or(first))
    };
    entries.filter_map(row).collect()
}

/// An IP address in a `sockaddr_storage`: the family in host order, then port and address in network order.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => {
            let address: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Some((Ipv4Addr::from(address), port).into())
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            Some((Ipv6Addr::from(address), port).into())
        }
        _ => None,
    }
}
