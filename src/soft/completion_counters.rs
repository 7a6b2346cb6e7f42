//! Hardware completion counters, an object of Linux 7.3 and later (uverbs_std_types_comp_cntr.c).
//!
//! They behave as those of the only driver that has them, EFA's: the values are in memory that the request names (`efa_create_comp_cntr`,
//! efa_verbs.c), and there is no command to read them. An unknown entry means the successes, and an unknown operation an increase, as in
//! that driver.

use nix::errno::Errno;
use uverbs_abi::efa::ids::comp_cntr::create::{COMP_BUFFER, ERR_BUFFER};
use uverbs_abi::ids::comp_cntr::modify;
use uverbs_abi::ids::device::query_comp_cntr_caps;
use uverbs_abi::ids::qp::attach_comp_cntr;
use uverbs_abi::types::{
    CompCntrOps, buffer_type, comp_cntr_entry, comp_cntr_op, wc_opcode, wc_status, wr_opcode,
};
use uverbs_abi::write::{BufferDesc, Wc};
use zerocopy::IntoBytes;

use super::call::Call;
use super::state::State;
use crate::kernel::mapping::Mapping;

/// The highest value of a counter: all 64 bits.
const MAX_VALUE: u64 = u64::MAX;

/// The largest number of an enumeration in the kernel, which has 32 bits: the kernel checks no more (`uverbs_get_const`).
const ANY: u64 = u32::MAX as u64;
/// The size of a page, which a value must not cross.
const PAGE: u64 = 4096;

/// The places of the two values, and the number of attachments.
#[derive(Debug)]
pub(super) struct CompletionCounter {
    /// Each with its memory.
    values: [(Mapping, usize); 2],
    pub(super) uses: u32,
}

impl CompletionCounter {
    fn change(&self, entry: u64, how: impl Fn(u64) -> u64) {
        let [successes, errors] = &self.values;
        let (memory, at) = if entry == comp_cntr_entry::ERR { errors } else { successes };
        memory.change_value(*at, how);
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
    let values = [place(call, COMP_BUFFER)?, place(call, ERR_BUFFER)?];
    if call.state.completion_counters.len() >= call.state.profile.completion_counters as usize {
        return Err(Errno::ENOMEM);
    }
    let id = call.state.number(|state| &state.completion_counters);
    call.state.completion_counters.insert(id, CompletionCounter { values, uses: 0 });
    call.made(id);
    Ok(())
}

/// The place of a value. The device accesses no addresses: it finds only memory that the command or the connection holds.
fn place(call: &Call<'_, '_, '_>, id: u16) -> Result<(Mapping, usize), Errno> {
    let BufferDesc { type_, flags, addr, length, .. } = call.value(id)?;
    let is_right = flags == 0 && length >= 8 && type_ <= buffer_type::VA;
    if !is_right || !addr.is_multiple_of(8) || addr % PAGE > PAGE - 8 {
        return Err(Errno::EINVAL);
    }
    if type_ == buffer_type::DMABUF {
        return Err(Errno::EBADF);
    }
    let found = call.blocks().iter().find_map(|memory| {
        let at = usize::try_from(addr.checked_sub(memory.address())?).ok()?;
        memory.place(at, 8).map(|_| (memory.clone(), at))
    });
    found.ok_or(Errno::EFAULT)
}

/// `UVERBS_METHOD_COMP_CNTR_MODIFY`.
pub(super) fn modify(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let id = call.object(modify::HANDLE)?.id;
    let entry = call.constant(modify::ENTRY, ANY)?;
    let op = call.constant(modify::OP, ANY)?;
    let operand: u64 = call.value(modify::VALUE)?;
    let counter = call.state.completion_counters.get(&id).ok_or(Errno::EINVAL)?;
    let is_set = op == comp_cntr_op::SET;
    counter.change(entry, |value| if is_set { operand } else { value.wrapping_add(operand) });
    Ok(())
}

/// `UVERBS_METHOD_COMP_CNTR_READ`, for which the driver has no function.
pub(super) fn read(_: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    Err(Errno::EOPNOTSUPP)
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
            if let Some(counter) = self.completion_counters.get(id).filter(|_| ops.intersects(op)) {
                counter.change(entry, |value| value.wrapping_add(1));
            }
        }
    }

    /// A receive has completed. A receive that a write has consumed is not a message.
    pub(super) fn count_receive(&mut self, wc: &Wc) {
        if wc.status != wc_status::SUCCESS || wc.opcode == wc_opcode::RECV {
            self.count_operation(wc.qp_num, CompCntrOps::RECV, wc.status);
        }
    }

    /// A queue pair was destroyed.
    pub(super) fn detach(&mut self, counters: &[(u32, CompCntrOps)]) {
        for (id, _) in counters {
            if let Some(counter) = self.completion_counters.get_mut(id) {
                counter.uses = counter.uses.saturating_sub(1);
            }
        }
    }
}

/// The operation for which a request counts.
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
