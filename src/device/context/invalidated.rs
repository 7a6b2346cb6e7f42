//! Keys of memory windows that must not be invalidated.
//!
//! rxe does not survive an invalidate of a key of type 2 that it does not expect (rxe_invalidate_mw, rxe_mw.c, Linux 6.1 to 7.3). A process therefore sends an invalidate for each key only once, and none for a key that one of its own windows has while it is not
//! bound. What other processes do cannot be detected here.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use super::Context;
use crate::driver::{Driver, GuardedKeys};
use crate::kernel::process::Local;

/// A GID of the device that the windows are on.
type Gid = [u8; 16];

/// The low bytes of keys with one index, as a set.
#[derive(Clone, Copy, Debug, Default)]
struct LowBytes([u64; 4]);

impl LowBytes {
    fn bit(key: u32) -> (usize, u64) {
        ((key >> 6 & 3) as usize, 1 << (key & 63))
    }

    fn contains(&self, key: u32) -> bool {
        let (word, bit) = Self::bit(key);
        self.0[word] & bit != 0
    }

    fn add(&mut self, key: u32) {
        let (word, bit) = Self::bit(key);
        self.0[word] |= bit;
    }

    fn remove(&mut self, key: u32) {
        let (word, bit) = Self::bit(key);
        self.0[word] &= !bit;
    }

    fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// A window gets another key with each bind, and the first one again after 256 binds. Of each window, at least this number of invalidated
/// keys are remembered, and at most twice as many; an invalidate for an older key may be sent again.
const KEYS: u32 = 96;

/// The number of windows for which this is remembered. A new window has another index, and the kernel starts again at the first index
/// after half a million windows.
const WINDOWS: usize = if cfg!(miri) { 64 } else { 1 << 16 };

/// The keys for which invalidates were sent, by the device and the index of the window.
#[derive(Clone, Debug, Default)]
struct Sent {
    newer: BTreeMap<(Gid, u32), LowBytes>,
    older: BTreeMap<(Gid, u32), LowBytes>,
}

impl Sent {
    fn contains(&self, to: Gid, key: u32) -> bool {
        let has = |map: &BTreeMap<_, LowBytes>| map.get(&(to, key >> 8)).is_some_and(|low| low.contains(key));
        has(&self.newer) || has(&self.older)
    }

    fn add(&mut self, to: Gid, key: u32) {
        let at = (to, key >> 8);
        if self.newer.len() >= WINDOWS && !self.newer.contains_key(&at) {
            self.older = std::mem::take(&mut self.newer);
        }
        let low = self.newer.entry(at).or_default();
        if low.len() >= KEYS {
            self.older.insert(at, std::mem::take(low));
        }
        low.add(key);
    }

    fn remove(&mut self, to: Gid, key: u32) {
        for map in [&mut self.newer, &mut self.older] {
            if let Some(low) = map.get_mut(&(to, key >> 8)) {
                low.remove(key);
            }
        }
    }
}

/// Whether a completion has reported that the peer invalidated the key of a bind.
#[derive(Debug, Default)]
pub(crate) struct Invalidated(AtomicBool);

impl Invalidated {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A key of a window of this process.
#[derive(Clone, Debug)]
struct Own {
    context: Context,
    /// For a key that the window has after a bind: what is known about that bind. `None` for a key that it has, or may have, while it is
    /// not bound.
    bind: Option<Arc<Invalidated>>,
    /// Whether an invalidate was sent for it.
    is_sent: bool,
}

impl Own {
    /// Whether the window may be unbound with this key, now or when an invalidate arrives.
    fn may_be_free(&self) -> bool {
        self.is_sent || self.bind.as_ref().is_none_or(|bind| bind.is_so())
    }
}

/// The keys of this process's windows with one index, and what is known of each. Usually there is one, and no memory is allocated for it.
#[derive(Debug)]
struct OfWindow {
    first: (u32, Own),
    others: Vec<(u32, Own)>,
}

impl OfWindow {
    fn iter(&self) -> impl Iterator<Item = &(u32, Own)> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut (u32, Own)> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }
}

/// Hashes the index of a window, which the kernel has chosen: a multiplication is sufficient.
#[derive(Debug, Default)]
struct ByIndex(u64);

impl Hasher for ByIndex {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    sent: Sent,
    /// By the index of the window.
    own: HashMap<u32, OfWindow, BuildHasherDefault<ByIndex>>,
}

const FREE: &str =
    "no window is bound with that key: the window of this process has another key, or is not bound";

/// The invalidates that were noted as sent: for each, the open devices whose windows have the key.
pub(crate) type Noted = Vec<(u32, Vec<Context>)>;

const BEFORE: &str = "this process has already sent an invalidate for that key, and rxe does not survive a second one: release the window and bind it again, so that it gets another key";

/// The keys that must not be invalidated. All devices of rxe share them, because a peer can be reached through several.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// Nothing, because the device checks.
    Nothing,
    /// For all devices of the driver.
    Common,
    Own(Arc<Local<Known>>),
}

