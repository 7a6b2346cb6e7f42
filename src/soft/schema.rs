//! The methods that exist, and the attributes of each: the tables for [`super::parse`].
//!
//! They list what Linux 6.1 declares with `DECLARE_UVERBS_NAMED_METHOD` (uverbs_std_types_*.c) for the objects that this device has, and
//! Linux 7.3 for completion counters.

use nix::errno::Errno;
use uverbs_abi::efa;
use uverbs_abi::ids::{
    ah, async_event, comp_cntr, counters as counters_ids, cq, device, flow as flow_ids, mr, mw, pd, qp, srq,
    xrcd,
};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};

use super::call::Call;
use super::events::Events;
use super::profile::Profile;
use super::table::Kind;
use super::{
    completion_counters, context, counters, memory_regions, queue_pairs, queues, shared_receives, write,
};

/// The rule for an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Input of `min` to `max` bytes; longer only if `open`, and then the rest must be zeros.
    In { min: u16, max: u16, open: bool },
    /// Output of `min` to `max` bytes; longer only if `open`.
    Out { min: u16, max: u16, open: bool },
    /// A handle that the call creates.
    New(Kind),
    /// The handle of an object that the call uses.
    Use(Kind),
    /// The handle of an object that the call destroys.
    Destroy(Kind),
    /// A file descriptor that the call creates.
    NewFd(Events),
    /// The file descriptor of an event file.
    UseFd(Events),
    /// The handle of an object of a kind that this device does not have.
    Absent,
}

/// One attribute of a method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) id: u16,
    pub(super) want: Want,
    pub(super) mandatory: bool,
}

/// The devices that have a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    Counters,
    CompletionCounters,
    Flows,
    Xrc,
}

/// One method of an object.
pub(super) struct Method {
    pub(super) object: u16,
    pub(super) number: u16,
    pub(super) needs: Needs,
    pub(super) attrs: &'static [Spec],
    pub(super) run: fn(&mut Call<'_, '_, '_>) -> Result<(), Errno>,
}

impl Needs {
    pub(super) fn met(self, profile: &Profile) -> bool {
        match self {
            Self::Nothing => true,
            Self::Counters => profile.counters,
            Self::CompletionCounters => profile.completion_counters > 0,
            Self::Flows => profile.flows,
            Self::Xrc => profile.has_xrc(),
        }
    }
}

/// The method, if this device has it.
pub(super) fn find(profile: &Profile, object: u16, number: u16) -> Option<&'static Method> {
    let mut all = METHODS.iter();
    all.find(|method| (method.object, method.number) == (object, number) && method.needs.met(profile))
}

impl Method {
    /// The rule for an attribute with this id.
    pub(super) fn spec(&self, id: u16) -> Option<&'static Spec> {
        self.attrs.iter().find(|spec| spec.id == id)
    }
}

/// Makes an attribute mandatory.
const fn must(spec: Spec) -> Spec {
    Spec { mandatory: true, ..spec }
}

const fn spec(id: u16, want: Want) -> Spec {
    Spec { id, want, mandatory: false }
}

/// Input of exactly `len` bytes; constants have eight.
const fn input(id: u16, len: u16) -> Spec {
    spec(id, Want::In { min: len, max: len, open: false })
}

const fn constant(id: u16) -> Spec {
    must(input(id, 8))
}

/// A mask, in four or eight bytes.
const fn flags(id: u16) -> Spec {
    spec(id, Want::In { min: 4, max: 8, open: false })
}

/// Output of exactly `len` bytes.
const fn output(id: u16, len: u16) -> Spec {
    spec(id, Want::Out { min: len, max: len, open: false })
}

/// Output of at least `min` bytes.
const fn open_output(id: u16, min: u16) -> Spec {
    spec(id, Want::Out { min, max: u16::MAX, open: true })
}

const fn make(id: u16, kind: Kind) -> Spec {
    must(spec(id, Want::New(kind)))
}

