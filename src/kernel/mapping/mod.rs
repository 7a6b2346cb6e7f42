//! Memory that a device may read and write while this process holds it.
//!
//! # Safety
//! - `base..base + len` is memory of one allocation, valid for reads and writes, and lives as long as `keep` does: `keep` owns it, and
//!   nothing in this file frees or moves it earlier. For memory that the caller keeps ([`Mapping::from_raw`]), the caller has promised
//!   this.
//! - If `pages` is set, all pages that contain the memory are such memory too, not only its own bytes.
//! - The only Rust references to this memory are to atomics. Words of 32 bits, aligned, are accessed as such wherever the whole word may
//!   be accessed (it is inside, or `pages` is set), and bytes elsewhere, at the two edges. The address alone determines which of the two
//!   is used, because atomic accesses of different sizes must not race (`std::sync::atomic`). A device (or the soft device's threads)
//!   that writes at the same time is therefore a race of values, never undefined behaviour. Bounds are checked before every access. The
//!   exceptions are device registers (`register.rs`), which are only written, as a whole, and values of 64 bits that a device counts in
//!   (`value.rs`).
//! - An object that was passed in is returned only by the last [`Mapping`] of it (`Arc::try_unwrap`), and code that registers the memory
//!   keeps one while the device may access it.
//!
//! If another program truncates a mapped file, accessing the missing page ends the process with a signal; nothing is read or written
//! elsewhere.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use nix::errno::Errno;

pub(crate) use self::register::Register;
pub(crate) use self::value::Value;

/// The alignment of shared blocks: the smallest page size of a device or a system.
const PAGE: usize = 4096;

/// The size from which on a block is a separate mapping.
const LARGE: usize = 1 << 20;

/// Memory that a device may read and write: memory of the device itself, or memory to be registered.
///
/// Its contents are copied in and out, and its words can be read and written atomically. It is never lent as a slice, because a
/// device may write to it at any time. Clones refer to the same memory.
///
/// Create it from an owned object, `Box<[u8]>` or [`MmapMut`] (of the crate `memmap2`, for huge pages); `try_from` returns this
/// object when no other clone and no region uses the memory. [`Mapping::of_file`] maps memory that processes share.
/// [`Mapping::from_raw`] is for memory of your own allocator.
///
/// ```
/// use uverbs::{AccessFlags, Mapping};
/// # fn main() -> uverbs::Result<()> {
/// let context = uverbs::SoftDevice::default().open()?;
/// let memory = Mapping::from(vec![7_u8; 1000].into_boxed_slice());
/// let region = context.alloc_pd()?.memory(&memory).access(AccessFlags::LOCAL_WRITE).register()?;
/// region.write(0, b"hello")?;
/// let memory = Box::<[u8]>::try_from(memory).unwrap_err(); // the region has it
/// region.destroy().map_err(|(_, error)| error)?;
/// let bytes = Box::<[u8]>::try_from(memory).unwrap();
/// assert_eq!(&bytes[..6], b"hello\x07");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// The memory consists of whole pages, so words that cross its edges may be accessed.
    pages: bool,
    keep: Keep,
}

