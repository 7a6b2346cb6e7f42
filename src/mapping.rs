//! Memory that a device may read and write while we hold it.
//!
//! # Safety
//! - `base..base + len` is one allocation of whole pages, valid for reads and writes, and lives as long as
//!   `keep` does: `keep` owns it, and nothing in this file frees or moves it before.
//! - No Rust reference to this memory is ever made but to its aligned 32-bit words, as atomics. Every access
//!   is one of a whole word, checked against `len`. So a device (or the soft device's threads) that
//!   writes at the same time is a race of values, never undefined behaviour on our side. One size for
//!   all is part of this: atomic accesses of different sizes must not race (`std::sync::atomic`).

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::MmapRaw;
use nix::errno::Errno;

/// The size of a page, to which shared blocks are aligned.
const PAGE: usize = 4096;

/// A mapping of device memory, or a block of this process's memory shared with a device.
///
/// It can be copied from and to, and its words be read and written atomically; it is never lent as a
/// slice, because a device may write to it at any time.
#[derive(Clone, Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Owns the memory; never looked at again.
    _keep: Keep,
}

#[derive(Clone, Debug)]
enum Keep {
    Map(#[expect(dead_code, reason = "held for its Drop")] Arc<MmapRaw>),
    Block(#[expect(dead_code, reason = "held for its Drop")] Arc<Block>),
}

// SAFETY: the memory is reached through atomics only (second invariant), which any thread may use; the
// owner in `_keep` may be dropped on any thread (munmap and dealloc do not care).
unsafe impl Send for Mapping {}
// SAFETY: as above: `&Mapping` gives atomic access only.
unsafe impl Sync for Mapping {}

/// A zeroed, page-aligned piece of the heap.
#[derive(Debug)]
struct Block {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is a number and a layout until it is freed, which any thread may do.
unsafe impl Send for Block {}
// SAFETY: nothing can be done with a `&Block`.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `Mapping::block` with this layout, and freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl From<MmapRaw> for Mapping {
    fn from(map: MmapRaw) -> Self {
        // mmap never gives address zero for a mapping without MAP_FIXED, but say it by the type.
        let base = NonNull::new(map.as_mut_ptr()).unwrap_or(NonNull::<u64>::dangling().cast());
        let len = if base == NonNull::<u64>::dangling().cast() { 0 } else { map.len() };
        Self { base, len, _keep: Keep::Map(Arc::new(map)) }
    }
}

impl Mapping {
    /// A zeroed block of at least `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// `EINVAL` for a length of zero, `ENOMEM` when there is no memory.
    pub(crate) fn block(len: usize) -> Result<Self, Errno> {
        let size = len.checked_next_multiple_of(PAGE).filter(|size| *size > 0).ok_or(Errno::EINVAL)?;
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| Errno::ENOMEM)?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        let block = Block { base, layout };
        Ok(Self { base, len: size, _keep: Keep::Block(Arc::new(block)) })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address as the device is told it.
    #[inline]
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// The place of `len` bytes at `offset`, if they are inside.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: `offset <= end <= self.len`, inside the allocation (first invariant).
        (end <= self.len).then(|| unsafe { self.base.add(offset) })
    }

    /// The 32-bit word at `offset`, a multiple of four; none outside.
    #[inline]
    fn word(&self, offset: usize) -> Option<&AtomicU32> {
        let place = self.at(offset, 4).filter(|_| offset.is_multiple_of(4))?;
        // SAFETY: inside the mapping, aligned, alive as long as `self`, and only ever used atomically.
        Some(unsafe { AtomicU32::from_ptr(place.cast().as_ptr()) })
    }

    /// Loads the word at `offset`; zero outside the mapping.
    #[inline]
    pub fn load(&self, offset: usize, order: Ordering) -> u32 {
        self.word(offset).map_or(0, |word| word.load(order))
    }

    /// Stores to the word at `offset`; nothing happens outside the mapping.
    #[inline]
    pub fn store(&self, offset: usize, value: u32, order: Ordering) {
        if let Some(word) = self.word(offset) {
            word.store(value, order);
        }
    }

    /// The `N` words from `offset` on, a multiple of four; none when that leaves the mapping.
    #[inline]
    pub(crate) fn words<const N: usize>(&self, offset: usize) -> Option<&[AtomicU32; N]> {
        if !offset.is_multiple_of(4) {
            return None;
        }
        let place = self.at(offset, 4 * N)?;
        // SAFETY: the words are inside the mapping (just checked), aligned, alive as long as `self`, and only ever
        // used atomically.
        Some(unsafe { place.cast::<[AtomicU32; N]>().as_ref() })
    }

    /// Copies from `offset` on into `bytes`; false and nothing done when that leaves the mapping.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        let Some(place) = self.at(offset, bytes.len()) else { return false };
        // SAFETY: `place` is valid for `bytes.len()` bytes (just checked) while `self` lives.
        unsafe { copy_out(place, bytes) };
        true
    }

