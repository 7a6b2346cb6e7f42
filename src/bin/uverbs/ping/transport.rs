//! The kinds of queue pair that a ping goes over.

use uverbs::abi::write::QueryPortResp;
use uverbs::{
    AddressHandle, CompletionQueue, ConnectionOptions, Datagram, Endpoint, Operation, ProtectionDomain,
    QpType, QueuePair, QueuePairBuilder, Rc, Remote, Uc, UcOperation, Ud,
};

use super::one_sided::Op;

/// The key that libibverbs' datagram pingpong agrees on.
const QKEY: u32 = 0x1111_1111;

/// A kind of queue pair that messages go over.
pub(super) trait Transport: QpType + Sized {
    /// Bytes of a message if nothing else is said.
    const SIZE: u32;
    /// Bytes before each message that is received.
    const HEADER: usize;
    /// What is needed to send to the other side.
    type Way;

    fn builder<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self>;

    /// Bytes of the longest message on a port.
    fn longest(port: &QueryPortResp) -> u32;

    /// Brings the queue pair up, from reset to ready to send.
    fn connect(
        qp: &mut QueuePair<Self>,
        pd: &ProtectionDomain,
        options: &ConnectionOptions,
        local: &Endpoint,
        remote: &Endpoint,
    ) -> uverbs::Result<Self::Way>;

    /// Sends a message there.
    fn send(way: &Self::Way) -> Self::Operation<'_>;

    /// Operates on memory there, if queue pairs of this kind do.
    fn one_sided(op: Op, there: Remote) -> Option<Self::Operation<'static>>;
}

impl Transport for Rc {
    const SIZE: u32 = 4096;
    const HEADER: usize = 0;
    type Way = ();

    fn builder<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.rc(cq)
    }

    fn longest(port: &QueryPortResp) -> u32 {
        port.max_msg_sz
    }

    fn connect(
        qp: &mut QueuePair<Self>,
        _: &ProtectionDomain,
        options: &ConnectionOptions,
        local: &Endpoint,
        remote: &Endpoint,
    ) -> uverbs::Result<()> {
        qp.connect(options, local, remote)
    }

    fn send((): &()) -> Operation {
        Operation::Send
    }

    fn one_sided(op: Op, there: Remote) -> Option<Operation> {
        match op {
            Op::Send => None,
            Op::Write => Some(Operation::Write(there)),
            Op::Read => Some(Operation::Read(there)),
            Op::Atomic => Some(Operation::FetchAdd { remote: there, add: 1 }),
        }
    }
}

impl Transport for Uc {
    const SIZE: u32 = 4096;
    const HEADER: usize = 0;
    type Way = ();

    fn builder<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.uc(cq)
    }

    fn longest(port: &QueryPortResp) -> u32 {
        port.max_msg_sz
    }

    fn connect(
        qp: &mut QueuePair<Self>,
        _: &ProtectionDomain,
        options: &ConnectionOptions,
        local: &Endpoint,
        remote: &Endpoint,
    ) -> uverbs::Result<()> {
        qp.connect(options, local, remote)
    }

    fn send((): &()) -> UcOperation {
        UcOperation::Send
    }

    fn one_sided(op: Op, there: Remote) -> Option<UcOperation> {
        (op == Op::Write).then_some(UcOperation::Write(there))
    }
}

impl Transport for Ud {
    const SIZE: u32 = 1024;
    /// The global routing header.
    const HEADER: usize = 40;
    type Way = (AddressHandle, u32);

    fn builder<'a>(pd: &'a ProtectionDomain, cq: &'a CompletionQueue) -> QueuePairBuilder<'a, Self> {
        pd.ud(cq)
    }

    /// What goes into one packet. The codes of MTUs are powers of two: 1 is 256 bytes, 5 is 4096.
    fn longest(port: &QueryPortResp) -> u32 {
        128 << port.active_mtu.min(5)
    }

    fn connect(
        qp: &mut QueuePair<Self>,
        pd: &ProtectionDomain,
        options: &ConnectionOptions,
        local: &Endpoint,
        remote: &Endpoint,
    ) -> uverbs::Result<Self::Way> {
        qp.activate(options, QKEY, local.psn)?;
        Ok((pd.create_ah(&options.route(remote))?, remote.qp_num))
    }

    fn send((to, qp_num): &Self::Way) -> Datagram<'_> {
        Datagram { to, qp_num: *qp_num, qkey: QKEY, immediate: None }
    }

    fn one_sided(_: Op, _: Remote) -> Option<Datagram<'static>> {
        None
    }
}