/// The owner of the memory.
#[derive(Clone, Debug)]
enum Keep {
    File(Arc<MmapRaw>),
    Joined(#[expect(dead_code, reason = "held for its Drop")] Arc<joined::Joined>),
    Mut(Arc<MmapMut>),
    Block(#[expect(dead_code, reason = "held for its Drop")] Arc<Block>),
    Boxed(Arc<Boxed>),
    #[cfg(any(feature = "raw", test))]
    Owner(#[expect(dead_code, reason = "held for its Drop")] Arc<dyn std::any::Any + Send + Sync>),
    /// The caller keeps it.
    Caller,
}

// SAFETY: the memory is accessed through atomics only (third invariant), which any thread may use; the owner in `keep` may be dropped on
// any thread (munmap and dealloc allow this).
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

/// A box taken apart: a `Box` must not be accessed by others while it exists.
#[derive(Debug)]
struct Boxed(NonNull<[u8]>);

// SAFETY: as for a `Block`.
unsafe impl Send for Boxed {}
// SAFETY: as for a `Block`.
unsafe impl Sync for Boxed {}

impl Boxed {
    fn into_box(self) -> Box<[u8]> {
        let this = ManuallyDrop::new(self);
        // SAFETY: it was made by `Box::into_raw`, and becomes a box again only here and in `drop`, which is no longer called.
        unsafe { Box::from_raw(this.0.as_ptr()) }
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        // SAFETY: as in `into_box`, after which this is not called.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl From<MmapMut> for Mapping {
    fn from(mut map: MmapMut) -> Self {
        Self::mapped(map.as_mut_ptr(), map.len(), Keep::Mut(Arc::new(map)))
    }
}

impl From<Box<[u8]>> for Mapping {
    fn from(bytes: Box<[u8]>) -> Self {
        let len = bytes.len();
        // SAFETY: a box's address is not null.
        let whole = unsafe { NonNull::new_unchecked(Box::into_raw(bytes)) };
        Self { base: whole.cast(), len, pages: false, keep: Keep::Boxed(Arc::new(Boxed(whole))) }
    }
}

/// Returns the object that owns the memory; or the mapping itself if it is of another kind, or while a clone or a memory region uses it.
macro_rules! hand_back {
    ($($owned:ty, $variant:ident, $and_then:expr;)*) => {
        $(
            impl TryFrom<Mapping> for $owned {
                type Error = Mapping;

                fn try_from(mapping: Mapping) -> Result<Self, Mapping> {
                    match mapping.keep {
                        Keep::$variant(owner) => match Arc::try_unwrap(owner) {
                            Ok(owner) => Ok($and_then(owner)),
                            Err(owner) => Err(Mapping { keep: Keep::$variant(owner), ..mapping }),
                        },
                        keep => Err(Mapping { keep, ..mapping }),
                    }
                }
            }
        )*
    };
}

hand_back! {
    MmapMut, Mut, std::convert::identity;
    Box<[u8]>, Boxed, Boxed::into_box;
}

impl Mapping {
    /// A mapping from the result of `mmap`.
    fn mapped(base: *mut u8, len: usize, keep: Keep) -> Self {
        // `mmap` never returns address zero without MAP_FIXED, but the type has to show it.
        match NonNull::new(base) {
            Some(base) => Self { base, len, pages: true, keep },
            None => Self { base: NonNull::dangling(), len: 0, pages: false, keep },
        }
    }

    /// Maps a part of a file for reading and writing, shared with others that map it: memory shared between processes
    /// (`shm_open(3)`, `memfd_create(2)`), or memory of a device.
    ///
    /// If the file is truncated, accessing the removed part ends the process with a signal.
    ///
    /// # Errors
    /// Those of `mmap(2)`, for example for a file that was not opened for reading and writing, or for length zero.
    pub fn of_file(file: &File, offset: u64, len: usize) -> std::io::Result<Self> {
        if len == 0 {
            // As mmap(2) specifies. `memmap2` would map a page instead, and the kernel would return a ring for it.
            return Err(Errno::EINVAL.into());
        }
        let map = MmapOptions::new().offset(offset).len(len).map_raw(file)?;
        Ok(Self::mapped(map.as_mut_ptr(), map.len(), Keep::File(Arc::new(map))))
    }

    /// Maps a part of a file for reading only. Whoever has it must not write: that would end the process with a signal.
    pub(crate) fn of_file_to_read(file: &File, offset: u64, len: usize) -> std::io::Result<Self> {
        let map = MmapOptions::new().offset(offset).len(len).map_raw_read_only(file)?;
        Ok(Self::mapped(map.as_mut_ptr(), map.len(), Keep::File(Arc::new(map))))
    }

    /// Uses memory that the caller keeps valid, for example from its own allocator.
    ///
    /// # Safety
    /// From now on, until the end of use described below:
    /// - `base..base + len` is memory of one allocation, valid for reads and writes by any thread; it is not freed, moved,
    ///   unmapped or made read-only. Neither need be aligned.
    /// - There is no Rust reference to any of it while a device may write there. While a method of [`Mapping`] or
    ///   [`MemoryRegion`](crate::MemoryRegion) accesses it on one thread, other threads access it only with atomic operations.
    ///   (On the soft device, all commands and posts to that device count as accesses.)
    /// - There is no other `Mapping` of a part of this memory, unless it has the same start and end.
    ///
    /// The use ends when no clone of this mapping is left and each region created from it has been destroyed, that is,
    /// [`destroy`](crate::MemoryRegion::destroy) returned `Ok`. A region that was dropped instead may not have been deregistered;
    /// a device may then access the memory until the process ends.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use uverbs::{AccessFlags, Mapping};
    /// # fn main() -> uverbs::Result<()> {
    /// # let pd = uverbs::SoftDevice::default().open()?.alloc_pd()?;
    /// let mut arena = vec![0_u8; 1 << 16]; // your allocator's
    /// let base = NonNull::new(arena.as_mut_ptr()).unwrap();
    /// // SAFETY: `arena` is neither moved nor looked at before the region is destroyed.
    /// let memory = unsafe { Mapping::from_raw(base, arena.len()) };
    /// let region = pd.memory(&memory).access(AccessFlags::LOCAL_WRITE).register()?;
    /// drop(memory);
    /// region.write(3, b"hello")?;
    /// region.destroy().map_err(|(_, error)| error)?;
    /// assert_eq!(&arena[3..8], b"hello");
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn from_raw(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len, pages: false, keep: Keep::Caller }
    }

    /// A zeroed block of at least `len` bytes, rounded up to whole pages. The pages of a large block are not touched, so it takes memory
    /// only as it is used: a request for more than is available returns an error, and the kernel does not end the process.
    ///
    /// # Errors
    /// `EINVAL` for a length of zero, `ENOMEM` if there is not enough memory.
    pub(crate) fn block(len: usize) -> Result<Self, Errno> {
        let size = len.checked_next_multiple_of(PAGE).filter(|size| *size > 0).ok_or(Errno::EINVAL)?;
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| Errno::ENOMEM)?;
        if size >= LARGE && !cfg!(miri) {
            // The standard library would write all of a zeroed allocation with this alignment.
            return MmapMut::map_anon(size).map(Self::from).map_err(|_| Errno::ENOMEM);
        }
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        let block = Block { base, layout };
        Ok(Self { base, len: size, pages: true, keep: Keep::Block(Arc::new(block)) })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether its length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address in the form that the device gets.
    #[inline]
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// The place of `len` bytes at `offset`, if they are inside.
    #[inline]
    pub(crate) fn place(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: `offset <= end <= self.len`, inside the allocation (first invariant).
        (end <= self.len).then(|| unsafe { self.base.add(offset) })
    }

    /// Loads the 32-bit word at `offset`; zero outside the mapping.
    #[inline]
    pub fn load(&self, offset: usize, order: Ordering) -> u32 {
        self.words(offset).map_or(0, |[word]| word.load(order))
    }

    /// Stores to the 32-bit word at `offset`; no effect outside the mapping.
    #[inline]
    pub fn store(&self, offset: usize, value: u32, order: Ordering) {
        if let Some([word]) = self.words(offset) {
            word.store(value, order);
        }
    }

    /// `count` words from `offset` on. `None` if they are not inside the mapping, or if the address is not a multiple of four.
    #[inline]
    pub(crate) fn many_words(&self, offset: usize, count: usize) -> Option<&[AtomicU32]> {
        let place = self.place(offset, count.checked_mul(4)?)?;
        let is_aligned = place.addr().get().is_multiple_of(4);
        // SAFETY: inside the mapping, aligned, alive as long as `self`, and only ever used atomically.
        is_aligned.then(|| unsafe { std::slice::from_raw_parts(place.cast().as_ptr(), count) })
    }

    /// `N` words from `offset` on. `None` if they are not inside the mapping, or if the address is not a multiple of four.
    #[inline]
    pub(crate) fn words<const N: usize>(&self, offset: usize) -> Option<&[AtomicU32; N]> {
        self.many_words(offset, N)?.first_chunk()
    }

    /// Copies from `offset` into `bytes`. If the range exceeds the mapping, it copies nothing and returns false.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        let Some(place) = self.place(offset, bytes.len()) else { return false };
        if is_whole(place, bytes.len()) {
            // SAFETY: whole words, inside the mapping.
            unsafe { read_words(place, bytes) };
        } else {
            self.read_at_any(offset, place, bytes);
        }
        true
    }

    /// Copies `bytes` to `offset`. If the range exceeds the mapping, it copies nothing and returns false.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(place) = self.place(offset, bytes.len()) else { return false };
        if is_whole(place, bytes.len()) {
            // SAFETY: whole words, inside the mapping.
            unsafe { write_words(place, bytes) };
        } else {
            self.write_at_any(offset, place, bytes);
        }
        true
    }

    /// [`Mapping::read`] of a part of a word, whole words, and a part of a word.
    #[inline(never)]
    fn read_at_any(&self, offset: usize, place: NonNull<u8>, bytes: &mut [u8]) {
        let (head, words) = parts(place, bytes.len());
        let (first, rest) = bytes.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(words);
        self.read_part(offset, first);
        // SAFETY: `head` bytes on is still inside, at the beginning of a word, and `middle` is whole words.
        unsafe { read_words(place.add(head), middle) };
        self.read_part(offset + head + words, last);
    }

    /// [`Mapping::write`] of a part of a word, whole words, and a part of a word.
    #[inline(never)]
    fn write_at_any(&self, offset: usize, place: NonNull<u8>, bytes: &[u8]) {
        let (head, words) = parts(place, bytes.len());
        let (first, rest) = bytes.split_at(head);
        let (middle, last) = rest.split_at(words);
        self.write_part(offset, first);
        // SAFETY: as in `read_at_any`.
        unsafe { write_words(place.add(head), middle) };
        self.write_part(offset + head + words, last);
    }

    /// The word that contains the byte at `offset`, if all of it may be accessed, and the position of the byte in it.
    fn word_around(&self, offset: usize) -> (Option<&AtomicU32>, usize) {
        let Some(place) = self.place(offset, 1) else { return (None, 0) };
        let start = place.addr().get() % 4;
        let word = place.as_ptr().wrapping_sub(start);
        let first = self.base.addr().get();
        let is_whole = self.pages || (word.addr() >= first && word.addr() + 4 <= first + self.len);
        // SAFETY: an aligned word that may be accessed as a whole (second and third invariant), alive as long as `self`, and by its
        // address only accessed as a word.
        (is_whole.then(|| unsafe { AtomicU32::from_ptr(word.cast()) }), start)
    }

    /// The byte at `offset`, in a word that may not be accessed as a whole.
    fn byte(&self, offset: usize) -> Option<&AtomicU8> {
        let place = self.place(offset, 1)?;
        // SAFETY: inside the mapping, alive as long as `self`, and by its address only accessed as a byte.
        Some(unsafe { AtomicU8::from_ptr(place.as_ptr()) })
    }

    /// Copies a part of one word out, if the word may be accessed as a whole.
    fn read_part(&self, offset: usize, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        if let (Some(word), start) = self.word_around(offset) {
            let end = start + bytes.len();
            return bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[start..end]);
        }
        for (i, value) in bytes.iter_mut().enumerate() {
            *value = self.byte(offset + i).map_or(0, |byte| byte.load(Ordering::Relaxed));
        }
    }

