//! Commands of every device: devices, queues, memory.

use vpci::bytes::{Bytes as _, BytesMut as _};

use super::{Command, Status, code, local_key, remote_key};
use crate::device::Device;
use crate::hwc;
use crate::queue::{Eq, event};
use crate::region::{Pages, Region};

/// The kinds of the kernel's devices.
const ETHERNET: u16 = 2;
const RDMA: u16 = 3;

/// The kind of a queue that is an event queue (`enum gdma_queue_type`).
const EVENTS: u32 = 4;
const DOORBELL_PAGES: u32 = 27;

// The kinds of regions (`enum gdma_mr_type`).
const PHYSICAL: u32 = 1;
const VIRTUAL: u32 = 2;
const ZERO_BASED: u32 = 4;

/// The bit of a domain that may have a region of all memory.
const ALLOWS_PHYSICAL: u32 = 1;

impl Device {
    pub(super) fn execute_base(&mut self, command: &Command, out: &mut [u8]) -> Result<(), Status> {
        match command.code {
            code::VERIFY_VERSION => out.put_u64(0, 1),
            code::QUERY_RESOURCES => {
                // Send and receive queues, completion and event queues, pages of doorbells, keys, and interrupts.
                let limits = &self.limits;
                let values = [0, 1024, 1024, limits.max_cq, limits.max_eq, 512, limits.max_mr, 0, 0, 32];
                values.iter().enumerate().for_each(|(i, value)| out.put_u32(i * 4, *value));
            }
            code::LIST_DEVICES => {
                out.put_u32(0, 2);
                out.put_u16(8, ETHERNET);
                out.put_u16(12, RDMA);
            }
            code::REGISTER_DEVICE => {
                let pd = self.pds.insert(u32::MAX, ()).ok_or(Status::EXHAUSTED)?;
                let all = Region { pd: pd.into(), base: 0, pages: None, access: u32::MAX };
                let key = self.regions.insert(u32::MAX, all).ok_or(Status::EXHAUSTED)?;
                out.put_u32(0, pd);
                out.put_u32(4, local_key(key));
                out.put_u32(8, hwc::DOORBELL);
            }
            code::DEREGISTER_DEVICE => match command.device() {
                ETHERNET => self.net.clear(),
                RDMA => self.rdma.clear(),
                _ => return Err(Status::INVALID),
            },
            code::TEST_EVENT => {
                let eq = command.u32(40);
                self.eqs.get(eq).ok_or(Status::INVALID)?;
                self.post_event(eq, event::TEST, 0);
            }
            code::CREATE_QUEUE => out.put_u32(0, self.create_eq(command)?),
            code::DISABLE_QUEUE if command.u32(40) == EVENTS => {
                self.eqs.remove(command.u32(44)).ok_or(Status::INVALID)?;
            }
            code::ALLOCATE_RANGE if command.u32(40) == DOORBELL_PAGES && command.u32(44) == 1 => {
                out.put_u32(0, self.doorbells.insert(u32::MAX, ()).ok_or(Status::EXHAUSTED)?);
            }
            code::DESTROY_RANGE if command.u32(40) == DOORBELL_PAGES => {
                self.doorbells.remove(command.u32(48)).ok_or(Status::INVALID)?;
            }
            code::CREATE_DMA_REGION => return self.create_list(command, out),
            code::ADD_PAGES => {
                let list = self.lists.get_mut(command.u32(40)).ok_or(Status::INVALID)?;
                return add_pages(list, command, 48, 56);
            }
            code::DESTROY_DMA_REGION => {
                self.lists.remove(command.u32(40)).ok_or(Status::INVALID)?;
            }
            code::CREATE_PD => {
                let _ = command.u32(40) & ALLOWS_PHYSICAL;
                let pd = self.pds.insert(self.limits.max_pd, ()).ok_or(Status::EXHAUSTED)?;
                out.put_u64(0, pd.into());
                out.put_u32(8, pd);
            }
            code::DESTROY_PD => {
                let pd = command.u64(40);
                if self.regions.values().any(|region| region.pd == pd) || self.rdma.uses_pd(pd) {
                    return Err(Status::INVALID);
                }
                self.pds.remove(pd as u32).ok_or(Status::INVALID)?;
            }
            code::CREATE_MR => return self.create_region(command, out),
            code::DESTROY_MR => {
                self.regions.remove(command.u32(40)).ok_or(Status::INVALID)?;
            }
            // Device memory, the moderation of interrupts, and what else is known to no driver here.
            _ => return Err(Status::UNSUPPORTED),
        }
        Ok(())
    }

