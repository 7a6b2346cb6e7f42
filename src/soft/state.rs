//! The state behind the lock of a soft device: open files, and the objects of the hardware.

use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;
use uverbs_abi::types::event_type;

use super::addresses::AddressHandle;
use super::completion_counters::CompletionCounter;
use super::counters::Counters;
use super::events::{About, EventFile, Events};
use super::flows::Flow;
use super::matcher::Rules;
use super::memory_regions::MemoryRegion;
use super::profile::Profile;
use super::queue_pairs::Qp;
use super::queues::Cq;
use super::resources::Resources;
use super::shared_receives::Srq;
use super::steering;
use super::table::{Kind, Table};
use super::windows::Window;
use super::wire::Wire;
use super::xrc::{Opening, Xrcd};
use crate::kernel::mapping::Mapping;

/// One open file, which the kernel calls a ufile.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) table: Table,
    /// GET_CONTEXT has succeeded.
    pub(super) context: bool,
    /// The event file for objects that name none: the first one that was created.
    pub(super) default_events: Option<u32>,
    /// Rings that are not mapped yet, by offset.
    pub(super) unmapped: BTreeMap<u64, Mapping>,
    /// The memory that may be registered, if it is limited; see `RawConnection::memory`.
    pub(super) only_memory: Option<Vec<Mapping>>,
}

/// Number of frames and bytes that passed the port. Frames that are looped back count as received, too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frames {
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
}

/// A protection domain.
#[derive(Debug)]
pub(super) struct Pd {
    /// Number of objects that were created in it.
    pub(super) uses: u32,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) profile: Profile,
    /// The hardware was removed.
    pub(super) gone: bool,
    /// The hardware will be removed when the last file is closed.
    pub(super) leaving: bool,
    pub(super) files: BTreeMap<u32, File>,
    pub(super) events: BTreeMap<u32, EventFile>,
    pub(super) pds: BTreeMap<u32, Pd>,
    pub(super) cqs: BTreeMap<u32, Cq>,
    pub(super) qps: BTreeMap<u32, Qp>,
    pub(super) srqs: BTreeMap<u32, Srq>,
    pub(super) xrcds: BTreeMap<u32, Xrcd>,
    /// Target queue pairs that are open, by numbers that no queue pair has.
    pub(super) openings: BTreeMap<u32, Opening>,
    pub(super) mrs: BTreeMap<u32, MemoryRegion>,
    pub(super) mws: BTreeMap<u32, Window>,
    pub(super) ahs: BTreeMap<u32, AddressHandle>,
    pub(super) flows: BTreeMap<u32, Flow>,
    pub(super) counters: BTreeMap<u32, Counters>,
    pub(super) completion_counters: BTreeMap<u32, CompletionCounter>,
    pub(super) steering: steering::Table,
    /// The queue pairs that receive a frame, with its tag for each. Empty between frames.
    pub(super) receivers: Vec<(u32, Option<u32>)>,
    pub(super) frames: Frames,
    pub(super) rules: Rules,
    /// Queue pairs whose oldest request waits for the receiver.
    pub(super) waiting: BTreeSet<u32>,
    /// The wire, if the device has an address.
    pub(super) wire: Option<Wire>,
    /// Number of hardware counters in use.
    pub(super) bound: u32,
    /// Increases with every object, so that numbers are not used again too soon.
    clock: u32,
    next_offset: u64,
}

impl State {
    pub(super) fn new(profile: Profile) -> Self {
        let known = if profile.wide_rules { Rules::all() } else { Rules::default() };
        let rules = Rules { sniffer: profile.sniffers, plug: profile.hears_itself, ..known };
        Self {
            profile,
            gone: false,
            leaving: false,
            files: BTreeMap::new(),
            events: BTreeMap::new(),
            pds: BTreeMap::new(),
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            srqs: BTreeMap::new(),
            xrcds: BTreeMap::new(),
            openings: BTreeMap::new(),
            mrs: BTreeMap::new(),
            mws: BTreeMap::new(),
            ahs: BTreeMap::new(),
            waiting: BTreeSet::new(),
            flows: BTreeMap::new(),
            counters: BTreeMap::new(),
            completion_counters: BTreeMap::new(),
            steering: steering::Table::new(rules),
            receivers: Vec::new(),
            frames: Frames::default(),
            rules,
            wire: None,
            bound: 0,
            clock: 0,
            next_offset: 0,
        }
    }

