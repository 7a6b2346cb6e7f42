//! Keys of memory windows that must not be invalidated.
//!
//! rxe follows a null pointer when a key of type 2 is invalidated whose window is not bound, whoever sends that: it asks
//! neither for the queue pair that bound the window nor for its protection domain (rxe_invalidate_mw, rxe_mw.c, Linux 6.1 to
//! 7.3). So a process sends an invalidate for each key once, and none for a key that a window of its own has while it is
//! free. What other processes do cannot be seen from here.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use super::Context;
use crate::process::Local;
use crate::provider::Provider;

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

/// A window gets another key by each bind and comes back to the first after 256 of them. When so many keys of a window were
/// invalidated, the first ones may be told again.
const MOST: u32 = 192;

#[derive(Debug, Default)]
pub(crate) struct Known {
    /// By the device and the index of the window: keys for which an invalidate was sent.
    sent: BTreeMap<(Gid, u32), LowBytes>,
    /// Keys that windows of this process have, or may have, while they are free.
    free: BTreeMap<u32, Vec<Context>>,
}

/// What is known of keys; all devices of rxe share it, since a peer can be reached through several.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    OfRxe,
    Own(Arc<Local<Known>>),
}

static OF_RXE: Local<Known> = Local::new(inherit);

/// A child of `fork` knows what was sent; the windows are its parent's.
fn inherit(known: &Known) -> Known {
    Known { sent: known.sent.clone(), free: BTreeMap::new() }
}

impl Default for Keys {
    fn default() -> Self {
        Self::Own(Arc::new(Local::new(inherit)))
    }
}

impl Keys {
    pub(super) fn of(provider: Provider) -> Self {
        if provider == Provider::Rxe { Self::OfRxe } else { Self::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        match self {
            Self::OfRxe => OF_RXE.lock(),
            Self::Own(known) => known.lock(),
        }
    }

    /// A window has this key while it is free.
    pub(crate) fn add_free(&self, key: u32, context: &Context) {
        self.known().free.entry(key).or_default().push(context.clone());
    }

    /// It has not any more.
    pub(crate) fn remove_free(&self, key: u32, context: &Context) {
        let mut known = self.known();
        let Some(contexts) = known.free.get_mut(&key) else { return };
        let at = contexts.iter().position(|other| other.is_same(context));
        let context = at.map(|at| contexts.swap_remove(at));
        if contexts.is_empty() {
            known.free.remove(&key);
        }
        // It may be the last clone.
        drop(known);
        drop(context);
    }

    /// Notes that invalidates for these keys are about to be sent to a device, all of them or none; says why not.
    pub(crate) fn send(&self, to: Gid, keys: &[u32]) -> Result<(), &'static str> {
        let has_free = |context: &Context| {
            let gids = context.gid_table().unwrap_or_default();
            gids.iter().any(|gid| gid.raw == to)
        };
        for key in keys {
            let known = self.known();
            let was_sent = known.sent.get(&(to, key >> 8)).is_some_and(|low| low.contains(*key));
            let contexts = known.free.get(key).filter(|_| !was_sent).cloned().unwrap_or_default();
            drop(known);
            // Asks the kernel, which is not done under a lock.
            if contexts.iter().any(has_free) {
                return Err(
                    "no window is bound with that key: one of this process has or had it while it was free",
                );
            }
        }
        let mut known = self.known();
        for (at, key) in keys.iter().enumerate() {
            let low = known.sent.entry((to, key >> 8)).or_default();
            if low.contains(*key) {
                Self::take_back_from(&mut known, to, &keys[..at]);
                return Err(
                    "this process has sent an invalidate for that key before, and rxe does not survive a second \
                            one: have the window released and bound again, for it to get another key",
                );
            }
            if low.len() >= MOST {
                *low = LowBytes::default();
            }
            low.add(*key);
        }
        Ok(())
    }

    /// The same were not sent after all.
    pub(crate) fn take_back(&self, to: Gid, keys: &[u32]) {
        Self::take_back_from(&mut self.known(), to, keys);
    }

    fn take_back_from(known: &mut Known, to: Gid, keys: &[u32]) {
        for key in keys {
            if let Some(low) = known.sent.get_mut(&(to, key >> 8)) {
                low.remove(*key);
            }
        }
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
        // None of those that were refused together.
        keys.send(HERE, &[0x1_02]).unwrap();
        assert!(keys.send(HERE, &[0x1_03, 0x1_03]).is_err(), "twice at once");
        keys.send(HERE, &[0x2_00]).unwrap();
        keys.send([2; 16], &[0x1_00]).unwrap();
        keys.take_back(HERE, &[0x1_02]);
        keys.send(HERE, &[0x1_02]).unwrap();
        for low in 3..0x100 {
            keys.send(HERE, &[0x1_00 | low]).unwrap();
            assert!(keys.send(HERE, &[0x1_00 | low]).is_err(), "{low}");
        }
        keys.send(HERE, &[0x1_00]).unwrap();
        assert!(keys.send(HERE, &[0x1_00]).is_err());
    }
}
