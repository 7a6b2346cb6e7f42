//! Any sequence of commands, valid, nearly valid or invalid, with random writes to rings: the device answers each, and nothing is left
//! when its files are closed.

use std::sync::atomic::Ordering;

use uverbs::soft::{Profile, RawAttr, RawCommand, RawConnection, SoftDevice};
use uverbs::transport::Mapping;
use uverbs_abi::flow::CreateFlow;
use uverbs_abi::ids::{async_event, counters, cq, device, flow, mr, mw, pd, qp};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::rxe::{CreateCqResp, CreateQpResp, Mminfo};
use uverbs_abi::types::QpAttrMask;
use uverbs_abi::write::{COMMANDS, PostSend, RegMr, cmd};
use zerocopy::FromZeros;

use super::bytes::Bytes;
use crate::commands::*;

const OBJECTS: &[u16] = &[
    device::OBJECT,
    pd::OBJECT,
    cq::OBJECT,
    qp::OBJECT,
    mr::OBJECT,
    mw::OBJECT,
    flow::OBJECT,
    counters::OBJECT,
    async_event::OBJECT,
];

/// An open file, and the user's objects in it.
struct User {
    file: RawConnection,
    rings: Vec<Mapping>,
    memory: (u64, Mapping),
}

impl User {
    fn new(file: RawConnection) -> Self {
        let memory = file.memory(4096).expect("memory");
        Self { file, rings: Vec::new(), memory }
    }
}

fn attr(data: &mut Bytes<'_>) -> RawAttr {
    let kind = data.u8();
    let id = match kind >> 4 {
        0..=12 => u16::from(data.u8() % 16),
        13 => UHW_IN,
        14 => UHW_OUT,
        _ => data.u16(),
    };
    let attr = match kind % 8 {
        0 | 1 => RawAttr::handle(id, data.number()),
        2 => RawAttr::value(id, data.number()),
        3 => RawAttr::input(id, data.block()),
        4 => RawAttr::output(id, data.u8().into()),
        5 => RawAttr::nested(id, data.block(), data.number() as usize, data.block()),
        6 => RawAttr::bad_address(id, data.u8().into()),
        _ => {
            let mut attr = RawAttr::value(id, data.number());
            (attr.flags, attr.elem_id, attr.reserved) = (data.u16(), data.u8(), data.u8());
            attr
        }
    };
    match kind & 8 {
        0 => attr,
        _ => attr.with_len(data.number() as u16),
    }
}

/// Any method with any attributes, sometimes with a false header.
fn wild(data: &mut Bytes<'_>) -> RawCommand {
    let object = if data.u8() < 240 { data.pick(OBJECTS) } else { data.u16() };
    let mut command = RawCommand::new(object, (data.u8() % 10).into());
    for _ in 0..data.u8() % 20 {
        command = command.with(attr(data));
    }
    match data.u8() {
        0xf8 => command.with_length(data.u16()),
        0xf9 => command.with_num_attrs(data.u16()),
        0xfa => command.with_reserved(data.u64(), data.u32()),
        0xfb => command.with_driver_id(data.u32()),
        _ => command,
    }
}

/// A write command, with words that may be handles or with any bytes.
fn old(data: &mut Bytes<'_>) -> RawCommand {
    let index = usize::from(data.u8());
    let number = COMMANDS.get(index).map_or_else(|| data.u32(), |info| info.number);
    let request: Vec<u8> = match data.u8() % 4 {
        0 => data.block().to_vec(),
        _ => (0..data.u8() % 40).flat_map(|_| (data.number() as u32).to_ne_bytes()).collect(),
    };
    let mut command = RawCommand::write(number).with(RawAttr::input(CORE_IN, &request));
    if data.u8() < 200 {
        command = command.with(RawAttr::output(CORE_OUT, data.u8().into()));
    }
    if data.u8() < 64 { command.with(attr(data)) } else { command }
}