const fn using(id: u16, kind: Kind) -> Spec {
    spec(id, Want::Use(kind))
}

const fn destroy(id: u16, kind: Kind) -> Spec {
    must(spec(id, Want::Destroy(kind)))
}

const IN: Spec = spec(UHW_IN, Want::In { min: 0, max: u16::MAX, open: true });
const OUT: Spec = open_output(UHW_OUT, 0);

/// The body of a method that only destroys its object.
fn done(_: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    Ok(())
}

/// The body of a method that the driver does not support.
fn unsupported(_: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    Err(Errno::EOPNOTSUPP)
}

macro_rules! methods {
    ($($object:path, $method:path, $needs:ident => $run:path { $($spec:expr,)* })*) => {
        static METHODS: &[Method] = &[$(Method {
            object: $object,
            number: $method,
            needs: Needs::$needs,
            attrs: const { &[$($spec,)*] },
            run: $run,
        },)*];
    };
}

methods! {
    device::OBJECT, device::method::INVOKE_WRITE, Nothing => write::invoke {
        constant(device::invoke_write::WRITE_CMD),
        spec(device::invoke_write::CORE_IN, Want::In { min: 4, max: u16::MAX, open: true }),
        open_output(device::invoke_write::CORE_OUT, 0),
        IN, OUT,
    }
    device::OBJECT, device::method::INFO_HANDLES, Nothing => context::info_handles {
        constant(device::info_handles::OBJECT_ID),
        output(device::info_handles::TOTAL_HANDLES, 4),
        open_output(device::info_handles::HANDLES_LIST, 4),
    }
    device::OBJECT, device::method::QUERY_PORT, Nothing => context::query_port {
        constant(device::query_port::PORT_NUM),
        must(open_output(device::query_port::RESP, 48)),
    }
    device::OBJECT, device::method::GET_CONTEXT, Nothing => context::get_context {
        output(device::get_context::NUM_COMP_VECTORS, 4),
        output(device::get_context::CORE_SUPPORT, 8),
        IN, OUT,
    }
    device::OBJECT, device::method::QUERY_CONTEXT, Nothing => context::query_context {
        output(device::query_context::NUM_COMP_VECTORS, 4),
        output(device::query_context::CORE_SUPPORT, 8),
    }
    device::OBJECT, device::method::QUERY_GID_TABLE, Nothing => context::query_gid_table {
        constant(device::query_gid_table::ENTRY_SIZE),
        flags(device::query_gid_table::FLAGS),
        must(open_output(device::query_gid_table::RESP_ENTRIES, 0)),
        must(output(device::query_gid_table::RESP_NUM_ENTRIES, 8)),
    }
    device::OBJECT, device::method::QUERY_GID_ENTRY, Nothing => context::query_gid_entry {
        constant(device::query_gid_entry::PORT),
        constant(device::query_gid_entry::GID_INDEX),
        must(flags(device::query_gid_entry::FLAGS)),
        must(open_output(device::query_gid_entry::RESP_ENTRY, 32)),
    }
    pd::OBJECT, pd::method::DESTROY, Nothing => done { destroy(pd::destroy::HANDLE, Kind::Pd), }
    cq::OBJECT, cq::method::CREATE, Nothing => queues::create_cq {
        make(cq::create::HANDLE, Kind::Cq),
        must(input(cq::create::CQE, 4)),
        must(input(cq::create::USER_HANDLE, 8)),
        spec(cq::create::COMP_CHANNEL, Want::UseFd(Events::Completion)),
        must(input(cq::create::COMP_VECTOR, 4)),
        flags(cq::create::FLAGS),
        must(output(cq::create::RESP_CQE, 4)),
        spec(cq::create::EVENT_FD, Want::UseFd(Events::Asynchronous)),
        IN, OUT,
    }
    cq::OBJECT, cq::method::DESTROY, Nothing => queues::destroyed_cq {
        destroy(cq::destroy::HANDLE, Kind::Cq),
        must(output(cq::destroy::RESP, 8)),
    }
    qp::OBJECT, qp::method::CREATE, Nothing => queue_pairs::create_qp {
        make(qp::create::HANDLE, Kind::Qp),
        using(qp::create::XRCD_HANDLE, Kind::Xrcd),
        using(qp::create::PD_HANDLE, Kind::Pd),
        using(qp::create::SRQ_HANDLE, Kind::Srq),
        using(qp::create::SEND_CQ_HANDLE, Kind::Cq),
        using(qp::create::RECV_CQ_HANDLE, Kind::Cq),
        spec(qp::create::IND_TABLE_HANDLE, Want::Absent),
        must(input(qp::create::USER_HANDLE, 8)),
        must(spec(qp::create::CAP, Want::In { min: 20, max: 20, open: true })),
        constant(qp::create::TYPE),
        flags(qp::create::FLAGS),
        input(qp::create::SOURCE_QPN, 4),
        spec(qp::create::EVENT_FD, Want::UseFd(Events::Asynchronous)),
        must(open_output(qp::create::RESP_CAP, 20)),
        must(output(qp::create::RESP_QP_NUM, 4)),
        IN, OUT,
    }
    qp::OBJECT, qp::method::DESTROY, Nothing => queue_pairs::destroyed_qp {
        destroy(qp::destroy::HANDLE, Kind::Qp),
        must(output(qp::destroy::RESP, 4)),
    }
    srq::OBJECT, srq::method::CREATE, Nothing => shared_receives::create {
        make(srq::create::HANDLE, Kind::Srq),
        must(using(srq::create::PD_HANDLE, Kind::Pd)),
        constant(srq::create::TYPE),
        must(input(srq::create::USER_HANDLE, 8)),
        must(input(srq::create::MAX_WR, 4)),
        must(input(srq::create::MAX_SGE, 4)),
        must(input(srq::create::LIMIT, 4)),
        using(srq::create::XRCD_HANDLE, Kind::Xrcd),
        using(srq::create::CQ_HANDLE, Kind::Cq),
        input(srq::create::MAX_NUM_TAGS, 4),
        spec(srq::create::EVENT_FD, Want::UseFd(Events::Asynchronous)),
        must(output(srq::create::RESP_MAX_WR, 4)),
        must(output(srq::create::RESP_MAX_SGE, 4)),
        output(srq::create::RESP_SRQ_NUM, 4),
        IN, OUT,
    }
    srq::OBJECT, srq::method::DESTROY, Nothing => shared_receives::destroyed {
        destroy(srq::destroy::HANDLE, Kind::Srq),
        must(output(srq::destroy::RESP, 4)),
    }
    xrcd::OBJECT, xrcd::method::DESTROY, Xrc => done { destroy(xrcd::destroy::HANDLE, Kind::Xrcd), }
    ah::OBJECT, ah::method::DESTROY, Nothing => done { destroy(ah::destroy::HANDLE, Kind::Ah), }
    mr::OBJECT, mr::method::DESTROY, Nothing => done { destroy(mr::destroy::HANDLE, Kind::Mr), }
    mr::OBJECT, mr::method::ADVISE, Nothing => unsupported {
        must(using(mr::advise::PD_HANDLE, Kind::Pd)),
        constant(mr::advise::ADVICE),
        must(flags(mr::advise::FLAGS)),
        must(spec(mr::advise::SGE_LIST, Want::In { min: 16, max: u16::MAX, open: true })),
    }
    mr::OBJECT, mr::method::QUERY, Nothing => memory_regions::query {
        must(using(mr::query::HANDLE, Kind::Mr)),
        must(output(mr::query::RESP_LKEY, 4)),
        must(output(mr::query::RESP_RKEY, 4)),
        must(output(mr::query::RESP_LENGTH, 8)),
        output(mr::query::RESP_IOVA, 8),
    }
    mr::OBJECT, mr::method::REG_DMABUF, Nothing => unsupported {
        make(mr::reg_dmabuf::HANDLE, Kind::Mr),
        must(using(mr::reg_dmabuf::PD_HANDLE, Kind::Pd)),
        must(input(mr::reg_dmabuf::OFFSET, 8)),
        must(input(mr::reg_dmabuf::LENGTH, 8)),
        must(input(mr::reg_dmabuf::IOVA, 8)),
        must(input(mr::reg_dmabuf::FD, 4)),
        flags(mr::reg_dmabuf::ACCESS_FLAGS),
        must(output(mr::reg_dmabuf::RESP_LKEY, 4)),
        must(output(mr::reg_dmabuf::RESP_RKEY, 4)),
    }
    mw::OBJECT, mw::method::DESTROY, Nothing => done { destroy(mw::destroy::HANDLE, Kind::Mw), }
    flow_ids::OBJECT, flow_ids::method::DESTROY, Flows => done {
        destroy(flow_ids::destroy::HANDLE, Kind::Flow),
    }
    counters_ids::OBJECT, counters_ids::method::CREATE, Counters => counters::create {
        make(counters_ids::create::HANDLE, Kind::Counters),
    }
    counters_ids::OBJECT, counters_ids::method::DESTROY, Counters => done {
        destroy(counters_ids::destroy::HANDLE, Kind::Counters),
    }
    counters_ids::OBJECT, counters_ids::method::READ, Counters => counters::read {
        must(using(counters_ids::read::HANDLE, Kind::Counters)),
        must(open_output(counters_ids::read::BUFF, 0)),
        flags(counters_ids::read::FLAGS),
    }
    device::OBJECT, device::method::QUERY_COMP_CNTR_CAPS, CompletionCounters => completion_counters::caps {
        output(device::query_comp_cntr_caps::MAX_COUNTERS, 4),
        output(device::query_comp_cntr_caps::MAX_VALUE, 8),
        output(device::query_comp_cntr_caps::SUPPORTED_QP_ATTACH_OPS, 4),
    }
    qp::OBJECT, qp::method::ATTACH_COMP_CNTR, CompletionCounters => completion_counters::attach {
        must(using(qp::attach_comp_cntr::HANDLE, Kind::Qp)),
        must(using(qp::attach_comp_cntr::CNTR_HANDLE, Kind::CompletionCounter)),
        must(flags(qp::attach_comp_cntr::OP_MASK)),
    }
    comp_cntr::OBJECT, comp_cntr::method::CREATE, CompletionCounters => completion_counters::create {
        make(comp_cntr::create::HANDLE, Kind::CompletionCounter),
        must(input(efa::ids::comp_cntr::create::COMP_BUFFER, 32)),
        must(input(efa::ids::comp_cntr::create::ERR_BUFFER, 32)),
    }
    comp_cntr::OBJECT, comp_cntr::method::DESTROY, CompletionCounters => done {
        destroy(comp_cntr::destroy::HANDLE, Kind::CompletionCounter),
    }
    comp_cntr::OBJECT, comp_cntr::method::MODIFY, CompletionCounters => completion_counters::modify {
        must(using(comp_cntr::modify::HANDLE, Kind::CompletionCounter)),
        constant(comp_cntr::modify::ENTRY),
        constant(comp_cntr::modify::OP),
        must(input(comp_cntr::modify::VALUE, 8)),
    }
    comp_cntr::OBJECT, comp_cntr::method::READ, CompletionCounters => completion_counters::read {
        must(using(comp_cntr::read::HANDLE, Kind::CompletionCounter)),
        constant(comp_cntr::read::ENTRY),
        must(output(comp_cntr::read::RESP_VALUE, 8)),
    }
    async_event::OBJECT, async_event::method::ALLOC, Nothing => context::alloc_async_event {
        must(spec(async_event::alloc::FD_HANDLE, Want::NewFd(Events::Asynchronous))),
    }
}
