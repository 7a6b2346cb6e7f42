//! Words of eight bytes that a device reads or writes at any time, and values that another thread writes while they are read.
//!
//! # Safety
//! - A value is inside a mapping, at an address that is a multiple of eight. As long as the device uses it, this process accesses it only
//!   here, as an atomic of eight bytes. A device that reads or writes it is therefore a race of values.
//! - A [`Value`] shares ownership of the place while it exists: no other code has exclusive access, and the owner makes the place available
//!   to everything that shares it.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Mapping;
use super::barrier::after_owner;

/// A value whose address was determined once. Reading it is two loads.
pub(crate) struct Value<T> {
    place: NonNull<AtomicU64>,
    _owner: Arc<T>,
}

// SAFETY: the place is an atomic, which any thread may use; the owner may be shared with, and dropped on, any thread, by the bounds.
unsafe impl<T: Send + Sync> Send for Value<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Value<T> {}

impl<T> Value<T> {
    /// The value that `find` returns from what `owner` shares.
    pub(crate) fn find(owner: &Arc<T>, find: impl FnOnce(&T) -> Option<&AtomicU64>) -> Option<Self> {
        find(owner).map(|place| Self { place: NonNull::from(place), _owner: owner.clone() })
    }

    /// The current value. What was written before it, by a device too, is read after it.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        // SAFETY: the owner is alive and shared, and gives a reference to this place to anything that has a reference to it (second
        // point).
        let value = unsafe { self.place.as_ref() }.load(Ordering::Acquire);
        after_owner();
        value
    }
}

impl<T> fmt::Debug for Value<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&self.get()).finish()
    }
}

impl Mapping {
    /// The value of eight bytes at `offset`; `None` if it is outside, or if the address is not a multiple of eight.
    pub(crate) fn value(&self, offset: usize) -> Option<&AtomicU64> {
        self.values(offset).map(|[value]| value)
    }

    /// `N` values of eight bytes in succession from `offset` on; `None` if they are outside, or if the address is not a multiple of eight.
    #[inline(always)]
    pub(crate) fn values<const N: usize>(&self, offset: usize) -> Option<&[AtomicU64; N]> {
        let place = self.place(offset, N * 8).filter(|place| place.addr().get().is_multiple_of(8))?;
        // SAFETY: inside the mapping, aligned, alive as long as `self`, and nothing but such atomics (first point).
        Some(unsafe { place.cast().as_ref() })
    }

    /// Changes the value, as a device does.
    #[cfg(any(test, feature = "soft"))]
    pub(crate) fn change_value(&self, offset: usize, change: impl Fn(u64) -> u64) {
        if let Some(value) = self.value(offset) {
            let _ = value.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_whole_while_another_thread_writes_it() {
        let page = Mapping::block(4096).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..if cfg!(miri) { 50 } else { 100_000 })
                    .for_each(|_| page.change_value(8, |old| old.wrapping_add(0x1_0000_0001)));
            });
            let mut last = 0;
            while last < if cfg!(miri) { 50 } else { 1000 } {
                let value = page.value(8).unwrap().load(Ordering::Acquire);
                assert_eq!(value >> 32, value & 0xffff_ffff);
                last = value >> 32;
            }
        });
        assert!(page.values::<8>(4032).is_some() && page.values::<8>(4040).is_none());
        for outside in [4, 4092, 4096, usize::MAX] {
            assert!(page.value(outside).is_none());
            page.change_value(outside, |_| 5);
        }
        assert_eq!([0, 16, 4088].map(|at| page.value(at).unwrap().load(Ordering::Relaxed)), [0; 3]);
    }

    #[test]
    fn a_value_that_was_found_lives_with_its_owner() {
        let owner = Arc::new(([AtomicU64::new(7), AtomicU64::new(8)], Mapping::block(16).unwrap()));
        assert!(Value::find(&owner, |(_, mapping)| mapping.value(12)).is_none());
        let one = Value::find(&owner, |(values, _)| values.last()).unwrap();
        let other = Value::find(&owner, |(_, mapping)| mapping.value(8)).unwrap();
        owner.0[1].fetch_add(1, Ordering::Relaxed);
        owner.1.change_value(8, |old| old + 3);
        drop(owner);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!((one.get(), other.get()), (9, 3)));
        });
        assert_eq!(format!("{one:?}"), "Value(9)");
    }
}
