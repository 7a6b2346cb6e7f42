//! A file with one of everything that counts, on the soft device and on a card.

use std::ops::Deref;

use uverbs::soft::{RawAttr, RawCommand, RawConnection};
use uverbs_abi::ids::{cq, qp};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::mlx5::{AllocUcontextReqV2, AllocUcontextResp, CreateCq, CreateQp};
use uverbs_abi::types::qp_type;
use uverbs_abi::write::cmd;
use zerocopy::{FromZeros, IntoBytes};

use super::soft::*;

/// One of everything; a flow counts into `bound`, none into `counters`.
pub(crate) struct Counted {
    pub(crate) base: Base,
    pub(crate) counters: u32,
    pub(crate) bound: u32,
    pub(crate) flow: u32,
}

impl Deref for Counted {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl Counted {
    pub(crate) fn new(file: RawConnection, is_card: bool) -> Self {
        let base = if is_card { on_card(file) } else { Base::new(file, qp_type::RAW_PACKET) };
        let (counters, bound) = (new_counters(&base.file), new_counters(&base.file));
        let command = create_flow(base.qp, &[eth(MAC), count(bound)]).with(map(&PACKETS_AND_BYTES));
        let flow = new_flow(&base.file, command);
        Self { base, counters, bound, flow }
    }

    /// Sends a command; a flow that it made is destroyed again.
    pub(crate) fn attempt(&self, mut command: RawCommand) -> Answer {
        let answer = errno(self.file.invoke(&mut command));
        let makes_flow = command.attrs().iter().any(|attr| attr.id == CORE_OUT && attr.len == 8);
        if answer == Answer(0) && makes_flow {
            let response: [u32; 2] = super::soft::answer(&command, CORE_OUT);
            done(&self.file, destroy_flow(response[1]));
        }
        answer
    }
}

/// Replaces the answer of the soft device's driver by this driver's request.
fn for_mlx5(mut command: RawCommand, request: &[u8], room: usize) -> RawCommand {
    command.attrs().retain(|attr| attr.id != UHW_OUT);
    command.with(RawAttr::input(UHW_IN, request)).with(RawAttr::output(UHW_OUT, room))
}

/// A raw packet queue pair on mlx5, in memory of the connection's: without send requests nor doorbells.
fn on_card(file: RawConnection) -> Base {
    let context = AllocUcontextReqV2 {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        max_cqe_version: 1,
        ..AllocUcontextReqV2::default()
    };
    done(&file, for_mlx5(get_context(), context.as_bytes(), size_of::<AllocUcontextResp>()));
    let events = file.invoke_fd(&mut alloc_async()).unwrap();
    let alloc = write(cmd::ALLOC_PD, &0_u64, 4).with(RawAttr::output(UHW_OUT, 4));
    let pd = answer(&done(&file, alloc), CORE_OUT);
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
