//! Doorbells: registers of a device, of eight bytes, and their records in memory.
//!
//! # Safety
//! - A register, or a record, is inside a mapping, at an address that is a multiple of eight, and is accessed only here: as an atomic of eight bytes if
//!   the processor can store as many at once, otherwise as two of four, one after the other and by one thread at a time. Two threads that
//!   ring at the same time are therefore a race of values, and the device never sees half of each.

#![allow(unsafe_code)]

use std::ptr::NonNull;
#[cfg(not(target_pointer_width = "64"))]
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::Mapping;
use super::barrier::{after_doorbell, before_doorbell, before_record};

/// A register whose address was determined once. Ringing it is one store.
#[derive(Debug)]
pub(crate) struct Register {
    /// Keeps the memory.
    _map: Mapping,
    at: NonNull<u8>,
}

// SAFETY: the pointer is into the mapping, which any thread may use, and each store is whole.
unsafe impl Send for Register {}
// SAFETY: as above.
unsafe impl Sync for Register {}

impl Register {
    /// The register at `offset`; `None` if it is outside, or if the address is not a multiple of eight.
    pub(crate) fn new(map: &Mapping, offset: usize) -> Option<Self> {
        let at = map.place(offset, 8).filter(|place| place.addr().get().is_multiple_of(8))?;
        Some(Self { _map: map.clone(), at })
    }

    /// Its address.
    #[cfg(feature = "raw")]
    pub(crate) fn address(&self) -> u64 {
        self.at.as_ptr().expose_provenance() as u64
    }

    /// Rings the doorbell: stores eight bytes at once. The device first sees everything that was written to memory before.
    #[inline(always)]
    pub(crate) fn ring(&self, value: [u8; 8]) {
        before_doorbell();
        self.store(value, Ordering::Relaxed);
        after_doorbell();
    }

    /// Stores eight bytes in a record in memory, where the device can look up what a doorbell says. The device sees everything that was
    /// written before.
    #[inline(always)]
    pub(crate) fn tell(&self, value: [u8; 8]) {
        before_record();
        self.store(value, Ordering::Release);
    }

    #[inline(always)]
    #[cfg_attr(not(target_pointer_width = "64"), allow(unused_variables))]
    fn store(&self, value: [u8; 8], order: Ordering) {
        let place = self.at.as_ptr();
        #[cfg(target_pointer_width = "64")]
        // SAFETY: inside the mapping, aligned, and alive as long as `self` (first point).
        unsafe { std::sync::atomic::AtomicU64::from_ptr(place.cast()) }
            .store(u64::from_ne_bytes(value), order);
        #[cfg(not(target_pointer_width = "64"))]
        {
            static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
            let _alone = ONE_AT_A_TIME.lock();
            for (half, bytes) in value.as_chunks::<4>().0.iter().enumerate() {
                // SAFETY: the same, for one half.
                unsafe { std::sync::atomic::AtomicU32::from_ptr(place.cast::<u32>().add(half)) }
                    .store(u32::from_ne_bytes(*bytes), Ordering::Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads, such as those that poll two queues: the device gets the value of one or of the other, and never half of each. Under
    /// Miri, an access that is not atomic is an error.
    #[test]
    fn doorbells_of_two_threads_do_not_mix() {
        let page = Mapping::block(4096).unwrap();
        let [one, two] = [[0x11; 8], [0x22; 8]];
        std::thread::scope(|scope| {
            for value in [one, two] {
                let register = Register::new(&page, 0x20).unwrap();
                scope.spawn(move || {
                    (0..if cfg!(miri) { 20 } else { 100_000 }).for_each(|_| register.ring(value))
                });
            }
        });
        let mut last = [0; 24];
        assert!(page.read(0x18, &mut last));
        assert!([one, two].contains(&last[8..16].try_into().unwrap()));
        assert_eq!((&last[..8], &last[16..]), (&[0; 8][..], &[0; 8][..]));
    }

    #[test]
    fn there_is_no_doorbell_outside_or_across() {
        let page = Mapping::block(4096).unwrap();
        for offset in [4096, 4089, 4, usize::MAX] {
            assert!(Register::new(&page, offset).is_none(), "{offset}");
        }
        let last = Register::new(&page, 4088).unwrap();
        drop(page);
        last.ring([0xff; 8]);
    }

    #[test]
    fn a_record_says_what_a_doorbell_says() {
        let page = Mapping::block(4096).unwrap();
        Register::new(&page, 16).unwrap().tell([1, 2, 3, 4, 5, 6, 7, 8]);
        let mut found = [0; 24];
        assert!(page.read(8, &mut found));
        assert_eq!(found, [[0; 8], [1, 2, 3, 4, 5, 6, 7, 8], [0; 8]].as_flattened());
    }
}
