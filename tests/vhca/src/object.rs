//! The existing objects and their dependencies: an object in use cannot be destroyed, and one that does not exist cannot be used.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use crate::command::Status;

/// The end of the numbers of counter sets, which have 8 bits in queues. There is no set 0.
pub(crate) const COUNTER_SETS: u64 = 1 << 8;

/// The kinds of objects that commands create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Pd,
    Uar,
    TransportDomain,
    Xrcd,
    Mkey,
    Eq,
    Cq,
    Qp,
    Sq,
    Rq,
    Srq,
    XrcSrq,
    Rmp,
    Tis,
    Tir,
    Rqt,
    FlowTable,
    FlowGroup,
    FlowEntry,
    Counter,
    CounterSet,
    /// An entry of the rate table.
    Rate,
    /// A number that no queue pair gets.
    ReservedQpn,
    /// Memory that such commands name.
    Umem,
    /// A user context, for commands that a program writes itself.
    Uctx,
}

impl Kind {
    /// Kinds that share their numbers: a doorbell names a send queue or a queue pair, and a queue pair names a shared queue of any kind.
    fn space(self) -> Self {
        match self {
            Self::Sq | Self::Rq | Self::ReservedQpn => Self::Qp,
            Self::XrcSrq | Self::Rmp => Self::Srq,
            kind => kind,
        }
    }

    /// What a command creates in memory that a program names.
    pub(crate) fn created_by(opcode: u16) -> Option<Self> {
        Some(match opcode {
            0x200 => Self::Mkey,
            0x400 => Self::Cq,
            0x500 => Self::Qp,
            0x904 => Self::Sq,
            0x908 => Self::Rq,
            0x90c => Self::Rmp,
            _ => return None,
        })
    }

    /// The first number. Doorbell pages begin after the initialisation segment and the interrupt table.
    fn first(self) -> u64 {
        match self.space() {
            Self::Uar => 0x10,
            // Key 0x100, the first of index 1, ends a list of segments.
            Self::Mkey => 0x10,
            Self::Qp => 0x40,
            _ => 1,
        }
    }

    /// The end of the numbers, above all that are assigned.
    fn end(self) -> u64 {
        match self.space() {
            Self::Eq => 1 << 7,
            Self::CounterSet => COUNTER_SETS,
            Self::Uar => crate::server::BAR_SIZE >> 12,
            Self::Counter => 1 << 20,
            _ => 1 << 16,
        }
    }
}

/// An object by its kind and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(pub(crate) Kind, pub(crate) u64);

impl Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:#x}", self.0, self.1)
    }
}

#[derive(Debug, Default)]
struct Entry {
    uses: Vec<Handle>,
    users: usize,
    /// For the first of a range: the number of further ones.
    more: u64,
    /// The user context in which it was created; zero for the driver's own.
    owner: u16,
}

/// The context number for objects that all contexts may use (`MLX5_SHARED_RESOURCE_UID`), which is treated as no context here.
const SHARED: u16 = 0xffff;

/// All objects, and the objects that they use.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    live: BTreeMap<Handle, Entry>,
    /// For each kind with its own numbers: where the search for a free one begins. All numbers below are taken, but those of shared
    /// receive queues, which are given in turn. Linux 6.1 forgets the queue of a number after the device has freed that number
    /// (`mlx5_cmd_destroy_srq`, mlx5/srq_cmd.c): if another process had got it meanwhile, the kernel would forget its queue.
    lowest: BTreeMap<Kind, u64>,
    /// Maximum number of objects of a kind, if it is lower than the number of numbers.
    limits: BTreeMap<Kind, usize>,
    /// The user context of the command that is being executed; zero for the driver.
    user: u16,
}

impl Objects {
    /// Sets the user context in whose name everything is done from now on; zero is the driver.
    ///
    /// A context may use what it or the driver has created, and destroy what it has created. The driver may do anything.
    ///
    /// # Errors
    /// `BadResource` if the context does not exist.
    pub(crate) fn act_for(&mut self, user: u16) -> Result<(), Status> {
        self.user = 0;
        if user != 0 && user != SHARED {
            self.expect(Handle(Kind::Uctx, user.into()))?;
            self.user = user;
        }
        Ok(())
    }