    /// Copies a part of one word in, if the word may be accessed as a whole.
    fn write_part(&self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let (Some(word), start) = self.word_around(offset) {
            // The other bytes of the word belong to other code, which may be writing them.
            let merge = |old: u32| {
                let mut merged = old.to_ne_bytes();
                merged[start..start + bytes.len()].copy_from_slice(bytes);
                Some(u32::from_ne_bytes(merged))
            };
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
            return;
        }
        for (i, value) in bytes.iter().enumerate() {
            if let Some(byte) = self.byte(offset + i) {
                byte.store(*value, Ordering::Relaxed);
            }
        }
    }
}

/// Whether `len` bytes at `place` are whole words.
#[inline]
fn is_whole(place: NonNull<u8>, len: usize) -> bool {
    place.addr().get().is_multiple_of(4) && len.is_multiple_of(4)
}

/// Copies whole words out.
///
/// # Safety
/// At `from`, the beginning of a word, there are `to.len()` bytes, a multiple of four, that are valid for atomic reads.
#[inline]
unsafe fn read_words(mut from: NonNull<u8>, to: &mut [u8]) {
    for bytes in to.as_chunks_mut().0 {
        // SAFETY: an aligned word of the bytes; the next one, or their end, is behind it.
        unsafe {
            *bytes = AtomicU32::from_ptr(from.as_ptr().cast()).load(Ordering::Relaxed).to_ne_bytes();
            from = from.add(4);
        }
    }
}

