//! Hardware completion counters: an object that came with Linux 7.3 (uverbs_std_types_comp_cntr.c).
//!
//! The shape of the object is that of libibverbs' headers of 2026. What a kernel would check is checked in its order:
//! constants, then masks, then what is in use.

use nix::errno::Errno;
use uverbs_abi::ids::comp_cntr::{modify, read};
use uverbs_abi::ids::device::query_comp_cntr_caps;
use uverbs_abi::ids::qp::attach_comp_cntr;
use uverbs_abi::types::{CompCntrOps, comp_cntr_entry, comp_cntr_op, wc_opcode, wc_status, wr_opcode};
use uverbs_abi::write::Wc;
use zerocopy::IntoBytes;

use super::call::Call;
use super::state::State;

/// The highest value of a counter: all 64 bits.
const MAX_VALUE: u64 = u64::MAX;

/// The two values, and how often it is attached.
#[derive(Debug, Default)]
pub(super) struct CompletionCounter {
    values: [u64; 2],
    pub(super) uses: u32,
}

impl CompletionCounter {
    fn value(&mut self, entry: u64) -> &mut u64 {
        &mut self.values[usize::from(entry == comp_cntr_entry::ERR)]
    }
}

/// `UVERBS_METHOD_QUERY_COMP_CNTR_CAPS`.
pub(super) fn caps(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    use query_comp_cntr_caps::{MAX_COUNTERS, MAX_VALUE as VALUE, SUPPORTED_QP_ATTACH_OPS};
    let most = call.state.profile.completion_counters;
    call.copy_to_optional(MAX_COUNTERS, most.as_bytes())?;
    call.copy_to_optional(VALUE, MAX_VALUE.as_bytes())?;
    call.copy_to_optional(SUPPORTED_QP_ATTACH_OPS, CompCntrOps::all().bits().as_bytes())
}

/// `UVERBS_METHOD_COMP_CNTR_CREATE`.
pub(super) fn create(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    if call.state.completion_counters.len() >= call.state.profile.completion_counters as usize {
        return Err(Errno::ENOMEM);
    }
    let id = call.state.number(|state| &state.completion_counters);
    call.state.completion_counters.insert(id, CompletionCounter::default());
    call.made(id);
    Ok(())
}

/// `UVERBS_METHOD_COMP_CNTR_MODIFY`.
pub(super) fn modify(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let id = call.object(modify::HANDLE)?.id;
    let entry = call.constant(modify::ENTRY, comp_cntr_entry::ERR)?;
    let op = call.constant(modify::OP, comp_cntr_op::INC)?;
    let operand: u64 = call.value(modify::VALUE)?;
    let counter = call.state.completion_counters.get_mut(&id).ok_or(Errno::EINVAL)?;
    let value = counter.value(entry);
    *value = if op == comp_cntr_op::SET { operand } else { value.wrapping_add(operand) };
    Ok(())
}

/// `UVERBS_METHOD_COMP_CNTR_READ`.
pub(super) fn read(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let id = call.object(read::HANDLE)?.id;
    let entry = call.constant(read::ENTRY, comp_cntr_entry::ERR)?;
    let counter = call.state.completion_counters.get_mut(&id).ok_or(Errno::EINVAL)?;
    let value = *counter.value(entry);
    call.copy_to(read::RESP_VALUE, value.as_bytes())
}

/// `UVERBS_METHOD_QP_ATTACH_COMP_CNTR`. A queue pair has one counter for each operation.
pub(super) fn attach(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let number = call.object(attach_comp_cntr::HANDLE)?.id;
    let id = call.object(attach_comp_cntr::CNTR_HANDLE)?.id;
    let mask =
        CompCntrOps::from_bits_retain(call.flags(attach_comp_cntr::OP_MASK, CompCntrOps::all().bits())?);
    if mask.is_empty() {
        return Err(Errno::EINVAL);
    }
    let qp = call.state.qps.get_mut(&number).ok_or(Errno::EINVAL)?;
    if qp.counters.iter().any(|(_, ops)| ops.intersects(mask)) {
        return Err(Errno::EBUSY);
    }
    let counter = call.state.completion_counters.get_mut(&id).ok_or(Errno::EINVAL)?;
    counter.uses += 1;
    qp.counters.push((id, mask));
    Ok(())
}

impl State {
    /// An operation of a queue pair has ended.
    pub(super) fn count_operation(&mut self, number: u32, op: CompCntrOps, status: u32) {
        let Some(qp) = self.qps.get(&number) else { return };
        let entry = if status == wc_status::SUCCESS { comp_cntr_entry::COMP } else { comp_cntr_entry::ERR };
        for (id, ops) in &qp.counters {
            if let Some(counter) = self.completion_counters.get_mut(id).filter(|_| ops.intersects(op)) {
                let value = counter.value(entry);
                *value = value.wrapping_add(1);
            }
        }
    }

    /// A receive has completed. One that a write used up was no message.
    pub(super) fn count_receive(&mut self, wc: &Wc) {
        if wc.status != wc_status::SUCCESS || wc.opcode == wc_opcode::RECV {
            self.count_operation(wc.qp_num, CompCntrOps::RECV, wc.status);
        }
    }

    /// A queue pair has gone.
    pub(super) fn detach(&mut self, counters: &[(u32, CompCntrOps)]) {
        for (id, _) in counters {
            if let Some(counter) = self.completion_counters.get_mut(id) {
                counter.uses = counter.uses.saturating_sub(1);
            }
        }
    }
}

/// What a request counts as.
pub(super) fn operation(opcode: u32) -> CompCntrOps {
    match opcode {
        wr_opcode::SEND | wr_opcode::SEND_WITH_IMM | wr_opcode::SEND_WITH_INV => CompCntrOps::SEND,
        wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM => CompCntrOps::RDMA_WRITE,
        wr_opcode::RDMA_READ | wr_opcode::ATOMIC_CMP_AND_SWP | wr_opcode::ATOMIC_FETCH_AND_ADD => {
            CompCntrOps::RDMA_READ
        }
        _ => CompCntrOps::empty(),
    }
}
