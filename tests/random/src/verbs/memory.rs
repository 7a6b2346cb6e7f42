//! Memory regions.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use uverbs::AccessFlags;

use super::{done, ends, verb};
use crate::language::Arg::{Has, New, One, Word};
use crate::language::Kind::{Domain, Region};
use crate::language::{NONE, Verb};
use crate::world::{MEMORY, Miss};

/// Access rights, the most useful first.
const RIGHTS: &[&str] = &[
    "all",
    "local",
    "none",
    "write",
    "read",
    "atomic",
    "windows",
    "zero-based",
    "relaxed",
    "ondemand",
    "wrong",
    "unknown",
];

pub(super) fn rights(word: u64) -> AccessFlags {
    let flags = AccessFlags::from_bits_retain;
    match RIGHTS[word as usize] {
        "all" => {
            AccessFlags::LOCAL_WRITE
                | AccessFlags::REMOTE_WRITE
                | AccessFlags::REMOTE_READ
                | AccessFlags::REMOTE_ATOMIC
                | AccessFlags::MW_BIND
        }
        "local" => AccessFlags::LOCAL_WRITE,
        "write" => AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE,
        "read" => AccessFlags::REMOTE_READ,
        "atomic" => AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC,
        "windows" => AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND,
        "zero-based" => AccessFlags::LOCAL_WRITE | AccessFlags::ZERO_BASED,
        "relaxed" => AccessFlags::LOCAL_WRITE | AccessFlags::RELAXED_ORDERING,
        "ondemand" => AccessFlags::LOCAL_WRITE | AccessFlags::ON_DEMAND,
        // Remote writes require local ones.
        "wrong" => AccessFlags::REMOTE_WRITE,
        "unknown" => flags(1 << 15),
        _ => AccessFlags::empty(),
    }
}

pub(super) const ACCESS: crate::language::Arg = Word(RIGHTS);
pub(super) const LENGTHS: crate::language::Arg =
    One(&[64, 0, 1, 8, 15, 16, 100, 1024, 1025, 4095, 4096, 5000, 8192, 16384, 16385, 0xffff_ffff]);
pub(super) const OFFSETS: crate::language::Arg =
    One(&[0, 1, 8, 64, 1000, 4095, 4096, 8191, 8192, 16383, 16384, 16385]);

/// A checksum that identifies bytes.
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb(
            "mr",
            4,
            &[New(Region), Has(Domain), One(&[16384, 0, 1, 4096, 4097, 1 << 20, 1 << 50]), ACCESS],
            |w, a| {
                w.regions.free(a[0])?;
                let region = w.domains.get(a[1])?.register(a[2] as usize, rights(a[3]))?;
                // Its memory may have belonged to another one.
                let place = region.address()..region.address() + a[2];
                w.headers.retain(|header| !place.contains(header));
                w.regions.put(a[0], region);
                done(())
            },
        ),
        verb(
            "mr-of",
            2,
            &[New(Region), Has(Domain), OFFSETS, LENGTHS, One(&[NONE, 0, 4096, 4097, 0x1_0000_0000]), ACCESS],
            |w, a| {
                w.regions.free(a[0])?;
                let range = a[2] as usize..a[2].saturating_add(a[3]) as usize;
                let mut builder = w.domains.get(a[1])?.memory(&w.memory).range(range).access(rights(a[5]));
                if a[4] != NONE {
                    builder = builder.iova(a[4]);
                }
                let region = builder.register()?;
                w.regions.put(a[0], region);
                done(())
            },
        ),
        verb("mr-dmabuf", 1, &[New(Region), Has(Domain), LENGTHS, ACCESS], |w, a| {
            w.regions.free(a[0])?;
            let file = crate::memory::file(MEMORY);
            let region = w.domains.get(a[1])?.register_dmabuf(file.as_fd(), 0..a[2], 0, rights(a[3]))?;
            w.regions.put(a[0], region);
            done(())
        }),
        verb("mr-read", 3, &[Has(Region), OFFSETS, LENGTHS], |w, a| {
            let region = w.regions.get(a[0])?;
            // A buffer of any requested size is not tested here.
            let mut bytes = vec![0; (a[2] as usize).min(1 << 20)];
            region.read(a[1] as usize, &mut bytes)?;
            w.without_headers(region.address().wrapping_add(a[1]), &mut bytes);
            Ok(format!("{:08x}", sum(&bytes)))
        }),
        verb("mr-write", 3, &[Has(Region), OFFSETS, LENGTHS, One(&[1, 2, 255])], |w, a| {
            w.own_memory()?;
            let bytes: Vec<_> =
                (0..(a[2] as usize).min(1 << 20)).map(|at| (at as u64 * a[3]) as u8).collect();
            done(w.regions.get(a[0])?.write(a[1] as usize, &bytes)?)
        }),
        verb("mr-facts", 1, &[Has(Region)], |w, a| {
            let region = w.regions.get(a[0])?;
            region.segment(..)?;
            let is_zero_based = region.address() == 0;
            let keys = region.lkey() == region.rkey();
            Ok(format!(
                "{} {} {} {is_zero_based} {keys}",
                region.len(),
                region.is_empty(),
                region.access().bits()
            ))
        }),
        verb("mr-access", 1, &[Has(Region), ACCESS], |w, a| {
            done(w.regions.get_mut(a[0])?.change_access(rights(a[1]))?)
        }),
        verb("mr-domain", 1, &[Has(Region), Has(Domain)], |w, a| {
            let domain = w.domains.get(a[1])?;
            done(w.regions.get_mut(a[0])?.change_domain(domain)?)
        }),
        verb("mr-memory", 1, &[Has(Region), OFFSETS, LENGTHS], |w, a| {
            let range = a[1] as usize..a[1].saturating_add(a[2]) as usize;
            done(w.regions.get_mut(a[0])?.change_memory(&w.memory, range, None)?)
        }),
        verb("memory-word", 1, &[OFFSETS, One(&[0, 7, 0xffff_ffff])], |w, a| {
            let at = a[0] as usize;
            w.memory.store(at, a[1] as u32, Ordering::Relaxed);
            Ok(w.memory.load(at, Ordering::Relaxed).to_string())
        }),
        verb("memory", 1, &[OFFSETS, LENGTHS, One(&[0, 7])], |w, a| {
            w.own_memory()?;
            let (at, len) = (a[0] as usize, (a[1] as usize).min(1 << 20));
            let mut bytes = vec![a[2] as u8; len];
            let could = w.memory.write(at, &bytes) && w.memory.read(at, &mut bytes);
            if !could {
                return Err(Miss::Absent);
            }
            Ok(format!("{:08x} {} {}", sum(&bytes), w.memory.len(), w.memory.is_empty()))
        }),
    ],
    &ends!(Region, regions, "destroy-mr", "drop-mr"),
];
