//! Memory keys: which memory a work request may name, and how.

use std::collections::BTreeMap;

use crate::bits::Bits;
use crate::command::Status;
use crate::ifc::command::create_mkey_in;
use crate::ifc::context::mkc;
use crate::memory::Memory;
use crate::queue::Segment;

/// What a work request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    LocalRead,
    LocalWrite,
}

/// Why it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    NoKey,
    Domain,
    Access,
    Range,
    Memory,
}

/// How addresses of a key become those of memory.
#[derive(Debug)]
enum Translation {
    /// They are bus addresses.
    None,
    /// By a list of pages.
    Pages { pages: Vec<u64>, shift: u32 },
    /// By a list of pieces of other keys, one behind the other.
    Keys(Vec<Segment>),
}

#[derive(Debug)]
struct Mkey {
    context: Vec<u8>,
    translation: Translation,
}

/// Keys of keys are followed so far.
const DEPTH: u32 = 4;

/// All memory keys, by their index: the upper 24 bits.
#[derive(Debug, Default)]
pub(crate) struct Mkeys {
    keys: BTreeMap<u32, Mkey>,
}

impl Mkeys {
    /// The key for the driver's own memory, by bus addresses. It has index 0, which no made key has.
    pub(crate) fn reserved(&self) -> u32 {
        0x01
    }

    /// Adds a key as CREATE_MKEY describes it.
    ///
    /// # Errors
    /// `BadParameter` for what the device does not have, `BadInputLength` when a list is too short.
    pub(crate) fn insert(&mut self, index: u32, input: &[u8]) -> Result<(), Status> {
        let context = input.part(create_mkey_in::memory_key_mkey_entry);
        let list = input.part(create_mkey_in::klm_pas_mtt);
        let octwords = input.num(create_mkey_in::translations_octword_actual_size) as usize;
        let list = list.get(..octwords * 16).ok_or(Status::BadInputLength)?;
        let (numbers, _) = list.as_chunks::<8>();
        let translation = match context.num(mkc::access_mode_4_2) << 2 | context.num(mkc::access_mode_1_0) {
            0 => Translation::None,
            1 => Translation::Pages {
                pages: numbers.iter().map(|page| u64::from_be_bytes(*page) & !0xfff).collect(),
                shift: context.num(mkc::log_page_size),
            },
            2 => Translation::Keys(list.as_chunks().0.iter().map(Segment::parse).collect()),
            _ => return Err(Status::BadParameter),
        };
        if matches!(&translation, Translation::Pages { shift, .. } if !(12..=31).contains(shift) && !numbers.is_empty())
        {
            return Err(Status::BadParameter);
        }
        self.keys.insert(index, Mkey { context: context.to_vec(), translation });
        Ok(())
    }

    pub(crate) fn remove(&mut self, index: u32) {
        self.keys.remove(&index);
    }

    pub(crate) fn context(&self, index: u32) -> Option<&[u8]> {
        self.keys.get(&index).map(|key| &key.context[..])
    }

    /// Reads what a segment names, as many bytes as there are.
    ///
    /// # Errors
    /// [`Denied`] when the protection domain may not.
    pub(crate) fn read(
        &self,
        memory: &Memory,
        pd: u32,
        segment: Segment,
        bytes: &mut [u8],
        access: Access,
    ) -> Result<(), Denied> {
        let mut at = 0;
        for (address, len) in self.translate(pd, segment, bytes.len() as u64, access, DEPTH)? {
            let len = len as usize;
            memory.read(address, &mut bytes[at..at + len]).map_err(|_| Denied::Memory)?;
            at += len;
        }
        Ok(())
    }