    /// A number of 24 bits that none of these objects has: numbers of queue pairs and memory keys have that size.
    pub(super) fn number<T>(&mut self, of: impl Fn(&Self) -> &BTreeMap<u32, T>) -> u32 {
        loop {
            self.clock = (self.clock + 1) & 0xff_ffff;
            // Small numbers are reserved for special queue pairs.
            if self.clock > 0x40 && !of(self).contains_key(&self.clock) {
                return self.clock;
            }
        }
    }

    pub(super) fn open(&mut self) -> u32 {
        let file = self.files.last_key_value().map_or(0, |(last, _)| last + 1);
        self.files.insert(file, File::default());
        file
    }

    /// Closes a file: destroys everything, newest first, repeatedly until nothing is left (`uverbs_destroy_ufile_hw`, rdma_core.c, Linux
    /// 6.1).
    pub(super) fn close(&mut self, file: u32) {
        self.destroy_all(file);
        self.files.remove(&file);
        self.events.retain(|_, events| events.file != file);
        if self.leaving && self.files.is_empty() {
            self.gone = true;
        }
    }

    fn destroy_all(&mut self, file: u32) {
        let Some(table) = self.files.get(&file).map(|file| &file.table) else { return };
        self.qps.values_mut().filter(|qp| qp.file == file).for_each(|qp| qp.groups.clear());
        let mut left: Vec<_> = table.newest_first().map(|(_, entry)| entry).collect();
        loop {
            let before = left.len();
            left.retain(|entry| self.destroy(entry.kind, entry.id).is_err());
            if left.is_empty() || left.len() == before {
                return;
            }
        }
    }

    /// Removes the hardware: `ib_uverbs_remove_one` and `uverbs_destroy_ufile_hw`, Linux 6.1.
    pub(super) fn unplug(&mut self) {
        if !self.profile.disassociate && !self.files.is_empty() {
            self.leaving = true;
            return;
        }
        let files: Vec<_> = self.files.keys().copied().collect();
        for file in files {
            self.destroy_all(file);
            if let Some(file) = self.files.get_mut(&file) {
                file.unmapped.clear();
                file.context = false;
            }
        }
        if !self.gone {
            for events in self.events.values_mut() {
                match events.kind {
                    Events::Asynchronous => events.asynchronous(About::Device, event_type::DEVICE_FATAL, 0),
                    Events::Completion => events.end(),
                }
            }
        }
        self.gone = true;
    }

    /// Destroys an object of the hardware; EBUSY while another one uses it. Success if it does not exist.
    pub(super) fn destroy(&mut self, kind: Kind, id: u32) -> Result<(), Errno> {
        match kind {
            Kind::Pd => {
                busy(self.pds.get(&id).map_or(0, |pd| pd.uses))?;
                self.pds.remove(&id);
            }
            Kind::Cq => {
                busy(self.cqs.get(&id).map_or(0, |cq| cq.uses))?;
                if let Some(cq) = self.cqs.remove(&id) {
                    self.forget(cq.file, &[cq.offset]);
                    self.take_back(cq.channel, About::Cq(id));
                    self.take_back(cq.events, About::Cq(id));
                }
            }
            Kind::Qp => {
                if self.close_target(id)? {
                    return Ok(());
                }
                busy(self.qps.get(&id).map_or(0, |qp| qp.uses + u32::from(!qp.groups.is_empty())))?;
                if let Some(qp) = self.qps.remove(&id) {
                    self.detach(&qp.counters);
                    self.unbind_all(id);
                    self.forget(qp.file, &qp.offsets);
                    self.take_back(qp.events, About::Qp(id));
                    self.release(qp.pd);
                    if let Some(srq) = qp.srq.and_then(|srq| self.srqs.get_mut(&srq)) {
                        srq.uses = srq.uses.saturating_sub(1);
                    }
                    self.release_cq(qp.send_cq);
                    self.release_cq(qp.recv_cq);
                }
            }
            Kind::Srq => {
                busy(self.srqs.get(&id).map_or(0, |srq| srq.uses))?;
                if let Some(srq) = self.srqs.remove(&id) {
                    self.forget(srq.file, &[srq.offset]);
                    self.take_back(srq.events, About::Srq(id));
                    self.release(srq.pd);
                    if let Some(xrc) = srq.xrc {
                        self.release_cq(xrc.cq);
                        self.release_xrcd(xrc.xrcd);
                    }
                }
            }
            Kind::Xrcd => {
                busy(self.xrcds.get(&id).map_or(0, |xrcd| xrcd.uses))?;
                self.xrcds.remove(&id);
            }
            Kind::Mr => {
                if self.has_window(id) {
                    return Err(Errno::EINVAL);
                }
                if let Some(mr) = self.mrs.remove(&id) {
                    self.release(mr.pd);
                }
            }
            Kind::Mw => {
                if let Some(mw) = self.mws.remove(&id) {
                    self.release(mw.pd);
                }
            }
            Kind::Ah => {
                if let Some(ah) = self.ahs.remove(&id) {
                    self.release(ah.pd);
                }
            }
            Kind::Flow => self.destroy_flow(id),
            Kind::Counters => {
                busy(self.counters.get(&id).map_or(0, |counters| counters.uses))?;
                if self.counters.remove(&id).is_some_and(|counters| counters.is_bound()) {
                    self.bound = self.bound.saturating_sub(1);
                }
            }
            Kind::CompletionCounter => {
                busy(self.completion_counters.get(&id).map_or(0, |counter| counter.uses))?;
                self.completion_counters.remove(&id);
            }
        }
        Ok(())
    }

