//! A file with one object of every kind on a card, whose driver requires requests of its own.

#![allow(dead_code, reason = "each test file uses its own part of this")]

pub(crate) mod counted;

use uverbs::soft::{RawAttr, RawCommand, RawConnection};
use uverbs_abi::ids::{cq, qp};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::mlx5::{AllocUcontextReqV2, AllocUcontextResp, CreateCq, CreateQp};
use zerocopy::{FromZeros, IntoBytes};

use crate::commands::*;
use crate::common::Target;

/// One object of every kind, with a queue pair of this type. On a card, which has no other type here, it is one for raw packets.
pub(crate) fn base(target: &Target, kind: u8) -> Base {
    let file = target.raw();
    if target.device.driver() == "mlx5" { on_card(file) } else { Base::new(file, kind) }
}

/// Makes the context of a file.
pub(crate) fn new_context(target: &Target, file: &RawConnection) {
    let command = if target.device.driver() == "mlx5" { get_context_of_mlx5() } else { get_context() };
    done(file, command);
}

fn get_context_of_mlx5() -> RawCommand {
    let context = AllocUcontextReqV2 {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        max_cqe_version: 1,
        ..AllocUcontextReqV2::default()
    };
    for_mlx5(get_context(), context.as_bytes(), size_of::<AllocUcontextResp>())
}

/// Replaces the place for the soft device's driver response by this driver's request.
fn for_mlx5(mut command: RawCommand, request: &[u8], room: usize) -> RawCommand {
    command.attrs().retain(|attr| attr.id != UHW_OUT);
    command.with(RawAttr::input(UHW_IN, request)).with(RawAttr::output(UHW_OUT, room))
}

/// A raw packet queue pair on mlx5, in memory of the connection, without send requests or doorbells.
fn on_card(file: RawConnection) -> Base {
    done(&file, get_context_of_mlx5());
    let events = file.invoke_fd(&mut alloc_async()).unwrap();
    let pd = new_pd(&file);
    let (queue, _) = file.memory(8192).unwrap();
    let request = CreateCq { buf_addr: queue, db_addr: queue + 4096, cqe_size: 64, ..CreateCq::new_zeroed() };
    let command = for_mlx5(create_cq(16), request.as_bytes(), 8);
    let cq = done(&file, command).data(cq::create::HANDLE) as u32;
    let (rings, _) = file.memory(3 * 4096).unwrap();
    let request = CreateQp {
        buf_addr: rings,
        sq_buf_addr: rings + 4096,
        db_addr: rings + 2 * 4096,
        sq_wqe_count: 16,
        rq_wqe_count: 8,
        rq_wqe_shift: 5,
        uidx: 1,
        ..CreateQp::new_zeroed()
    };
    let made = done(&file, for_mlx5(create_qp(pd, cq), request.as_bytes(), 40));
    let (qp, qp_num) = (made.data(qp::create::HANDLE) as u32, answer(&made, qp::create::RESP_QP_NUM));
    let (mr, ..) = register(&file, pd, 4096);
    Base { file, events, pd, cq, qp, qp_num, mr }
}
