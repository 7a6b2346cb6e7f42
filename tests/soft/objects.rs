//! Properties of every object of the crate, checked by the compiler.

use uverbs::*;

/// from-libibverbs.md says this of all types.
#[test]
fn everything_can_be_used_by_any_thread() {
    fn is<T: Send + Sync>() {}
    is::<(Device, Devices, Context, ProtectionDomain, MemoryRegion, MemoryWindow, Mapping)>();
    is::<(CompletionQueue, CompletionChannel, Completion, SharedReceiveQueue, WorkQueue, IndirectionTable)>();
    is::<(
        QueuePair<Rc>,
        QueuePair<Uc>,
        QueuePair<Ud>,
        QueuePair<RawPacket>,
        QueuePair<XrcSend>,
        XrcReceiveQueuePair,
        XrcDomain,
        RssQueuePair,
        AddressHandle,
        Membership,
    )>();
    is::<(Counters, Flow, FlowRule, Reader, Snapshot, Sampler, Rates<2>)>();
    is::<(CompletionCounter, WaitSet, Progress, Error, SoftDevice)>();
    is::<(mlx5::CounterPool, mlx5::PoolCounter, mlx5::PoolFlow, mlx5::PoolReader)>();
}

/// The README says this of every object.
#[test]
fn every_object_has_a_destroy() {
    let _ = (ProtectionDomain::destroy, MemoryRegion::destroy, MemoryWindow::destroy, AddressHandle::destroy);
    let _ = (
        CompletionQueue::destroy,
        SharedReceiveQueue::destroy,
        WorkQueue::destroy,
        IndirectionTable::destroy,
    );
    let _ = (QueuePair::<Rc>::destroy, RssQueuePair::destroy, Membership::leave);
    let _ = (XrcReceiveQueuePair::destroy, XrcDomain::destroy);
    let _ = (Flow::destroy, Counters::destroy, CompletionCounter::destroy);
    let _ = (mlx5::PoolFlow::destroy, mlx5::CounterPool::destroy);
}
