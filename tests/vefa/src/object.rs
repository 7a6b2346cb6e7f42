//! Pages of doorbells, and addresses of peers.

use std::collections::BTreeMap;

use crate::admin::Status;
use crate::device::{Device, PAGE};
use crate::fabric::Gid;

/// The queue to which a doorbell belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doorbell {
    /// The handle of a queue pair.
    Send(u32),
    Receive(u32),
    Cq(u32),
}

/// A page of doorbells, which one process can write to.
#[derive(Debug, Default)]
pub(crate) struct Uar {
    doorbells: BTreeMap<u16, Doorbell>,
}

impl Uar {
    pub(crate) fn is_in_use(&self) -> bool {
        !self.doorbells.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.doorbells.len()
    }
}

/// An address to which a domain can send, and how often it was requested.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) pd: u16,
    pub(crate) gid: Gid,
    pub(crate) users: u32,
}

impl Device {
    /// A place for a doorbell in a page, as an offset in the BAR.
    pub(crate) fn add_doorbell(&mut self, uar: u16, doorbell: Doorbell) -> Result<u32, Status> {
        let page = self.uars.get_mut(uar.into()).ok_or(Status::Illegal)?;
        let free = (0..PAGE as u16).step_by(4).find(|offset| !page.doorbells.contains_key(offset));
        let offset = free.ok_or(Status::Exhausted)?;
        page.doorbells.insert(offset, doorbell);
        Ok(u32::from(uar) * PAGE as u32 + u32::from(offset))
    }

    pub(crate) fn remove_doorbells(&mut self, is_of: impl Fn(Doorbell) -> bool) {
        self.uars.values_mut().for_each(|uar| uar.doorbells.retain(|_, doorbell| !is_of(*doorbell)));
    }

    /// A doorbell was rung.
    pub(crate) fn ring(&mut self, offset: u64, value: u32) {
        let page = self.uars.get((offset / PAGE).try_into().unwrap_or(u32::MAX));
        match page.and_then(|page| page.doorbells.get(&((offset % PAGE) as u16))).copied() {
            Some(Doorbell::Send(handle)) => self.ring_send(handle, value as u16),
            Some(Doorbell::Receive(handle)) => self.ring_receive(handle, value as u16),
            Some(Doorbell::Cq(number)) => self.ring_cq(number, value),
            None => self.complain(format!("a doorbell at {offset:#x}, which is nobody's")),
        }
    }

    /// The number of a peer's address in a domain, as in completions.
    pub(crate) fn address_of(&self, pd: u16, gid: Gid) -> Option<u16> {
        self.addresses
            .iter()
            .find(|(_, address)| address.pd == pd && address.gid == gid)
            .map(|(number, _)| number as u16)
    }
}