    /// Copies `bytes` to `offset`; false and nothing done when that leaves the mapping.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(place) = self.at(offset, bytes.len()) else { return false };
        // SAFETY: as in `read`.
        unsafe { copy_in(place, bytes) };
        true
    }
}

/// Copies out of memory that a device or another thread may be writing.
///
/// # Safety
/// `from` is valid for atomic reads of `to.len()` bytes, and so are the whole words that these are in.
#[inline]
unsafe fn copy_out(from: NonNull<u8>, to: &mut [u8]) {
    match to.as_chunks_mut::<4>() {
        // SAFETY: by the caller's promise; `from` is aligned.
        (words, []) if from.addr().get().is_multiple_of(4) => unsafe { copy_words_out(from, words) },
        // SAFETY: by the caller's promise.
        _ => unsafe { copy_out_at_any(from, to) },
    }
}

/// Copies into memory that a device or another thread may be reading.
///
/// # Safety
/// `to` is valid for atomic reads and writes of `from.len()` bytes, and so are the whole words that these are in.
#[inline]
unsafe fn copy_in(to: NonNull<u8>, from: &[u8]) {
    match from.as_chunks::<4>() {
        // SAFETY: by the caller's promise; `to` is aligned.
        (words, []) if to.addr().get().is_multiple_of(4) => unsafe { copy_words_in(to, words) },
        // SAFETY: by the caller's promise.
        _ => unsafe { copy_in_at_any(to, from) },
    }
}

/// Copies whole words out.
///
/// # Safety
/// As [`copy_out`]; `from` is aligned if there is any word.
#[inline]
unsafe fn copy_words_out(mut from: NonNull<u8>, to: &mut [[u8; 4]]) {
    for word in to {
        // SAFETY: an aligned word of the bytes; behind it is the next one, or their end.
        unsafe {
            *word = AtomicU32::from_ptr(from.as_ptr().cast()).load(Ordering::Relaxed).to_ne_bytes();
            from = from.add(4);
        }
    }
}

/// Copies whole words in.
///
/// # Safety
/// As [`copy_in`]; `to` is aligned if there is any word.
#[inline]
unsafe fn copy_words_in(mut to: NonNull<u8>, from: &[[u8; 4]]) {
    for word in from {
        // SAFETY: an aligned word of the bytes; behind it is the next one, or their end.
        unsafe {
            AtomicU32::from_ptr(to.as_ptr().cast()).store(u32::from_ne_bytes(*word), Ordering::Relaxed);
            to = to.add(4);
        }
    }
}

/// How many of `len` bytes at `place` come before the first whole word.
fn before_words(place: NonNull<u8>, len: usize) -> usize {
    (place.addr().get().wrapping_neg() % 4).min(len)
}

/// [`copy_out`] of any alignment: a part of a word, whole words, a part of a word.
///
/// # Safety
/// As [`copy_out`].
#[inline(never)]
unsafe fn copy_out_at_any(from: NonNull<u8>, to: &mut [u8]) {
    let (first, rest) = to.split_at_mut(before_words(from, to.len()));
    let (words, last) = rest.as_chunks_mut();
    // SAFETY: the three are one behind the other, as long as `from` is valid; the second begins with a word.
    unsafe {
        copy_part_out(from, first);
        let from = from.add(first.len());
        copy_words_out(from, words);
        copy_part_out(from.add(4 * words.len()), last);
    }
}