    fn create_eq(&mut self, command: &Command) -> Result<u32, Status> {
        if command.u32(40) != EVENTS {
            return Err(Status::UNSUPPORTED);
        }
        let (doorbell, bytes, vector) = (command.u32(52), command.u32(68), command.u32(76));
        let length = self.list(command.u64(56))?.length;
        if !bytes.is_power_of_two() || length < bytes.into() || self.eqs.len() >= self.limits.max_eq as usize
        {
            return Err(Status::INVALID);
        }
        let eq = Eq::new(self.take_list(command.u64(56))?, bytes, vector, doorbell);
        self.eqs.insert(u32::MAX, eq).ok_or(Status::EXHAUSTED)
    }

    fn create_list(&mut self, command: &Command, out: &mut [u8]) -> Result<(), Status> {
        let mut list = Pages {
            shift: command.u32(52).saturating_add(12),
            offset: command.u32(48).into(),
            length: command.u64(40),
            count: command.u32(56).into(),
            list: Vec::new(),
        };
        if !list.is_possible() {
            return Err(Status::INVALID);
        }
        let result = add_pages(&mut list, command, 60, 64);
        if result.is_err_and(|status| status != Status::MORE) {
            return result;
        }
        out.put_u64(0, self.lists.insert(u32::MAX, list).ok_or(Status::EXHAUSTED)?.into());
        result
    }

    /// A complete list of pages.
    pub(crate) fn list(&self, handle: u64) -> Result<&Pages, Status> {
        let number = u32::try_from(handle).map_err(|_| Status::INVALID)?;
        self.lists.get(number).filter(|list| list.is_complete()).ok_or(Status::INVALID)
    }

    /// Takes a complete list of pages for an object, which has it from now on. Whoever takes it has checked everything else before: if a
    /// command fails, the driver destroys the list.
    pub(crate) fn take_list(&mut self, handle: u64) -> Result<Pages, Status> {
        self.list(handle)?;
        self.lists.remove(handle as u32).ok_or(Status::INVALID)
    }

    fn create_region(&mut self, command: &Command, out: &mut [u8]) -> Result<(), Status> {
        let (pd, kind, list) = (command.u64(40), command.u32(48), command.u64(56));
        if !u32::try_from(pd).is_ok_and(|pd| self.pds.has(pd)) {
            return Err(Status::INVALID);
        }
        let (base, access) = match kind {
            PHYSICAL => (0, u32::MAX),
            VIRTUAL => (command.u64(64), command.u32(72)),
            ZERO_BASED => (0, command.u32(64)),
            _ => return Err(Status::UNSUPPORTED),
        };
        if self.regions.len() >= self.limits.max_mr as usize {
            return Err(Status::EXHAUSTED);
        }
        let pages = if kind == PHYSICAL { None } else { Some(self.take_list(list)?) };
        let region = Region { pd, base, pages, access };
        let number = self.regions.insert(self.limits.max_mr, region).ok_or(Status::EXHAUSTED)?;
        out.put_u64(0, number.into());
        out.put_u32(8, local_key(number));
        out.put_u32(12, remote_key(number));
        Ok(())
    }
}

/// Adds the pages of a message: their number, and their addresses.
fn add_pages(list: &mut Pages, command: &Command, count: usize, first: usize) -> Result<(), Status> {
    let count = command.u32(count) as usize;
    let words = command.bytes.get(first..).unwrap_or_default();
    if count == 0 || words.len() / 8 < count || list.list.len() as u64 + count as u64 > list.count {
        return Err(Status::INVALID);
    }
    list.list.extend((0..count).map(|i| words.u64(i * 8)));
    if list.is_complete() { Ok(()) } else { Err(Status::MORE) }
}