    /// Writes what a segment names, as many bytes as there are.
    ///
    /// # Errors
    /// [`Denied`] when the protection domain may not.
    pub(crate) fn write(
        &self,
        memory: &Memory,
        pd: u32,
        segment: Segment,
        bytes: &[u8],
        access: Access,
    ) -> Result<(), Denied> {
        let mut at = 0;
        for (address, len) in self.translate(pd, segment, bytes.len() as u64, access, DEPTH)? {
            let len = len as usize;
            memory.write(address, &bytes[at..at + len]).map_err(|_| Denied::Memory)?;
            at += len;
        }
        Ok(())
    }

    /// The pieces of memory behind `len` bytes of a segment.
    fn translate(
        &self,
        pd: u32,
        segment: Segment,
        len: u64,
        access: Access,
        depth: u32,
    ) -> Result<Vec<(u64, u64)>, Denied> {
        if len == 0 {
            return Ok(Vec::new());
        }
        if segment.key == self.reserved() {
            return Ok(vec![(segment.address, len)]);
        }
        let key = self.keys.get(&(segment.key >> 8)).filter(|_| depth > 0).ok_or(Denied::NoKey)?;
        let context = &key.context[..];
        if context.is(mkc::free) || context.num(mkc::mkey_7_0) != segment.key & 0xff {
            return Err(Denied::NoKey);
        }
        if context.num(mkc::pd) != pd {
            return Err(Denied::Domain);
        }
        let needed = match access {
            Access::LocalRead => mkc::lr,
            Access::LocalWrite => mkc::lw,
        };
        if !context.is(needed) {
            return Err(Denied::Access);
        }
        let all = context.is(mkc::length64);
        let start = if all { 0 } else { context.wide(mkc::start_addr) };
        let offset = segment.address.checked_sub(start).ok_or(Denied::Range)?;
        let end = offset.checked_add(len).ok_or(Denied::Range)?;
        if !all && end > context.wide(mkc::len) {
            return Err(Denied::Range);
        }
        match &key.translation {
            Translation::None => Ok(vec![(segment.address, len)]),
            Translation::Pages { pages, shift } => in_pages(pages, *shift, start, offset, len),
            Translation::Keys(segments) => {
                let mut found = Vec::new();
                let (mut skip, mut left) = (offset, len);
                for part in segments {
                    let here = u64::from(part.len).saturating_sub(skip).min(left);
                    if here > 0 {
                        let address = part.address.checked_add(skip).ok_or(Denied::Range)?;
                        found.extend(self.translate(
                            pd,
                            Segment { address, ..*part },
                            here,
                            access,
                            depth - 1,
                        )?);
                    }
                    skip = skip.saturating_sub(part.len.into());
                    left -= here;
                }
                if left == 0 { Ok(found) } else { Err(Denied::Range) }
            }
        }
    }
}