/// [`copy_in`] of any alignment: a part of a word, whole words, a part of a word.
///
/// # Safety
/// As [`copy_in`].
#[inline(never)]
unsafe fn copy_in_at_any(to: NonNull<u8>, from: &[u8]) {
    let (first, rest) = from.split_at(before_words(to, from.len()));
    let (words, last) = rest.as_chunks();
    // SAFETY: the three are one behind the other, as long as `to` is valid; the second begins with a word.
    unsafe {
        copy_part_in(to, first);
        let to = to.add(first.len());
        copy_words_in(to, words);
        copy_part_in(to.add(4 * words.len()), last);
    }
}

/// The word that `place` is in, and which of its bytes that is.
///
/// # Safety
/// The whole word is valid for atomic reads and writes as long as the answer is used.
unsafe fn word_around<'a>(place: NonNull<u8>) -> (&'a AtomicU32, usize) {
    let start = place.addr().get() % 4;
    // SAFETY: aligned now, and valid by the caller's promise.
    (unsafe { AtomicU32::from_ptr(place.as_ptr().wrapping_sub(start).cast()) }, start)
}

/// Copies a part of one word out, or nothing.
///
/// # Safety
/// As [`copy_out`]; the bytes are all in the word that `from` is in.
unsafe fn copy_part_out(from: NonNull<u8>, to: &mut [u8]) {
    if to.is_empty() {
        return;
    }
    // SAFETY: valid by the caller's promise, and used only here.
    let (word, start) = unsafe { word_around(from) };
    to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[start..start + to.len()]);
}

/// Copies a part of one word in, or nothing.
///
/// # Safety
/// As [`copy_in`]; the bytes are all in the word that `to` is in.
unsafe fn copy_part_in(to: NonNull<u8>, from: &[u8]) {
    if from.is_empty() {
        return;
    }
    // SAFETY: valid by the caller's promise, and used only here.
    let (word, start) = unsafe { word_around(to) };
    // The word's other bytes are somebody else's, who may be writing them.
    let merge = |old: u32| {
        let mut bytes = old.to_ne_bytes();
        bytes[start..start + from.len()].copy_from_slice(from);
        Some(u32::from_ne_bytes(bytes))
    };
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_alignment_come_back() {
        let map = Mapping::block(64).unwrap();
        for offset in 0..16 {
            for len in 0..40 {
                let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + offset) as u8).collect();
                assert!(map.write(offset, &bytes));
                let mut back = vec![0; len];
                assert!(map.read(offset, &mut back));
                assert_eq!(back, bytes);
            }
        }
    }

    #[test]
    fn threads_may_copy_at_any_alignment() {
        let map = Mapping::block(64).unwrap();
        std::thread::scope(|scope| {
            for (offset, len) in [(0, 7), (7, 9), (16, 5), (21, 3)] {
                let map = &map;
                scope.spawn(move || {
                    let mut back = [0; 64];
                    for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
                        assert!(map.write(offset, &[len as u8; 9][..len]));
                        assert!(map.read(0, &mut back) && map.read(offset, &mut back[..len]));
                        // Neighbours in the same word have left it alone.
                        assert_eq!(back[..len], [len as u8; 9][..len]);
                    }
                });
            }
        });
    }

    #[test]
    fn nothing_happens_outside() {
        let map = Mapping::block(1).unwrap();
        assert_eq!(map.len(), PAGE);
        assert!(!map.write(PAGE - 1, &[1, 2]));
        assert!(!map.read(usize::MAX, &mut [0; 2]));
        map.store(PAGE, 1, Ordering::Relaxed);
        assert_eq!(map.load(PAGE, Ordering::Relaxed), 0);
        assert_eq!(map.load(2, Ordering::Relaxed), 0);
        assert_eq!(Mapping::block(0).unwrap_err(), Errno::EINVAL);
        assert_eq!(Mapping::block(usize::MAX).unwrap_err(), Errno::EINVAL);
    }
}
