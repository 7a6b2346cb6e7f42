//! A soft device with one object of every kind, and the commands that created them.
#![allow(dead_code, reason = "each test file uses its own part of this")]

pub(crate) mod ring;
pub(crate) mod verbs;

use std::fmt;
use std::ops::Deref;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use uverbs::soft::{Profile, RawAttr, RawCommand, RawConnection, Resources, SoftDevice};
use uverbs_abi::flow::{self, CreateFlow, FlowAttr, FlowSpecActionCount, FlowSpecHdr};
use uverbs_abi::ids::{async_event, counters, cq, device, pd, qp};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::mlx5::{FlowCountersData, FlowCountersDesc};
use uverbs_abi::rxe::{CreateCqResp, CreateQpResp};
use uverbs_abi::types::{AccessFlags, QpAttrMask, qp_state, qp_type};
use uverbs_abi::write::{ModifyQp, QpCap, RegMr, RegMrResp, cmd};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

pub(crate) const CORE_IN: u16 = device::invoke_write::CORE_IN;
pub(crate) const CORE_OUT: u16 = device::invoke_write::CORE_OUT;

/// A write command with its request and room for a response.
pub(crate) fn write<T: IntoBytes + Immutable>(number: u32, request: &T, room: usize) -> RawCommand {
    let command = RawCommand::write(number).with(RawAttr::input(CORE_IN, request.as_bytes()));
    if room > 0 { command.with(RawAttr::output(CORE_OUT, room)) } else { command }
}

/// Reads a response.
pub(crate) fn answer<T: FromBytes>(command: &RawCommand, id: u16) -> T {
    T::read_from_prefix(command.answer(id)).expect("an answer of that size").0
}

/// Sends a command that must succeed.
#[track_caller]
pub(crate) fn done(file: &RawConnection, mut command: RawCommand) -> RawCommand {
    assert_eq!(file.invoke(&mut command), Ok(()), "{command:?}");
    command
}

pub(crate) fn get_context() -> RawCommand {
    RawCommand::new(device::OBJECT, device::method::GET_CONTEXT)
}

pub(crate) fn alloc_async() -> RawCommand {
    RawCommand::new(async_event::OBJECT, async_event::method::ALLOC)
        .with(RawAttr::handle(async_event::alloc::FD_HANDLE, 0))
}

pub(crate) fn destroy(object: u16, method: u16, handle: u32) -> RawCommand {
    RawCommand::new(object, method).with(RawAttr::handle(0, handle.into()))
}

pub(crate) fn destroy_cq(handle: u32) -> RawCommand {
    destroy(cq::OBJECT, cq::method::DESTROY, handle).with(RawAttr::output(cq::destroy::RESP, 8))
}

pub(crate) fn destroy_qp(handle: u32) -> RawCommand {
    destroy(qp::OBJECT, qp::method::DESTROY, handle).with(RawAttr::output(qp::destroy::RESP, 4))
}

pub(crate) fn destroy_counters(handle: u32) -> RawCommand {
    destroy(counters::OBJECT, counters::method::DESTROY, handle)
}

pub(crate) fn destroy_flow(handle: u32) -> RawCommand {
    destroy(uverbs_abi::ids::flow::OBJECT, uverbs_abi::ids::flow::method::DESTROY, handle)
}

pub(crate) fn create_cq(cqe: u32) -> RawCommand {
    use cq::create::*;
    RawCommand::new(cq::OBJECT, cq::method::CREATE)
        .with(RawAttr::handle(HANDLE, 0))
        .with(RawAttr::input(CQE, cqe.as_bytes()))
        .with(RawAttr::input(USER_HANDLE, 77_u64.as_bytes()))
        .with(RawAttr::input(COMP_VECTOR, 0_u32.as_bytes()))
        .with(RawAttr::output(RESP_CQE, 4))
        .with(RawAttr::output(UHW_OUT, size_of::<CreateCqResp>()))
}