/// The first address of a key lies in its first page where it lies in a page of its own.
fn in_pages(pages: &[u64], shift: u32, start: u64, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, Denied> {
    let size = 1_u64 << shift;
    let mut at = (start & (size - 1)) + offset;
    let mut left = len;
    let mut found = Vec::new();
    while left > 0 {
        let page =
            usize::try_from(at >> shift).ok().and_then(|index| pages.get(index)).ok_or(Denied::Range)?;
        let inside = at & (size - 1);
        let here = (size - inside).min(left);
        found.push((page + inside, here));
        at += here;
        left -= here;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::BitsMut;
    use crate::ifc::context::mkc;
    use crate::memory::tests::memory;

    const PD: u32 = 3;
    const START: u64 = 0x7000_0800;

    /// Keys 0x10 to 0x12: two pages that are apart, with an address of the process; the same read-only; a key of keys.
    fn keys() -> Mkeys {
        let mut keys = Mkeys::default();
        let mut add = |index: u32, mode: u32, writes: bool, start: u64, len: u64, list: &[u8]| {
            let mut input = vec![0; 272];
            input.set(create_mkey_in::translations_octword_actual_size, list.len() as u32 / 16);
            input.extend(list);
            let context = input.part_mut(create_mkey_in::memory_key_mkey_entry);
            let values = [(mkc::pd, PD), (mkc::lr, 1), (mkc::lw, writes.into()), (mkc::mkey_7_0, 0x55)];
            values.into_iter().for_each(|(field, value)| context.set(field, value));
            context.set(mkc::access_mode_1_0, mode);
            context.set(mkc::log_page_size, 12_u32);
            context.set(mkc::start_addr, start);
            context.set(mkc::len, len);
            keys.insert(index, &input)
        };
        let pages = [0x9000_u64.to_be_bytes(), 0x1003_u64.to_be_bytes()].concat();
        add(0x10, 1, true, START, 0x1000, &pages).unwrap();
        add(0x11, 1, false, START, 0x1000, &pages).unwrap();
        let piece = |len: u32, key: u32, address: u64| {
            [&len.to_be_bytes()[..], &key.to_be_bytes(), &address.to_be_bytes()].concat()
        };
        let pieces = [piece(8, 0x1055, START + 0x7fc), piece(4, 0x1055, START)].concat();
        add(0x12, 2, true, 0, 12, &pieces).unwrap();
        assert_eq!(add(0x13, 3, true, 0, 0, &[]), Err(Status::BadParameter));
        keys
    }

    fn read(keys: &Mkeys, pd: u32, key: u32, address: u64, len: usize) -> Result<Vec<u8>, Denied> {
        let memory = memory(&[(0x1000, 4096), (0x9000, 4096)]);
        memory.write(0x9800, &[1, 2, 3, 4]).unwrap();
        memory.write(0x9ffc, &[5, 6, 7, 8]).unwrap();
        memory.write(0x1000, &[9, 10, 11, 12]).unwrap();
        let mut bytes = vec![0; len];
        let segment = Segment { len: len as u32, key, address };
        keys.read(&memory, pd, segment, &mut bytes, Access::LocalRead).map(|()| bytes)
    }

    #[test]
    fn addresses_go_through_pages_and_keys_of_keys() {
        let keys = keys();
        assert_eq!(read(&keys, PD, 0x1055, START, 4), Ok(vec![1, 2, 3, 4]));
        assert_eq!(read(&keys, PD, 0x1055, START + 0x7fc, 8), Ok(vec![5, 6, 7, 8, 9, 10, 11, 12]));
        assert_eq!(read(&keys, PD, 0x1255, 2, 8), Ok(vec![7, 8, 9, 10, 11, 12, 1, 2]));
        assert_eq!(read(&keys, PD, keys.reserved(), 0x9ffc, 4), Ok(vec![5, 6, 7, 8]));
    }

    #[test]
    fn what_is_not_allowed_is_denied() {
        let keys = keys();
        assert_eq!(read(&keys, PD, 0x1056, START, 4), Err(Denied::NoKey));
        assert_eq!(read(&keys, PD, 0x2055, START, 4), Err(Denied::NoKey));
        assert_eq!(read(&keys, PD + 1, 0x1055, START, 4), Err(Denied::Domain));
        assert_eq!(read(&keys, PD, 0x1055, START - 1, 4), Err(Denied::Range));
        assert_eq!(read(&keys, PD, 0x1055, START + 0xffd, 4), Err(Denied::Range));
        assert_eq!(read(&keys, PD, 0x1055, u64::MAX, 4), Err(Denied::Range));
        assert_eq!(read(&keys, PD, 0x1255, 10, 4), Err(Denied::Range));
        assert_eq!(read(&keys, PD, keys.reserved(), 0x5000, 4), Err(Denied::Memory));
        let memory = memory(&[(0x9000, 4096)]);
        let segment = Segment { len: 4, key: 0x1155, address: START };
        assert_eq!(keys.write(&memory, PD, segment, &[0; 4], Access::LocalWrite), Err(Denied::Access));
        let segment = Segment { key: 0x1055, ..segment };
        assert_eq!(keys.write(&memory, PD, segment, &[0; 4], Access::LocalWrite), Ok(()));
    }
}