    /// Whether a user context has created objects that still exist.
    pub(crate) fn is_owner(&self, user: u16) -> bool {
        self.live.values().any(|entry| entry.owner == user)
    }

    /// Creates an object that uses others, with the lowest free number, or the next one if they are given in turn.
    ///
    /// # Errors
    /// `BadResource` if one of them does not exist, `Limit` if there are no more numbers.
    pub(crate) fn create(&mut self, kind: Kind, uses: Vec<Handle>) -> Result<u32, Status> {
        self.create_range(kind, 1, uses)
    }

    /// As [`create`](Self::create), with `count` consecutive numbers, the first of which is a multiple of `count`.
    pub(crate) fn create_range(&mut self, kind: Kind, count: u64, uses: Vec<Handle>) -> Result<u32, Status> {
        let too_many = |most: &usize| self.count(kind).saturating_add(count as usize) > *most;
        if self.limits.get(&kind).is_some_and(too_many) {
            return Err(Status::Limit);
        }
        let first = self.free_numbers(kind, count).ok_or(Status::Limit)?;
        self.take(&uses)?;
        if count == 1 {
            self.lowest.insert(kind.space(), first + 1);
        }
        for number in first..first + count {
            self.live.insert(Handle(kind, number), Entry { owner: self.user, ..Entry::default() });
        }
        if let Some(entry) = self.live.get_mut(&Handle(kind, first)) {
            (entry.uses, entry.more) = (uses, count - 1);
        }
        Ok(first as u32)
    }

    fn free_numbers(&self, kind: Kind, count: u64) -> Option<u64> {
        const SHARED: [Kind; 7] =
            [Kind::Qp, Kind::Sq, Kind::Rq, Kind::ReservedQpn, Kind::Srq, Kind::XrcSrq, Kind::Rmp];
        let taken = |number| {
            let mut kinds = SHARED.into_iter().filter(|other| other.space() == kind.space()).chain([kind]);
            kinds.any(|kind| self.live.contains_key(&Handle(kind, number)))
        };
        let lowest = self.lowest.get(&kind.space()).copied().unwrap_or(kind.first());
        let search = |from: u64| {
            let mut first = from.next_multiple_of(count);
            while first + count <= kind.end() {
                match (first..first + count).rev().find(|number| taken(*number)) {
                    None => return Some(first),
                    Some(number) => first = (number + 1).next_multiple_of(count),
                }
            }
            None
        };
        search(lowest).or_else(|| search(kind.first()))
    }

    /// Creates an object whose number the command contains.
    ///
    /// # Errors
    /// `BadResourceState` if it already exists, `BadResource` if something that it uses does not.
    pub(crate) fn create_at(&mut self, handle: Handle, uses: Vec<Handle>) -> Result<(), Status> {
        if self.live.contains_key(&handle) {
            return Err(Status::BadResourceState);
        }
        self.take(&uses)?;
        self.live.insert(handle, Entry { uses, owner: self.user, ..Entry::default() });
        Ok(())
    }

    /// Destroys an object.
    ///
    /// # Errors
    /// `BadResource` if it does not exist, `BadResourceState` while others use it.
    pub(crate) fn destroy(&mut self, handle: Handle) -> Result<(), Status> {
        let entry = self.live.get(&handle).ok_or(Status::BadResource)?;
        if self.user != 0 && entry.owner != self.user {
            return Err(Status::BadResource);
        }
        if entry.users > 0 {
            return Err(Status::BadResourceState);
        }
        let uses = self.live.remove(&handle).map(|entry| entry.uses).unwrap_or_default();
        let space = handle.0.space();
        if space != Kind::Srq {
            self.lowest.entry(space).and_modify(|lowest| *lowest = handle.1.min(*lowest));
        }
        self.release(&uses);
        Ok(())
    }

    /// Destroys an object with all that were created with it, and returns their number.
    ///
    /// # Errors
    /// As [`destroy`](Self::destroy), with none destroyed.
    pub(crate) fn destroy_range(&mut self, Handle(kind, first): Handle) -> Result<u64, Status> {
        let more = self.live.get(&Handle(kind, first)).ok_or(Status::BadResource)?.more;
        let all = first..=first + more;
        if all.clone().any(|number| self.live.get(&Handle(kind, number)).is_some_and(|entry| entry.users > 0))
        {
            return Err(Status::BadResourceState);
        }
        all.into_iter().try_for_each(|number| self.destroy(Handle(kind, number)))?;
        Ok(more + 1)
    }

