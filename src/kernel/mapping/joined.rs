//! Two mappings of files that one call unmaps.
//!
//! # Safety
//! - The pages of a [`Joined`] are those of two mappings, one directly after the other. Both owners were given up when it was made, so it
//!   is their only owner, and each of the two mappings that share it lives as long as it does.

#![allow(unsafe_code)]

use std::mem::forget;
use std::ptr::NonNull;
use std::sync::Arc;

use nix::libc;

use super::page::page_size;
use super::{Keep, Mapping};

/// The pages of two mappings.
#[derive(Debug)]
pub(super) struct Joined {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is a number and a length until it is unmapped, which any thread may do.
unsafe impl Send for Joined {}
// SAFETY: nothing can be done with a `&Joined`.
unsafe impl Sync for Joined {}

impl Drop for Joined {
    fn drop(&mut self) {
        // SAFETY: the pages are mapped, and this is their only owner. It cannot fail.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Mapping {
    /// These two, of which one owner unmaps the pages of both by one call, if they are of files and the kernel has put them next to each
    /// other. It does so if it maps one after the other, and no other thread maps anything meanwhile.
    pub(crate) fn joined(one: Self, other: Self) -> [Self; 2] {
        let (Keep::File(first), Keep::File(second)) = (&one.keep, &other.keep) else { return [one, other] };
        let is_shared = Arc::strong_count(first) > 1 || Arc::strong_count(second) > 1;
        let page = page_size();
        let (low, high) = if one.base < other.base { (&one, &other) } else { (&other, &one) };
        let len = low.len.next_multiple_of(page);
        if is_shared || low.base.addr().get() + len != high.base.addr().get() {
            return [one, other];
        }
        let joined = Arc::new(Joined { base: low.base, len: len + high.len.next_multiple_of(page) });
        [one, other].map(|mapping| {
            // Nobody else has it.
            if let Keep::File(owner) = mapping.keep
                && let Some(owner) = Arc::into_inner(owner)
            {
                forget(owner);
            }
            Self { keep: Keep::Joined(joined.clone()), ..mapping }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// Whether a page is mapped.
    fn is_mapped(mapping: u64, page: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let address = mapping as usize + page * page_size();
        maps.lines().any(|line| {
            let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            number(from) <= address && address < number(to)
        })
    }

    fn file() -> File {
        let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
        let file = File::from(nix::sys::memfd::memfd_create("joined", flags).unwrap());
        file.set_len(4 * page_size() as u64).unwrap();
        file
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn two_mappings_stay_until_both_are_dropped() {
        let (file, page) = (file(), page_size());
        let at = |offset: usize, len| Mapping::of_file(&file, (offset * page) as u64, len).unwrap();
        // Other threads of the tests map too, and leave holes that only one of the two fits. What is held fills them.
        let mut holes = Vec::new();
        for _ in 0..1_000 {
            let [one, other] = Mapping::joined(at(0, page + 1), at(2, 100));
            assert!(one.write(page, &[7]) && other.write(99, &[8]));
            if !matches!(one.keep, Keep::Joined(_)) {
                holes.push([one, other]);
                continue;
            }
            let address = other.address();
            drop(one);
            assert!(is_mapped(address, 0));
            let mut back = [0];
            assert!(other.read(99, &mut back) && back == [8]);
            return;
        }
        panic!("the kernel never maps one next to the other");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn what_others_share_or_is_not_of_a_file_is_left_alone() {
        let (file, page) = (file(), page_size());
        let one = Mapping::of_file(&file, 0, page).unwrap();
        let [shared, other] =
            Mapping::joined(one.clone(), Mapping::of_file(&file, page as u64, page).unwrap());
        assert!(matches!((&shared.keep, &other.keep), (Keep::File(_), Keep::File(_))));
        drop((shared, other));
        assert!(one.write(0, &[1]));
        let [block, one] = Mapping::joined(Mapping::block(page).unwrap(), one);
        assert!(matches!((&block.keep, &one.keep), (Keep::Block(_), Keep::File(_))));
    }
}