pub(crate) fn create_qp(pd: u32, cq: u32) -> RawCommand {
    use qp::create::*;
    let cap = QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 64 };
    RawCommand::new(qp::OBJECT, qp::method::CREATE)
        .with(RawAttr::handle(HANDLE, 0))
        .with(RawAttr::handle(PD_HANDLE, pd.into()))
        .with(RawAttr::handle(SEND_CQ_HANDLE, cq.into()))
        .with(RawAttr::handle(RECV_CQ_HANDLE, cq.into()))
        .with(RawAttr::input(USER_HANDLE, 88_u64.as_bytes()))
        .with(RawAttr::input(CAP, cap.as_bytes()))
        .with(RawAttr::value(TYPE, qp_type::RAW_PACKET.into()))
        .with(RawAttr::output(RESP_CAP, size_of::<QpCap>()))
        .with(RawAttr::output(RESP_QP_NUM, 4))
        .with(RawAttr::output(UHW_OUT, size_of::<CreateQpResp>()))
}

pub(crate) fn create_qp_of(kind: u8, pd: u32, cq: u32) -> RawCommand {
    replaced(create_qp(pd, cq), RawAttr::value(qp::create::TYPE, kind.into()))
}

pub(crate) fn create_counters() -> RawCommand {
    RawCommand::new(counters::OBJECT, counters::method::CREATE)
        .with(RawAttr::handle(counters::create::HANDLE, 0))
}

pub(crate) fn read_counters(handle: u32, len: usize) -> RawCommand {
    RawCommand::new(counters::OBJECT, counters::method::READ)
        .with(RawAttr::handle(counters::read::HANDLE, handle.into()))
        .with(RawAttr::output(counters::read::BUFF, len))
}

pub(crate) fn modify(qp: u32, state: u8, mask: QpAttrMask) -> ModifyQp {
    let attr_mask = (mask | QpAttrMask::STATE).bits();
    ModifyQp { qp_handle: qp, qp_state: state, attr_mask, port_num: 1, ..ModifyQp::new_zeroed() }
}

/// A flow of these specs, with its own header still to be changed.
pub(crate) fn flow_header(qp: u32, specs: &[Vec<u8>]) -> CreateFlow {
    let size = specs.iter().map(Vec::len).sum::<usize>() as u16;
    let num_of_specs = specs.len() as u8;
    let flow_attr = FlowAttr { size, num_of_specs, port: 1, ..FlowAttr::default() };
    CreateFlow { comp_mask: 0, qp_handle: qp, flow_attr }
}

pub(crate) fn flow_command(header: &CreateFlow, specs: &[Vec<u8>]) -> RawCommand {
    let body = [header.as_bytes(), &specs.concat()].concat();
    RawCommand::write(cmd::EX_CREATE_FLOW)
        .with(RawAttr::input(CORE_IN, &body))
        .with(RawAttr::output(CORE_OUT, 8))
}

pub(crate) fn create_flow(qp: u32, specs: &[Vec<u8>]) -> RawCommand {
    flow_command(&flow_header(qp, specs), specs)
}

/// A spec of any shape: head, followed by these bytes.
pub(crate) fn spec(type_: u32, body: &[u8]) -> Vec<u8> {
    let hdr = FlowSpecHdr { type_, size: 8 + body.len() as u16, reserved: 0 };
    [hdr.as_bytes(), body].concat()
}

/// Matches frames to this address.
pub(crate) fn eth(mac: [u8; 6]) -> Vec<u8> {
    let mut body = [0; 32];
    body[..6].copy_from_slice(&mac);
    body[16..22].fill(0xff);
    spec(flow::SPEC_ETH, &body)
}

pub(crate) fn count(handle: u32) -> Vec<u8> {
    let hdr = FlowSpecHdr { type_: flow::SPEC_ACTION_COUNT, size: 16, reserved: 0 };
    FlowSpecActionCount { hdr, handle, reserved1: 0 }.as_bytes().to_vec()
}