/// A command that is valid if its handles are.
fn good(data: &mut Bytes<'_>, user: &User) -> RawCommand {
    let mut handle = || data.number() as u32;
    match handle() % 18 {
        0 => get_context(),
        1 => alloc_async(),
        2 => write(cmd::ALLOC_PD, &0_u64, 4),
        3 => create_cq(handle()),
        4 => create_qp(handle(), handle()),
        5 => create_counters(),
        6 | 7 => {
            let specs = [eth(MAC), count(handle())];
            create_flow(handle(), &specs).with(map(&[(handle(), handle()), (handle() % 2, handle())]))
        }
        8 => {
            let specs = [spec(handle(), data.block()), count(data.u8().into())];
            let header: CreateFlow = flow_header(data.u8().into(), &specs);
            flow_command(&header, &specs).with(map(&PACKETS_AND_BYTES))
        }
        9 => read_counters(handle(), 8 * (handle() as usize % 64)),
        10 => {
            let start = user.memory.0;
            let request = RegMr {
                start: start.wrapping_add(data.number()),
                length: 4096_u64.wrapping_sub(data.number()),
                hca_va: start,
                pd_handle: data.number() as u32,
                access_flags: data.number() as u32,
                ..RegMr::new_zeroed()
            };
            write(cmd::REG_MR, &request, 12)
        }
        11 => {
            let mask =
                QpAttrMask::from_bits_retain(if handle() < 8 { 0 } else { handle() }) | QpAttrMask::PORT;
            write(cmd::MODIFY_QP, &modify(handle(), (handle() % 8) as u8, mask), 0)
        }
        12 => {
            let request = PostSend { qp_handle: handle(), wqe_size: 56, ..PostSend::new_zeroed() };
            write(cmd::POST_SEND, &request, 4)
        }
        13 => destroy_flow(handle()),
        14 => destroy_counters(handle()),
        15 => destroy_qp(handle()),
        16 => destroy_cq(handle()),
        _ => destroy(data.pick(OBJECTS), 0, data.number() as u32),
    }
}

/// Maps the rings that a command has created.
fn map_rings(command: &RawCommand, user: &mut User) {
    let bytes = command.answer(UHW_OUT);
    let infos: Vec<Mminfo> = match bytes.len() {
        len if len == size_of::<CreateCqResp>() => vec![answer::<CreateCqResp>(command, UHW_OUT).mi],
        len if len == size_of::<CreateQpResp>() => {
            let CreateQpResp { rq_mi, sq_mi } = answer(command, UHW_OUT);
            vec![rq_mi, sq_mi]
        }
        _ => Vec::new(),
    };
    user.rings.extend(infos.iter().filter_map(|info| user.file.map(info.offset, info.size as usize).ok()));
}

/// Writes to a program's rings, valid or not.
fn scribble(data: &mut Bytes<'_>, user: &User) {
    let index = usize::from(data.u8());
    let at = data.u16();
    if let Some(ring) = user.rings.get(index % user.rings.len().max(1)) {
        match at & 3 {
            // Its own index, which shows the device new requests.
            0 => ring.store(128, data.u8().into(), Ordering::Release),
            1 => ring.store(256, data.u8().into(), Ordering::Release),
            // A request in slot 0 or 1.
            2 => {
                let slot = 1_usize << ring.load(0, Ordering::Relaxed).min(12);
                let _ = ring.write(384 + (usize::from(at) >> 2) % 2 * slot, data.block());
            }
            _ => {
                let _ = ring.write(usize::from(at) % ring.len(), data.block());
            }
        }
    }
}

pub(crate) fn run(data: &[u8]) {
    let mut data = Bytes(data);
    let profile = match data.u8() % 8 {
        0 => Profile::default().with_counters(false),
        1 => Profile::default().with_flows(false),
        2 => Profile::default()
            .with_max_bound_counters(1)
            .with_max_flows(2)
            .with_max_qp(1)
            .with_wide_rules(true),
        3 => Profile::default().with_disassociate(false),
        _ => Profile::default(),
    };
    let everything = data.u8() & 1 != 0 && profile.counters && profile.flows;
    let (device, file) = if everything {
        let World { device, base, .. } = World::with(profile);
        (device, base.file)
    } else {
        let device = SoftDevice::new(profile);
        let file = device.raw();
        (device, file)
    };
    let mut users = [file, device.raw()].map(User::new);
    steps(&mut data, &device, &mut users);
    drop(users);
    assert!(device.resources().is_empty(), "{:?}", device.resources());
}

fn steps(data: &mut Bytes<'_>, device: &SoftDevice, users: &mut [User]) {
    let mut descriptors = Vec::new();
    for _ in 0..200 {
        if data.is_empty() {
            break;
        }
        let choice = data.u8();
        let who = usize::from(choice >> 7) % users.len();
        let user = &mut users[who];
        let mut command = match choice % 16 {
            0 | 1 => wild(data),
            2 | 3 => old(data),
            4..=8 => good(data, user),
            9 => {
                let mut command = good(data, user);
                let count = command.attrs().len().max(1);
                if let Some(place) = command.attrs().get_mut(usize::from(data.u8()) % count) {
                    *place = attr(data);
                }
                command
            }
            10 | 11 => {
                scribble(data, user);
                continue;
            }
            12 => {
                device.inject(data.frame());
                continue;
            }
            13 => {
                descriptors.pop();
                continue;
            }
            14 => {
                let _ = user.file.map(data.number() << 12, data.number() as usize);
                continue;
            }
            _ => {
                if data.u8() > 240 {
                    device.unplug();
                }
                continue;
            }
        };
        match user.file.invoke_fd(&mut command) {
            Ok(fd) => {
                descriptors.extend(fd);
                map_rings(&command, user);
            }
            Err(errno) => assert!((1..4096).contains(&errno), "{errno}"),
        }
    }
}