    /// One object of this protection domain was destroyed.
    pub(super) fn release(&mut self, pd: u32) {
        if let Some(pd) = self.pds.get_mut(&pd) {
            pd.uses = pd.uses.saturating_sub(1);
        }
    }

    /// An object that completes in this queue was destroyed.
    fn release_cq(&mut self, cq: u32) {
        if let Some(cq) = self.cqs.get_mut(&cq) {
            cq.uses = cq.uses.saturating_sub(1);
        }
    }

    /// Makes a ring mappable, and returns its offset.
    pub(super) fn offer(&mut self, file: u32, map: Mapping) -> u64 {
        let offset = self.next_offset;
        self.next_offset += map.len() as u64;
        if let Some(file) = self.files.get_mut(&file) {
            file.unmapped.insert(offset, map);
        }
        offset
    }

    /// Rings that were never mapped are discarded with their queue.
    pub(super) fn forget(&mut self, file: u32, offsets: &[u64]) {
        if let Some(file) = self.files.get_mut(&file) {
            offsets.iter().for_each(|offset| drop(file.unmapped.remove(offset)));
        }
    }

    /// Maps a ring, once: `ib_uverbs_mmap` and `rxe_mmap`, Linux 6.1.
    pub(super) fn map(&mut self, file: u32, offset: u64, len: usize) -> Result<Mapping, Errno> {
        if self.gone {
            return Err(Errno::EIO);
        }
        let unmapped =
            &mut self.files.get_mut(&file).filter(|file| file.context).ok_or(Errno::EINVAL)?.unmapped;
        match unmapped.get(&offset) {
            Some(map) if len > 0 && len <= map.len() => unmapped.remove(&offset).ok_or(Errno::EINVAL),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn add_events(&mut self, events: EventFile) -> u32 {
        let id = self.number(|state| &state.events);
        self.events.insert(id, events);
        id
    }

    pub(super) fn drop_events(&mut self, id: u32) {
        self.events.remove(&id);
    }

    /// Removes the events of an object that is destroyed.
    pub(super) fn take_back(&self, events: Option<u32>, about: About) {
        if let Some(events) = events.and_then(|events| self.events.get(&events)) {
            events.take_back(about);
        }
    }

    /// The event file of this open file for a descriptor.
    pub(super) fn find_events(&self, file: u32, kind: Events, number: i32) -> Option<u32> {
        let mut mine = self.events.iter().filter(|(_, events)| events.file == file && events.kind == kind);
        mine.find(|(_, events)| events.is(number)).map(|(id, _)| *id)
    }

    pub(super) fn resources(&mut self) -> Resources {
        self.events.retain(|_, events| events.is_open());
        let events = |kind| self.events.values().filter(|events| events.kind == kind).count();
        Resources {
            contexts: self.files.values().filter(|file| file.context).count(),
            protection_domains: self.pds.len(),
            completion_queues: self.cqs.len(),
            queue_pairs: self.qps.len(),
            memory_regions: self.mrs.len(),
            memory_windows: self.mws.len(),
            address_handles: self.ahs.len(),
            shared_receive_queues: self.srqs.len(),
            xrc_domains: self.xrc_domains(),
            flows: self.flows.len(),
            counters: self.counters.len(),
            completion_counters: self.completion_counters.len(),
            hardware_counters: self.bound as usize,
            completion_channels: events(Events::Completion),
            async_files: events(Events::Asynchronous),
        }
    }
}

fn busy(uses: u32) -> Result<(), Errno> {
    if uses == 0 { Ok(()) } else { Err(Errno::EBUSY) }
}
