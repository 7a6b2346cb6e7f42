//! The handles of one open file: one space of numbers for every kind of object.
//!
//! The lowest free number is used first, a number is used again immediately, and the first is 0. A number is reserved before its object
//! exists, and then refers to nothing yet. Source: `xa_alloc` in `idr_add_uobj` and `lookup_get_idr_uobject`, rdma_core.c, Linux 6.1.

use std::collections::BTreeSet;

use nix::errno::Errno;

/// The kinds of object that have handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pd,
    Cq,
    Qp,
    Srq,
    Mr,
    Mw,
    Ah,
    Xrcd,
    Flow,
    Counters,
    CompletionCounter,
}

/// The object of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// Number of the object in the hardware. After the removal of the device, the object no longer exists, although the handle does.
    pub(super) id: u32,
    /// Increases with every object: later is newer.
    age: u64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Vec<Option<Entry>>,
    /// Numbers below `slots.len()` that are free. An empty slot that is not listed here is reserved but not filled.
    free: BTreeSet<u32>,
    clock: u64,
}

impl Table {
    /// Reserves a number for an object that is about to be created.
    pub(super) fn reserve(&mut self) -> Result<u32, Errno> {
        if let Some(handle) = self.free.pop_first() {
            return Ok(handle);
        }
        let handle = u32::try_from(self.slots.len()).map_err(|_| Errno::EBUSY)?;
        self.slots.push(None);
        Ok(handle)
    }

    /// Makes a reserved number refer to an object.
    pub(super) fn fill(&mut self, handle: u32, kind: Kind, id: u32) {
        self.clock += 1;
        let entry = Entry { kind, id, age: self.clock };
        if let Some(slot) = self.slots.get_mut(handle as usize) {
            *slot = Some(entry);
        }
    }

    /// Frees a number.
    pub(super) fn release(&mut self, handle: u32) {
        if let Some(slot) = self.slots.get_mut(handle as usize) {
            *slot = None;
            self.free.insert(handle);
        }
    }

    /// The object of this kind with this handle, or the errno of `rdma_lookup_get_uobject`.
    pub(super) fn get(&self, handle: u64, kind: Kind) -> Result<Entry, Errno> {
        if (handle as i64) < 0 {
            return Err(Errno::EINVAL);
        }
        let index = usize::try_from(handle).map_err(|_| Errno::ENOENT)?;
        let entry = self.slots.get(index).copied().flatten().ok_or(Errno::ENOENT)?;
        if entry.kind == kind { Ok(entry) } else { Err(Errno::EINVAL) }
    }

    /// The handles of all objects of a kind, newest first.
    pub(super) fn list(&self, kind: Kind) -> Vec<u32> {
        self.newest_first().filter(|(_, entry)| entry.kind == kind).map(|(handle, _)| handle).collect()
    }

    /// Every object, newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = (u32, Entry)> {
        let mut all: Vec<_> =
            (0..).zip(&self.slots).filter_map(|(handle, slot)| Some((handle, (*slot)?))).collect();
        all.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.age));
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_comes_first() {
        let mut table = Table::default();
        for expected in 0..4 {
            let handle = table.reserve().unwrap();
            assert_eq!(handle, expected);
            table.fill(handle, Kind::Pd, handle);
        }
        table.release(2);
        table.release(1);
        assert_eq!((table.reserve(), table.reserve(), table.reserve()), (Ok(1), Ok(2), Ok(4)));
    }

    #[test]
    fn a_taken_number_refers_to_nothing() {
        let mut table = Table::default();
        let handle = table.reserve().unwrap();
        assert_eq!(table.get(0, Kind::Cq), Err(Errno::ENOENT));
        table.fill(handle, Kind::Cq, 7);
        assert_eq!(table.get(0, Kind::Cq).map(|entry| entry.id), Ok(7));
        assert_eq!(table.get(0, Kind::Qp), Err(Errno::EINVAL));
        assert_eq!(table.get(1 << 32, Kind::Cq), Err(Errno::ENOENT));
        assert_eq!(table.get(1 << 63, Kind::Cq), Err(Errno::EINVAL));
    }

    #[test]
    fn objects_are_listed_newest_first() {
        let mut table = Table::default();
        for kind in [Kind::Pd, Kind::Cq, Kind::Pd] {
            let handle = table.reserve().unwrap();
            table.fill(handle, kind, 0);
        }
        assert_eq!(table.list(Kind::Pd), [2, 0]);
        table.release(0);
        let handle = table.reserve().unwrap();
        table.fill(handle, Kind::Pd, 0);
        assert_eq!(table.list(Kind::Pd), [0, 2]);
    }
}
