//! The kinds of queue pairs that a ping can use.

use uverbs::abi::write::QueryPortResp;
use uverbs::cm::Connection;
use uverbs::{
    AddressHandle, CompletionQueue, ConnectionOptions, Datagram, Operation, ProtectionDomain, QpType,
    QueuePair, QueuePairBuilder, Rc, Srd, SrdDatagram, SrdOperation, Uc, UcOperation, Ud, XrcOperation,
    XrcReceiveQueuePair, XrcSend,
};

use super::address::Address;
use crate::info::words;

/// The queue key of libibverbs' datagram pingpong.
const QKEY: u32 = 0x1111_1111;

/// Both ends of a line, and the options of the connection.
#[derive(Debug)]
pub(super) struct Link<'a> {
    pub(super) pd: &'a ProtectionDomain,
    pub(super) options: &'a ConnectionOptions,
    pub(super) local: &'a Address,
    pub(super) remote: &'a Address,
}

/// A connection that owns its queue pair.
pub(super) trait Joined<T: QpType> {
    fn queue_pair(&mut self) -> &mut QueuePair<T>;
}

impl Joined<Rc> for Connection {
    fn queue_pair(&mut self) -> &mut QueuePair<Rc> {
        Connection::queue_pair(self)
    }
}

/// No connection: the connection manager does not connect this kind.
#[derive(Debug)]
pub(super) enum Unjoined {}

impl<T: QpType> Joined<T> for Unjoined {
    fn queue_pair(&mut self) -> &mut QueuePair<T> {
        match *self {}
    }
}

/// A kind of queue pair over which messages are sent.
pub(super) trait Transport: QpType + Sized {
    /// Default size of a message in bytes.
    const SIZE: u32 = 4096;
    /// Number of bytes before each received message.
    const HEADER: usize = 0;
    /// The data that is needed to send to the other side.
    type Way: std::fmt::Debug;
    /// A queue pair with its connection, if the connection manager connects this kind.
    type Joined: Joined<Self> + std::fmt::Debug;

    fn builder<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self>;

    /// Maximum size of a message on a port in bytes.
    fn longest(port: &QueryPortResp) -> u32 {
        port.max_msg_sz
    }

    /// Changes the state of the queue pairs from reset to ready to send and to receive.
    fn connect(
        qp: &mut QueuePair<Self>,
        target: Option<&mut XrcReceiveQueuePair>,
        link: &Link<'_>,
    ) -> uverbs::Result<Self::Way>;

    /// The operation of this kind for one of a reliable connection, if it has it.
    fn operation(what: Operation, way: &Self::Way) -> Option<Self::Operation<'_>>;
}

impl Transport for Rc {
    type Way = ();
    type Joined = Connection;

    fn builder<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.rc(cq)
    }

    fn connect(
        qp: &mut QueuePair<Self>,
        _: Option<&mut XrcReceiveQueuePair>,
        link: &Link<'_>,
    ) -> uverbs::Result<()> {
        qp.connect(link.options, &link.local.endpoint, &link.remote.endpoint)
    }

    fn operation(what: Operation, (): &()) -> Option<Operation> {
        Some(what)
    }
}

impl Transport for XrcSend {
    /// The number of the peer's shared receive queue.
    type Way = u32;
    type Joined = Unjoined;

    fn builder<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.xrc_send(cq)
    }

    fn connect(
        qp: &mut QueuePair<Self>,
        target: Option<&mut XrcReceiveQueuePair>,
        link: &Link<'_>,
    ) -> uverbs::Result<u32> {
        let Link { options, local, remote, .. } = link;
        if let Some(target) = target {
            target.connect(options, &remote.sender())?;
        }
        qp.connect(options, &local.sender(), &remote.endpoint)?;
        Ok(remote.extended.map_or(0, |of| of.srq))
    }

    fn operation(what: Operation, srq: &u32) -> Option<XrcOperation> {
        Some(what.to_srq(*srq))
    }
}

impl Transport for Uc {
    type Way = ();
    type Joined = Unjoined;

    fn builder<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.uc(cq)
    }

    fn connect(
        qp: &mut QueuePair<Self>,
        _: Option<&mut XrcReceiveQueuePair>,
        link: &Link<'_>,
    ) -> uverbs::Result<()> {
        qp.connect(link.options, &link.local.endpoint, &link.remote.endpoint)
    }

    fn operation(what: Operation, (): &()) -> Option<UcOperation> {
        match what {
            Operation::Send => Some(UcOperation::Send),
            Operation::Write(there) => Some(UcOperation::Write(there)),
            _ => None,
        }
    }
}

impl Transport for Ud {
    const SIZE: u32 = 1024;
    /// The global routing header.
    const HEADER: usize = 40;
    type Way = (AddressHandle, u32);
    type Joined = Unjoined;

    fn builder<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.ud(cq)
    }

    /// The size of one packet. If the port does not tell it, that of the smallest.
    fn longest(port: &QueryPortResp) -> u32 {
        words::mtu(port.active_mtu).unwrap_or(256)
    }

    fn connect(
        qp: &mut QueuePair<Self>,
        _: Option<&mut XrcReceiveQueuePair>,
        link: &Link<'_>,
    ) -> uverbs::Result<Self::Way> {
        let Link { pd, options, local, remote } = link;
        qp.activate(options, QKEY, local.endpoint.psn)?;
        Ok((pd.create_ah(&options.route(&remote.endpoint))?, remote.endpoint.qp_num))
    }

    fn operation(what: Operation, (to, qp_num): &Self::Way) -> Option<Datagram<'_>> {
        (what == Operation::Send).then_some(Datagram { to, qp_num: *qp_num, qkey: QKEY, immediate: None })
    }
}

impl Transport for Srd {
    type Way = (AddressHandle, u32);
    type Joined = Unjoined;

    fn builder<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.srd(cq)
    }

    fn connect(
        qp: &mut QueuePair<Self>,
        _: Option<&mut XrcReceiveQueuePair>,
        link: &Link<'_>,
    ) -> uverbs::Result<Self::Way> {
        let Link { pd, options, local, remote } = link;
        qp.activate(options, QKEY, local.endpoint.psn)?;
        Ok((pd.create_ah(&options.route(&remote.endpoint))?, remote.endpoint.qp_num))
    }

    fn operation(what: Operation, (to, qp_num): &Self::Way) -> Option<SrdDatagram<'_>> {
        let operation = match what {
            Operation::Send => SrdOperation::Send,
            Operation::Write(there) => SrdOperation::Write(there),
            Operation::Read(there) => SrdOperation::Read(there),
            _ => return None,
        };
        Some(SrdDatagram { to, qp_num: *qp_num, qkey: QKEY, operation })
    }
}
