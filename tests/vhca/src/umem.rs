//! Memory of programs that they name by a number, in commands that they write themselves (DEVX).
//!
//! The kernel's header has the bits that say that a queue is in such memory, but not the fields for its number and its offset, which only
//! programs fill in. These are as in the manual of the device and in `mlx5_prm.h` of DPDK.

use crate::bits::{Bits, BitsMut, Field};
use crate::command::Status;
use crate::device::Device;
use crate::ifc::command::{
    create_cq_in, create_mkey_in, create_qp_in, create_rmp_in, create_rq_in, create_sq_in,
};
use crate::ifc::context::{cqc, mkc, qpc, rmpc, rqc, sqc, wq};
use crate::object::{Handle, Kind};
use crate::queue::Pages;

/// A command with lists of pages, and the memory that it uses; none for a command without such memory.
type Resolved = Option<(Vec<u8>, Vec<Handle>)>;

/// What a queue in such memory has in its command: whether it is there, where, and the fields in which a list of pages would be.
#[derive(Clone, Copy)]
struct Ring {
    valid: Field,
    number: Field,
    offset: Field,
    log_page: Field,
    page_offset: Field,
    list: Field,
}

/// The same of its doorbell record.
#[derive(Clone, Copy)]
struct Record {
    valid: Field,
    number: Field,
    address: Field,
}

/// The fields of a work queue in a command.
const fn work_queue(at: Field) -> (Ring, Record) {
    let ring = Ring {
        valid: Field::new(0x121, 1).within(at),
        number: Field::new(0x160, 32).within(at),
        offset: Field::new(0x180, 64).within(at),
        log_page: wq::log_wq_pg_sz.within(at),
        page_offset: wq::page_offset.within(at),
        list: wq::pas.within(at),
    };
    let record = Record {
        valid: Field::new(0x120, 1).within(at),
        number: Field::new(0x140, 32).within(at),
        address: wq::dbr_addr.within(at),
    };
    (ring, record)
}

/// The fields of a command that creates a queue, by its opcode.
fn fields(opcode: u16, input: &[u8]) -> Option<(Ring, Record)> {
    match opcode {
        0x400 => {
            let context = create_cq_in::cq_context;
            let ring = Ring {
                valid: Field::new(0x2e0, 1),
                number: Field::new(0x2c0, 32),
                offset: Field::new(0x280, 64),
                log_page: cqc::log_page_size.within(context),
                page_offset: cqc::page_offset.within(context),
                list: create_cq_in::pas,
            };
            let record = Record {
                valid: Field::new(0x6, 1).within(context),
                number: Field::new(0x20, 32).within(context),
                address: cqc::dbr_addr.within(context),
            };
            Some((ring, record))
        }
        0x500 => {
            let context = create_qp_in::qpc;
            let ring = Ring {
                valid: Field::new(0x860, 1),
                number: Field::new(0x840, 32),
                offset: Field::new(0x800, 64),
                log_page: qpc::log_page_size.within(context),
                page_offset: qpc::page_offset.within(context),
                list: create_qp_in::pas,
            };
            let record = Record {
                valid: Field::new(0x683, 1).within(context),
                number: Field::new(0x720, 32).within(context),
                address: qpc::dbr_addr.within(context),
            };
            Some((ring, record))
        }
        0x904 => Some(work_queue(sqc::wq.within(create_sq_in::ctx))),
        // A queue that takes its requests from a pool has none of its own.
        0x908 if input.is(rqc::mem_rq_type.within(create_rq_in::ctx)) => None,
        0x908 => Some(work_queue(rqc::wq.within(create_rq_in::ctx))),
        0x90c => Some(work_queue(rmpc::wq.within(create_rmp_in::ctx))),
        _ => None,
    }
}

/// The command with lists of pages instead of such memory, and the memory that it uses; none if it names no such memory.
///
/// # Errors
/// `BadResource` for memory that does not exist or belongs to another user context, `BadParameter` for a place outside.
pub(crate) fn resolved(device: &Device, opcode: u16, input: &[u8]) -> Result<Resolved, Status> {
    if opcode == 0x200 {
        return resolved_key(device, input);
    }
    let Some((ring, record)) = fields(opcode, input) else { return Ok(None) };
    if !input.is(ring.valid) && !input.is(record.valid) {
        return Ok(None);
    }
    let (mut command, mut uses) = (input.to_vec(), Vec::new());
    if input.is(ring.valid) {
        let memory = find(device, input.num(ring.number), &mut uses)?;
        let (pages, first) = memory.from(input.wide(ring.offset)).ok_or(Status::BadParameter)?;
        let units = first / 64;
        if first % 64 != 0 || units >> ring.page_offset.width != 0 {
            return Err(Status::BadParameter);
        }
        command.set(ring.log_page, 0_u32);
        command.set(ring.page_offset, units);
        put_list(&mut command, ring.list, &pages);
    }
    if input.is(record.valid) {
        let memory = find(device, input.num(record.number), &mut uses)?;
        let (address, left) = memory.address(input.wide(record.address)).map_err(|_| Status::BadParameter)?;
        if left < 8 {
            return Err(Status::BadParameter);
        }
        command.set(record.address, address);
    }
    Ok(Some((command, uses)))
}