static COMMON: Local<Known> = Local::new(inherit);

/// A child of `fork` inherits which invalidates were sent, but not the windows, which are its parent's.
fn inherit(known: &Known) -> Known {
    Known { sent: known.sent.clone(), own: HashMap::default() }
}

impl Default for Keys {
    fn default() -> Self {
        Self::Own(Arc::new(Local::new(inherit)))
    }
}

impl Keys {
    pub(super) fn of(driver: &Driver) -> Self {
        match driver.guarded_keys() {
            GuardedKeys::None => Self::Nothing,
            GuardedKeys::OfDevice => Self::default(),
            GuardedKeys::OfDriver => Self::Common,
        }
    }

    fn known(&self) -> Option<MutexGuard<'_, Known>> {
        match self {
            Self::Nothing => None,
            Self::Common => Some(COMMON.lock()),
            Self::Own(known) => Some(known.lock()),
        }
    }

    /// A window has this key: when that bind is executed, or while the window is not bound.
    pub(crate) fn add(&self, key: u32, context: &Context, bind: Option<Arc<Invalidated>>) {
        let Some(mut known) = self.known() else { return };
        let own = Own { context: context.clone(), bind, is_sent: false };
        match known.own.entry(key >> 8) {
            Entry::Vacant(place) => drop(place.insert(OfWindow { first: (key, own), others: Vec::new() })),
            Entry::Occupied(mut place) => place.get_mut().others.push((key, own)),
        }
    }

    /// The window does not have this key any more.
    pub(crate) fn remove(&self, key: u32, context: &Context) {
        let Some(mut known) = self.known() else { return };
        let Entry::Occupied(mut place) = known.own.entry(key >> 8) else { return };
        let is_it = |(other, own): &(u32, Own)| *other == key && own.context.is_same(context);
        let OfWindow { first, others } = place.get_mut();
        // What is removed may contain the last clone of a context, and is dropped after the lock.
        let _removed = if !is_it(first) {
            others.iter().position(is_it).map(|at| others.swap_remove(at))
        } else if let Some(other) = others.pop() {
            Some(std::mem::replace(first, other))
        } else {
            Some(place.remove().first)
        };
        drop(known);
    }

    /// Notes that invalidates for these keys are about to be sent to a device: all of them, or none. The error is the reason.
    pub(crate) fn send(&self, to: Gid, keys: &[u32]) -> Result<Noted, &'static str> {
        let is_there = |context: &Context| {
            let gids = context.gid_table().unwrap_or_default();
            gids.iter().any(|gid| gid.raw == to)
        };
        let mut noted = Noted::new();
        for key in keys {
            let Some(known) = self.known() else { return Ok(noted) };
            let all = known.of_window(*key).map(|(_, own)| own.context.clone()).collect::<Vec<_>>();
            drop(known);
            // This sends a command to the kernel, which must not be done under a lock.
            let here = all.into_iter().filter(is_there).collect::<Vec<_>>();
            let answer = self.known().map(|mut known| known.note(to, *key, &here));
            if let Some(Err(hint)) = answer {
                self.take_back(to, &noted);
                return Err(hint);
            }
            noted.push((*key, here));
        }
        Ok(noted)
    }

    /// The invalidates were not sent after all.
    pub(crate) fn take_back(&self, to: Gid, noted: &Noted) {
        let Some(mut known) = self.known() else { return };
        for (key, here) in noted {
            known.with_key(*key, here).for_each(|own| own.is_sent = false);
            known.sent.remove(to, *key);
        }
    }
}