/// Copies whole words in.
///
/// # Safety
/// At `to`, the beginning of a word, there are `from.len()` bytes, a multiple of four, that are valid for atomic writes.
#[inline]
unsafe fn write_words(mut to: NonNull<u8>, from: &[u8]) {
    let mut store = |bytes: &[u8; 4]| {
        // SAFETY: an aligned word of the bytes; the next one, or their end, is behind it.
        unsafe {
            AtomicU32::from_ptr(to.as_ptr().cast()).store(u32::from_ne_bytes(*bytes), Ordering::Relaxed);
            to = to.add(4);
        }
    };
    // Four words at a time: the compiler does not do this by itself for atomic stores.
    let (blocks, rest) = from.as_chunks::<16>();
    for block in blocks {
        block.as_chunks().0.iter().for_each(&mut store);
    }
    rest.as_chunks().0.iter().for_each(store);
}

/// Of `len` bytes at `place`, the number before the first whole word, and the number in whole words.
#[inline]
fn parts(place: NonNull<u8>, len: usize) -> (usize, usize) {
    let head = (place.addr().get().wrapping_neg() % 4).min(len);
    (head, (len - head) / 4 * 4)
}

pub(crate) mod barrier;
mod joined;
#[cfg(feature = "raw")]
pub(crate) mod mapped;
pub(crate) mod page;
mod register;
#[cfg_attr(not(feature = "raw"), allow(unreachable_pub, dead_code))]
pub(crate) mod source;
mod value;

#[cfg(test)]
mod tests;