/// mlx5's payload for CREATE_FLOW: (description, index) pairs.
pub(crate) fn map(entries: &[(u32, u32)]) -> RawAttr {
    let inner: Vec<_> = entries
        .iter()
        .map(|(description, index)| FlowCountersDesc { description: *description, index: *index })
        .collect();
    let data = FlowCountersData { counters_data: 0, ncounters: entries.len() as u32, reserved: 0 };
    let outer = [&1_u64.to_ne_bytes()[..], data.as_bytes()].concat();
    RawAttr::nested(UHW_IN, &outer, 8, inner.as_bytes())
}

pub(crate) const PACKETS_AND_BYTES: [(u32, u32); 2] = [(0, 0), (1, 1)];
pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A file with one object of every kind that every device has.
pub(crate) struct Base {
    pub(crate) file: RawConnection,
    pub(crate) events: Option<OwnedFd>,
    pub(crate) pd: u32,
    pub(crate) cq: u32,
    pub(crate) qp: u32,
    pub(crate) qp_num: u32,
    pub(crate) mr: u32,
}

impl Base {
    /// With a queue pair of this type.
    pub(crate) fn new(file: RawConnection, kind: u8) -> Self {
        done(&file, get_context());
        let events = file.invoke_fd(&mut alloc_async()).unwrap();
        let pd = new_pd(&file);
        let cq = done(&file, create_cq(16)).data(cq::create::HANDLE) as u32;
        let made = done(&file, create_qp_of(kind, pd, cq));
        let (qp, qp_num) = (made.data(qp::create::HANDLE) as u32, answer(&made, qp::create::RESP_QP_NUM));
        let (mr, ..) = register(&file, pd, 4096);
        Self { file, events, pd, cq, qp, qp_num, mr }
    }

    /// The handles of all objects in the file, for each kind that the device has.
    pub(crate) fn handles(&self) -> Vec<(u16, Vec<u8>)> {
        (0..=async_event::OBJECT)
            .filter_map(|object| {
                let mut command = info(object.into());
                let room = RawAttr::output(device::info_handles::HANDLES_LIST, 4096);
                command = replaced(command, room);
                self.file.invoke(&mut command).ok()?;
                let count: u32 = answer(&command, device::info_handles::TOTAL_HANDLES);
                let list = command.answer(device::info_handles::HANDLES_LIST);
                Some((object, list[..4 * count as usize].to_vec()))
            })
            .collect()
    }
}

/// An open soft device with one object of every kind: its queue pair is one for raw packets.
pub(crate) struct World {
    pub(crate) device: SoftDevice,
    pub(crate) base: Base,
    /// Never used by a flow.
    pub(crate) counters: u32,
    /// Used by `flow`.
    pub(crate) bound: u32,
    pub(crate) flow: u32,
}

impl Deref for World {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Profile::default())
    }

    pub(crate) fn with(profile: Profile) -> Self {
        let device = SoftDevice::new(profile);
        let base = Base::new(device.raw(), qp_type::RAW_PACKET);
        let counters = new_counters(&base.file);
        let bound = new_counters(&base.file);
        let command = create_flow(base.qp, &[eth(MAC), count(bound)]).with(map(&PACKETS_AND_BYTES));
        let flow = new_flow(&base.file, command);
        Self { device, base, counters, bound, flow }
    }

    pub(crate) fn resources(&self) -> Resources {
        self.device.resources()
    }

    /// Takes a queue pair from reset to ready to send.
    pub(crate) fn ready(&self, qp: u32) {
        let steps = [qp_state::INIT, qp_state::RTR, qp_state::RTS];
        for state in steps {
            let mask = if state == qp_state::INIT { QpAttrMask::PORT } else { QpAttrMask::empty() };
            done(&self.file, write(cmd::MODIFY_QP, &modify(qp, state, mask), 0));
        }
    }
}