impl Known {
    /// All keys of own windows with the index of this key.
    fn of_window(&self, key: u32) -> impl Iterator<Item = (u32, &Own)> {
        self.own.get(&(key >> 8)).into_iter().flat_map(OfWindow::iter).map(|(key, own)| (*key, own))
    }

    fn with_key<'a>(&'a mut self, key: u32, contexts: &'a [Context]) -> impl Iterator<Item = &'a mut Own> {
        let all = self.own.get_mut(&(key >> 8)).into_iter().flat_map(OfWindow::iter_mut);
        let of_key = all.filter(move |(other, _)| *other == key).map(|(_, own)| own);
        of_key.filter(|own| contexts.iter().any(|context| context.is_same(&own.context)))
    }

    /// Notes an invalidate. `here` are the open devices with that GID that have an own window with the index.
    fn note(&mut self, to: Gid, key: u32, here: &[Context]) -> Result<(), &'static str> {
        let was_sent = self.sent.contains(to, key);
        let is_here = |own: &Own| here.iter().any(|context| context.is_same(&own.context));
        let (mut is_own, mut is_bound) = (false, false);
        for (other, own) in self.of_window(key).filter(|(_, own)| is_here(own)) {
            is_own = true;
            is_bound |= other == key && !own.may_be_free();
        }
        if was_sent || (is_own && !is_bound) {
            return Err(if was_sent { BEFORE } else { FREE });
        }
        self.with_key(key, here).for_each(|own| own.is_sent = true);
        self.sent.add(to, key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Gid = [1; 16];

    #[test]
    fn each_key_is_sent_once_until_the_window_has_had_most_others() {
        let keys = Keys::default();
        keys.send(HERE, &[0x1_00, 0x1_01]).unwrap();
        assert!(keys.send(HERE, &[0x1_02, 0x1_00]).is_err());
        // None of the invalidates that were refused together.
        keys.send(HERE, &[0x1_02]).unwrap();
        assert!(keys.send(HERE, &[0x1_03, 0x1_03]).is_err(), "twice at once");
        keys.send(HERE, &[0x2_00]).unwrap();
        keys.send([2; 16], &[0x1_00]).unwrap();
        keys.take_back(HERE, &vec![(0x1_02, Vec::new())]);
        for low in 2..0x100 {
            keys.send(HERE, &[0x1_00 | low]).unwrap();
            // Miri is slow.
            for back in (0..KEYS.min(low)).step_by(if cfg!(miri) { 40 } else { 1 }) {
                assert!(keys.send(HERE, &[0x1_00 | (low - back)]).is_err(), "{back} before {low}");
            }
        }
        keys.send(HERE, &[0x1_00]).unwrap();
        assert!(keys.send(HERE, &[0x1_00]).is_err());
    }

    #[test]
    fn what_is_known_of_others_has_an_end() {
        let mut sent = Sent::default();
        let all = 3 * WINDOWS as u32;
        (0..all).for_each(|index| sent.add(HERE, index << 8));
        assert!(sent.newer.len() + sent.older.len() <= 2 * WINDOWS);
        assert!((all - WINDOWS as u32..all).all(|index| sent.contains(HERE, index << 8)));
    }

    #[test]
    #[cfg(feature = "soft")]
    fn of_own_windows_it_is_known_which_key_they_have() {
        let context = crate::soft::SoftDevice::default().open().unwrap();
        let to = context.gid_table().unwrap()[0].raw;
        let (keys, bind) = (Keys::default(), Arc::new(Invalidated::default()));
        keys.add(0x1_00, &context, None);
        keys.add(0x1_01, &context, Some(bind.clone()));
        assert!(keys.send(to, &[0x1_00]).is_err(), "free");
        let noted = keys.send(to, &[0x1_01]).unwrap();
        assert!(keys.send(to, &[0x1_01]).is_err(), "sent");
        keys.take_back(to, &noted);
        // The peer has invalidated it, and the window does not know this yet.
        bind.set();
        assert!(keys.send(to, &[0x1_01]).is_err(), "seen");
        assert!(keys.send(to, &[0x1_02]).is_err(), "it may get that one before the request is there");
        // On another device the key belongs to a window of another process.
        keys.send([9; 16], &[0x1_00]).unwrap();
        keys.remove(0x1_00, &context);
        keys.remove(0x1_01, &context);
        assert!(keys.known().unwrap().own.is_empty());
    }
}
