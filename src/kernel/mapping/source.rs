//! Memory of another owner, and where the memory of rings comes from.
//!
//! # Safety
//! The memory is valid until its owner is dropped, as the caller of [`Mapping::from_owner`] has promised; the mapping and its clones have the
//! owner. All else is as in `mod.rs`.

#![allow(unsafe_code)]

#[cfg(any(feature = "raw", test))]
use std::any::Any;
use std::fmt::{self, Debug, Formatter};
#[cfg(any(feature = "raw", test))]
use std::ptr::NonNull;
use std::sync::Arc;

use nix::errno::Errno;

#[cfg(any(feature = "raw", test))]
use super::Keep;
use super::{Mapping, PAGE};

#[cfg(any(feature = "raw", test))]
impl Mapping {
    /// Uses memory that `owner` keeps valid. It is dropped with the last clone of this mapping, and with what was created on it.
    ///
    /// # Safety
    /// As [`Mapping::from_raw`], until `owner` is dropped.
    pub unsafe fn from_owner(base: NonNull<u8>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { base, len, pages: false, keep: Keep::Owner(owner) }
    }
}

/// Makes a block of at least so many bytes.
type Make = dyn Fn(usize) -> Result<Mapping, Errno> + Send + Sync;

/// Where the memory of rings comes from: blocks of zeros that begin at a page.
#[derive(Clone, Default)]
pub struct BlockSource(Option<Arc<Make>>);

impl Debug for BlockSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "BlockSource(own)" } else { "BlockSource" })
    }
}

impl BlockSource {
    /// Blocks that `make` returns for a number of bytes, a multiple of 4096. They need not be zeroed.
    pub fn new(make: impl Fn(usize) -> Result<Mapping, Errno> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(make)))
    }

    /// A block of at least `len` bytes.
    ///
    /// # Errors
    /// Those of [`Mapping::block`] and of the program's function; `EINVAL` if that returned a block that is too small, or that does not
    /// begin at a page.
    pub(crate) fn block(&self, len: usize) -> Result<Mapping, Errno> {
        let Some(make) = &self.0 else { return Mapping::block(len) };
        let size = len.checked_next_multiple_of(PAGE).filter(|size| *size > 0).ok_or(Errno::EINVAL)?;
        let block = make(size)?;
        if block.len() < size || !block.address().is_multiple_of(PAGE as u64) {
            return Err(Errno::EINVAL);
        }
        for at in (0..size).step_by(PAGE) {
            // It is inside.
            let _ = block.write(at, &[0; PAGE]);
        }
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Says when it is dropped.
    struct Owner(Arc<Mutex<u32>>, #[expect(dead_code, reason = "the memory")] Mapping);

    impl Drop for Owner {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }

    #[test]
    fn blocks_are_zeroed_and_go_back_to_their_owner_when_nobody_uses_them() {
        let freed = Arc::new(Mutex::new(0));
        let count = freed.clone();
        let source = BlockSource::new(move |len| {
            let memory = Mapping::block(len)?;
            assert!(memory.write(100, &[7; 8]));
            let base = memory.place(0, len).ok_or(Errno::ENOMEM)?;
            // SAFETY: the owner has the memory.
            Ok(unsafe { Mapping::from_owner(base, len, Arc::new(Owner(count.clone(), memory))) })
        });
        let block = source.block(5000).unwrap();
        assert_eq!((block.len(), block.load(100, std::sync::atomic::Ordering::Relaxed)), (8192, 0));
        let clone = block.clone();
        drop(block);
        assert_eq!(*freed.lock().unwrap(), 0);
        drop(clone);
        assert_eq!(*freed.lock().unwrap(), 1);
    }

    #[test]
    fn blocks_that_are_too_small_or_begin_inside_a_page_are_refused() {
        assert_eq!(BlockSource::new(|_| Mapping::block(4096)).block(4097).unwrap_err(), Errno::EINVAL);
        let odd = BlockSource::new(|len| {
            let memory = Mapping::block(len + 64)?;
            let base = memory.place(64, len).ok_or(Errno::ENOMEM)?;
            // SAFETY: the owner has the memory.
            Ok(unsafe { Mapping::from_owner(base, len, Arc::new(memory)) })
        });
        assert_eq!(odd.block(10).unwrap_err(), Errno::EINVAL);
        assert_eq!(BlockSource::new(|_| Err(Errno::ENOSPC)).block(10).unwrap_err(), Errno::ENOSPC);
        assert_eq!(BlockSource::default().block(0).unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn unaligned_memory_has_no_unaligned_words() {
        for (skip, len) in [(0, 9), (1, 9), (2, 4), (3, 2), (5, 21)] {
            let mut memory = [0xff_u8; 32];
            let base = NonNull::new(memory.as_mut_ptr()).unwrap();
            // SAFETY: inside `memory`, which nothing else uses while the mapping exists.
            let map = unsafe { Mapping::from_raw(base.add(skip), len) };
            assert!(map.write(0, &vec![skip as u8; len]));
            for offset in 0..len {
                let is_word = (map.address() + offset as u64).is_multiple_of(4) && offset + 4 <= len;
                assert_eq!(map.words::<1>(offset).is_some(), is_word);
            }
            let mut back = vec![0; len];
            assert!(map.read(0, &mut back));
            assert_eq!(back, vec![skip as u8; len]);
            assert!(Box::<[u8]>::try_from(map).is_err());
            let (inside, outside): (Vec<_>, Vec<_>) =
                memory.iter().enumerate().partition(|(at, _)| (skip..skip + len).contains(at));
            assert!(inside.iter().all(|(_, byte)| usize::from(**byte) == skip));
            assert!(outside.iter().all(|(_, byte)| **byte == 0xff));
        }
    }
}