pub(crate) fn new_pd(file: &RawConnection) -> u32 {
    // mlx5 requires room for a response of its own.
    let command = write(cmd::ALLOC_PD, &0_u64, 4).with(RawAttr::output(UHW_OUT, 4));
    answer(&done(file, command), CORE_OUT)
}

pub(crate) fn new_counters(file: &RawConnection) -> u32 {
    done(file, create_counters()).data(counters::create::HANDLE) as u32
}

#[track_caller]
pub(crate) fn new_flow(file: &RawConnection, command: RawCommand) -> u32 {
    let response: [u32; 2] = answer(&done(file, command), CORE_OUT);
    response[1]
}

/// Handle, key, address and memory of a new region.
pub(crate) fn register(
    file: &RawConnection,
    pd: u32,
    len: usize,
) -> (u32, u32, u64, uverbs::transport::Mapping) {
    let (address, memory) = file.memory(len).unwrap();
    let request = RegMr {
        start: address,
        hca_va: address,
        length: len as u64,
        pd_handle: pd,
        access_flags: AccessFlags::LOCAL_WRITE.bits(),
        ..RegMr::new_zeroed()
    };
    let response: RegMrResp = answer(&done(file, write(cmd::REG_MR, &request, 12)), CORE_OUT);
    (response.mr_handle, response.lkey, address, memory)
}

/// A mistake, the command with it, and its errno; 0 if it only looks like a mistake.
pub(crate) type Row<W = World> = (&'static str, fn(&W) -> RawCommand, i32);

/// An errno, with its name in messages; zero is success.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer(pub(crate) i32);

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("success") } else { Errno::from_raw(self.0).fmt(f) }
    }
}

/// The result as an errno.
pub(crate) fn errno(answer: Result<(), i32>) -> Answer {
    Answer(answer.err().unwrap_or(0))
}

/// Sends every row to one world, passes the results to `tell`, and checks after each that nothing is left.
pub(crate) fn send_rows(base: &Base, rows: &[Row<Base>], mut tell: impl FnMut(&str, Answer, Answer)) {
    let mut before = base.handles();
    for (name, command, expected) in rows {
        let answer = errno(base.file.invoke(&mut command(base)));
        tell(name, answer, Answer(*expected));
        let after = base.handles();
        assert!(answer == Answer(0) || after == before, "{name}: {before:?} became {after:?}");
        before = after;
    }
}

/// The same with a world of the soft device, for which every answer must be the expected one.
pub(crate) fn check(world: &World, rows: &[Row]) {
    let before = (world.resources(), world.handles());
    for (name, command, expected) in rows {
        let answer = errno(world.file.invoke(&mut command(world)));
        assert_eq!(answer, Answer(*expected), "{name}");
        assert_eq!((world.resources(), world.handles()), before, "{name}");
    }
}

/// The same command with one attribute changed.
pub(crate) fn changed(mut command: RawCommand, id: u16, change: impl FnOnce(&mut RawAttr)) -> RawCommand {
    let attr = command.attrs().iter_mut().find(|attr| attr.id == id).expect("that attribute");
    change(attr);
    command
}

pub(crate) fn replaced(command: RawCommand, attr: RawAttr) -> RawCommand {
    changed(command, attr.id, |old| *old = attr)
}

pub(crate) fn without(mut command: RawCommand, id: u16) -> RawCommand {
    command.attrs().retain(|attr| attr.id != id);
    command
}

pub(crate) fn info(object: u64) -> RawCommand {
    RawCommand::new(device::OBJECT, device::method::INFO_HANDLES)
        .with(RawAttr::value(0, object))
        .with(RawAttr::output(1, 4))
        .with(RawAttr::output(2, 64))
}

pub(crate) fn destroy_pd(handle: u64) -> RawCommand {
    RawCommand::new(pd::OBJECT, pd::method::DESTROY).with(RawAttr::handle(0, handle))
}