    /// Removes all objects.
    pub(crate) fn clear(&mut self) {
        self.live.clear();
        self.lowest.clear();
        self.user = 0;
    }

    /// Makes an object use others too.
    ///
    /// # Errors
    /// As [`rebind`](Self::rebind).
    pub(crate) fn also(&mut self, handle: Handle, uses: Vec<Handle>) -> Result<(), Status> {
        self.expect(handle)?;
        self.take(&uses)?;
        self.live.entry(handle).and_modify(|entry| entry.uses.extend(uses));
        Ok(())
    }

    /// Changes what an object uses.
    ///
    /// # Errors
    /// `BadResource` if it, or one of the new objects, does not exist; nothing changes then.
    pub(crate) fn rebind(&mut self, handle: Handle, uses: Vec<Handle>) -> Result<(), Status> {
        self.expect(handle)?;
        self.take(&uses)?;
        let entry = self.live.get_mut(&handle).ok_or(Status::BadResource)?;
        let before = std::mem::replace(&mut entry.uses, uses);
        self.release(&before);
        Ok(())
    }

    /// Makes an object use another one of a kind, or none.
    ///
    /// # Errors
    /// `BadResource` if one of the two does not exist; nothing changes then.
    pub(crate) fn exchange(
        &mut self,
        handle: Handle,
        kind: Kind,
        wanted: Option<Handle>,
    ) -> Result<(), Status> {
        self.expect(handle)?;
        self.take(wanted.as_slice())?;
        let entry = self.live.get_mut(&handle).ok_or(Status::BadResource)?;
        let (before, mut uses): (Vec<_>, Vec<_>) = entry.uses.drain(..).partition(|used| used.0 == kind);
        uses.extend(wanted);
        entry.uses = uses;
        self.release(&before);
        Ok(())
    }

    /// # Errors
    /// `BadResource` if the object does not exist, or if another user context has created it.
    pub(crate) fn expect(&self, handle: Handle) -> Result<(), Status> {
        let may = |entry: &&Entry| self.user == 0 || entry.owner == 0 || entry.owner == self.user;
        self.live.get(&handle).filter(may).map(drop).ok_or(Status::BadResource)
    }