/// A memory key of pages. The kernel marks all keys that are no lists of keys.
fn resolved_key(device: &Device, input: &[u8]) -> Result<Resolved, Status> {
    let (valid, number, offset) = (Field::new(0x61, 1), Field::new(0x320, 32), Field::new(0x340, 64));
    let octwords = input.num(create_mkey_in::translations_octword_actual_size);
    if !input.is(valid) || octwords == 0 {
        return Ok(None);
    }
    let mut uses = Vec::new();
    let memory = find(device, input.num(number), &mut uses)?;
    let shift = input.num(mkc::log_page_size.within(create_mkey_in::memory_key_mkey_entry));
    let (pages, first) = memory.from(input.wide(offset)).ok_or(Status::BadParameter)?;
    if first != 0 || !(12..=31).contains(&shift) {
        return Err(Status::BadParameter);
    }
    let pages: Vec<u64> = pages
        .into_iter()
        .step_by(1 << (shift - 12))
        .map(|page| page | 0b11)
        .take(octwords as usize * 2)
        .collect();
    let mut command = input.to_vec();
    put_list(&mut command, create_mkey_in::klm_pas_mtt, &pages);
    command.resize(command.len().max(create_mkey_in::klm_pas_mtt.offset / 8 + octwords as usize * 16), 0);
    Ok(Some((command, uses)))
}

fn put_list(command: &mut Vec<u8>, at: Field, pages: &[u64]) {
    command.truncate(at.offset / 8);
    command.resize(at.offset / 8, 0);
    command.extend(pages.iter().flat_map(|page| page.to_be_bytes()));
}

fn find<'d>(device: &'d Device, number: u32, uses: &mut Vec<Handle>) -> Result<&'d Pages, Status> {
    let handle = Handle(Kind::Umem, number.into());
    device.objects.expect(handle)?;
    if !uses.contains(&handle) {
        uses.push(handle);
    }
    device.umems.get(&number).ok_or(Status::BadResource)
}

/// In bytes of a page, unlike the beginnings of queues.
pub(crate) fn pages(input: &[u8]) -> Result<Pages, Status> {
    use crate::ifc::command::{create_umem_in, umem};
    let at = create_umem_in::umem;
    let field = |field: Field| field.within(at);
    let (log_page, offset) = (input.num(field(umem::log_page_size)), input.wide(field(umem::page_offset)));
    let count = usize::try_from(input.wide(field(umem::num_of_mtt))).map_err(|_| Status::BadParameter)?;
    let list = input.rest(field(umem::mtt));
    let len = count.checked_mul(8).ok_or(Status::BadParameter)?;
    Pages::from_offset(list.get(..len).ok_or(Status::BadInputLength)?, log_page, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of two pages whose beginning is in the first, as number 1.
    fn device() -> Device {
        let mut device = Device::new(crate::command::Capabilities::default());
        let list: Vec<u8> = [0x8003_u64, 0x2003].iter().flat_map(|page| page.to_be_bytes()).collect();
        let number = device.objects.create(Kind::Umem, Vec::new()).unwrap();
        assert_eq!(number, 1);
        device.umems.insert(number, Pages::from_offset(&list, 0, 0x800).unwrap());
        device
    }

    fn completion_queue() -> Vec<u8> {
        let (ring, record) = fields(0x400, &[]).unwrap();
        let mut input = vec![0; 272];
        input.set(ring.valid, 1_u32);
        input.set(ring.number, 1_u32);
        input.set(ring.offset, 0x800_u32);
        input.set(record.valid, 1_u32);
        input.set(record.number, 1_u32);
        input.set(record.address, 0x40_u32);
        input
    }

    #[test]
    fn a_queue_in_such_memory_becomes_one_with_pages() {
        let device = device();
        let (command, uses) = resolved(&device, 0x400, &completion_queue()).unwrap().unwrap();
        assert_eq!(uses, [Handle(Kind::Umem, 1)]);
        assert_eq!(command[272..], 0x2000_u64.to_be_bytes());
        assert_eq!(command.wide(cqc::dbr_addr.within(create_cq_in::cq_context)), 0x8840);
        assert_eq!(resolved(&device, 0x400, &[0; 272]), Ok(None));
        assert_eq!(resolved(&device, 0x800, &completion_queue()), Ok(None));
    }

    #[test]
    fn places_outside_and_memory_of_others_are_refused() {
        let mut device = device();
        let (ring, record) = fields(0x400, &[]).unwrap();
        for (field, value, status) in [
            (ring.number, 2_u32, Status::BadResource),
            (record.number, 2, Status::BadResource),
            (ring.offset, 0x1800, Status::BadParameter),
            (ring.offset, 0x810, Status::BadParameter),
            (record.address, 0x1800, Status::BadParameter),
        ] {
            let mut input = completion_queue();
            input.set(field, value);
            assert_eq!(resolved(&device, 0x400, &input), Err(status), "{field:?} {value:#x}");
        }
        let other = device.objects.create(Kind::Uctx, Vec::new()).unwrap() as u16;
        let owner = device.objects.create(Kind::Uctx, Vec::new()).unwrap() as u16;
        device.objects.act_for(owner).unwrap();
        let number = device.objects.create(Kind::Umem, Vec::new()).unwrap();
        device.objects.act_for(other).unwrap();
        let mut input = completion_queue();
        input.set(ring.number, number);
        assert_eq!(resolved(&device, 0x400, &input), Err(Status::BadResource));
    }
}