    /// Number of objects of a kind.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.live.range(Handle(kind, 0)..=Handle(kind, u64::MAX)).count()
    }

    /// Sets the maximum number of objects of a kind.
    pub(crate) fn limit(&mut self, kind: Kind, most: usize) {
        self.limits.insert(kind, most);
    }

    /// Every object, with the number of its users and the objects that it uses.
    pub(crate) fn list(&self) -> impl Iterator<Item = (Handle, usize, &[Handle])> {
        self.live.iter().map(|(handle, entry)| (*handle, entry.users, &entry.uses[..]))
    }

    fn take(&mut self, uses: &[Handle]) -> Result<(), Status> {
        uses.iter().try_for_each(|handle| self.expect(*handle))?;
        for handle in uses {
            self.live.entry(*handle).and_modify(|entry| entry.users += 1);
        }
        Ok(())
    }

    fn release(&mut self, uses: &[Handle]) {
        for handle in uses {
            self.live.entry(*handle).and_modify(|entry| entry.users = entry.users.saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays() {
        let mut objects = Objects::default();
        let pd = Handle(Kind::Pd, objects.create(Kind::Pd, vec![]).unwrap().into());
        let mkey = Handle(Kind::Mkey, objects.create(Kind::Mkey, vec![pd]).unwrap().into());
        assert_eq!(objects.destroy(pd), Err(Status::BadResourceState));
        assert_eq!(objects.destroy(mkey), Ok(()));
        assert_eq!(objects.destroy(pd), Ok(()));
        assert_eq!(objects.destroy(pd), Err(Status::BadResource));
        assert_eq!(objects.create(Kind::Mkey, vec![pd]), Err(Status::BadResource));
        assert_eq!(objects.count(Kind::Mkey), 0);
    }

    #[test]
    fn a_change_of_what_is_used_is_all_or_nothing() {
        let mut objects = Objects::default();
        let counters: Vec<_> = (0..2)
            .map(|_| Handle(Kind::Counter, objects.create(Kind::Counter, vec![]).unwrap().into()))
            .collect();
        let user = Handle(Kind::FlowEntry, 7);
        objects.create_at(user, vec![counters[0]]).unwrap();
        assert_eq!(objects.create_at(user, vec![]), Err(Status::BadResourceState));
        let missing = Handle(Kind::Counter, 99);
        assert_eq!(objects.rebind(user, vec![counters[1], missing]), Err(Status::BadResource));
        assert_eq!(objects.destroy(counters[0]), Err(Status::BadResourceState));
        objects.rebind(user, vec![counters[1]]).unwrap();
        assert_eq!(objects.destroy(counters[0]), Ok(()));
        assert_eq!(objects.destroy(counters[1]), Err(Status::BadResourceState));
        assert_eq!(objects.exchange(user, Kind::Counter, Some(missing)), Err(Status::BadResource));
        assert_eq!(objects.destroy(counters[1]), Err(Status::BadResourceState));
        objects.exchange(user, Kind::Pd, None).unwrap();
        assert_eq!(objects.destroy(counters[1]), Err(Status::BadResourceState));
        objects.exchange(user, Kind::Counter, None).unwrap();
        assert_eq!(objects.destroy(counters[1]), Ok(()));
    }

    #[test]
    fn shared_queues_of_all_kinds_have_different_numbers() {
        let mut objects = Objects::default();
        let kinds = [Kind::Srq, Kind::Rmp, Kind::XrcSrq, Kind::Srq];
        assert_eq!(kinds.map(|kind| objects.create(kind, vec![]).unwrap()), [1, 2, 3, 4]);
        objects.destroy(Handle(Kind::Rmp, 2)).unwrap();
        // A number that is free is given again only when all others were.
        assert_eq!(objects.create(Kind::XrcSrq, vec![]), Ok(5));
        for number in 6..Kind::Rmp.end() as u32 {
            assert_eq!(objects.create(Kind::Rmp, vec![]), Ok(number));
        }
        assert_eq!(objects.create(Kind::Srq, vec![]), Ok(2));
        assert_eq!(objects.create(Kind::Srq, vec![]), Err(Status::Limit));
        objects.destroy(Handle(Kind::Rmp, 7)).unwrap();
        assert_eq!(objects.create(Kind::Srq, vec![]), Ok(7));
        assert_eq!(objects.create(Kind::Sq, vec![]), Ok(0x40));
        assert_eq!(objects.create(Kind::Rq, vec![]), Ok(0x41));
    }

    #[test]
    fn what_a_user_context_has_made_is_its_own() {
        let mut objects = Objects::default();
        assert_eq!(objects.act_for(1), Err(Status::BadResource));
        objects.act_for(SHARED).unwrap();
        let shared = Handle(Kind::Eq, objects.create(Kind::Eq, vec![]).unwrap().into());
        let [one, two] = [(); 2].map(|()| objects.create(Kind::Uctx, vec![]).unwrap() as u16);
        objects.act_for(one).unwrap();
        let cq = Handle(Kind::Cq, objects.create(Kind::Cq, vec![shared]).unwrap().into());
        assert_eq!(objects.destroy(shared), Err(Status::BadResource));
        objects.act_for(two).unwrap();
        assert_eq!(objects.expect(cq), Err(Status::BadResource));
        assert_eq!(objects.create(Kind::Sq, vec![cq]), Err(Status::BadResource));
        assert_eq!(objects.destroy(cq), Err(Status::BadResource));
        objects.act_for(0).unwrap();
        assert_eq!(objects.expect(cq), Ok(()));
        assert_eq!((objects.is_owner(one), objects.is_owner(two)), (true, false));
        assert_eq!(objects.destroy(cq), Ok(()));
        assert!(!objects.is_owner(one));
    }

    #[test]
    fn ranges_are_aligned_and_limits_hold() {
        let mut objects = Objects::default();
        assert_eq!(objects.create(Kind::Counter, vec![]), Ok(1));
        assert_eq!(objects.create_range(Kind::Counter, 128, vec![]), Ok(128));
        assert_eq!(objects.create_range(Kind::Counter, 128, vec![]), Ok(256));
        objects.limit(Kind::Counter, 257);
        assert_eq!(objects.create(Kind::Counter, vec![]), Err(Status::Limit));
    }
}
