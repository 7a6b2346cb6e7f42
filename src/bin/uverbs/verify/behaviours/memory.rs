//! Memory regions, windows and domains.

use uverbs::{AccessFlags, ErrorKind, MemoryRegion, Operation, ProtectionDomain, Remote, Status, WindowType};

use super::ground::ALL;
use super::sides::{Pair, rc_pair};
use super::{Destroyed, EBUSY, EINVAL, EOPNOTSUPP, Ground, Held, Optional, holds, refused, same, same_bytes};

/// Rights of the device alone.
const LOCAL: AccessFlags = AccessFlags::LOCAL_WRITE;

pub(crate) fn memory_is_copied_in_and_out_within_its_bounds(ground: &Ground<'_>) -> Held {
    let region = ground.open()?.alloc_pd()?.register(100, AccessFlags::LOCAL_WRITE)?;
    same("the length of a region", region.len(), 100_usize)?;
    region.write(95, b"hello")?;
    let mut back = [0; 5];
    region.read(95, &mut back)?;
    same_bytes("what was written", &back, b"hello")?;
    let (kind, hint) = (ErrorKind::InvalidInput, "given, 0..");
    refused("write behind the end", region.write(96, b"hello"), kind, EINVAL, hint)?;
    refused("read behind the end", region.read(usize::MAX, &mut back), kind, EINVAL, hint)?;
    refused("a segment behind the end", region.segment(90..101), kind, EINVAL, hint)?;
    #[expect(clippy::reversed_empty_ranges)]
    let reversed = region.segment(5..4);
    refused("a segment that ends before it begins", reversed, kind, EINVAL, hint)?;
    holds("key and address", (region.lkey(), region.address()) != (0, 0), "not both zero", "zero")
}

pub(crate) fn bad_sizes_and_flags_are_refused(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let pd = context.alloc_pd()?;
    let errno = |result: uverbs::Result<_>| result.map(drop).map_err(|error| error.errno());
    same("an empty region", errno(pd.register(0, AccessFlags::empty())), Err(Some(EINVAL)))?;
    let remote_only = errno(pd.register(1, AccessFlags::REMOTE_WRITE));
    same("remote write without local write", remote_only, Err(Some(EINVAL)))?;
    let errno = |result: uverbs::Result<_>| result.map(drop).map_err(|error| error.errno());
    drop(context.create_cq(1).optional()?);
    same("a completion queue of 0 entries", errno(context.create_cq(0)), Err(Some(EINVAL)))?;
    let most = context.create_cq(u32::MAX).map(drop).map_err(|error| error.kind());
    same("a completion queue of 2^32 - 1 entries", most, Err(ErrorKind::InvalidInput))?;
    let vector = context.completion_vectors();
    same("a completion vector too high", errno(context.cq(1).vector(vector).create()), Err(Some(EINVAL)))?;
    pd.destroy().destroyed()
}

pub(crate) fn access_flags_that_do_not_fit_together_are_named(ground: &Ground<'_>) -> Held {
    let pd = ground.open()?.alloc_pd()?;
    for (flags, given) in [
        (AccessFlags::REMOTE_WRITE, "REMOTE_WRITE given"),
        (AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC, "REMOTE_READ | REMOTE_ATOMIC given"),
    ] {
        for hint in [given, "only with LOCAL_WRITE"] {
            refused(given, pd.register(4096, flags), ErrorKind::InvalidInput, EINVAL, hint)?;
        }
    }
    Ok(())
}

pub(crate) fn a_region_has_an_address_and_a_key_for_the_peer(ground: &Ground<'_>) -> Held {
    let pd = ground.open()?.alloc_pd()?;
    let region = pd.register(4096, AccessFlags::LOCAL_WRITE)?;
    let remote = region.remote();
    let is_same = (remote.address, remote.rkey) == (region.address(), region.rkey());
    holds("address and key", is_same, "those of the region", "others")
}

/// Whether the device can change regions, which rxe of Linux 6.1 cannot. If not, checks the error and the region.
fn can_change(pd: &ProtectionDomain) -> Held {
    let mut region = pd.register(64, LOCAL)?;
    let Err(error) = region.change_access(LOCAL) else { return Ok(()) };
    if error.kind() == ErrorKind::Unsupported {
        let hint = error.hint().unwrap_or_default();
        holds("the hint", hint.contains("make a new one"), "what to do instead", hint)?;
        same("the access flags after a refused change", region.access(), LOCAL)?;
        region.write(0, b"as before")?;
    }
    Err(error).optional()
}

pub(crate) fn rights_of_a_region_can_be_changed(ground: &Ground<'_>) -> Held {
    let Pair { mut one, two, .. } = rc_pair(ground)?;
    can_change(&two.pd)?;
    let mut region = two.pd.register(4096, ALL)?;
    let clone = region.clone();
    let (busy, bad) = (ErrorKind::Busy, ErrorKind::InvalidInput);
    refused("change a region with a clone", region.change_access(LOCAL), busy, EBUSY, "clone")?;
    drop(clone);
    refused("remote write alone", region.change_access(AccessFlags::REMOTE_WRITE), bad, EINVAL, "")?;
    // The mlx5 driver ignores flags that it does not know.
    if ground.driver() != "mlx5" {
        let answer = region.change_access(ALL | AccessFlags::HUGETLB);
        refused("huge pages", answer, ErrorKind::Unsupported, EOPNOTSUPP, "")?;
    }
    same("the access flags after refused changes", region.access(), ALL)?;
    let remote = |region: &MemoryRegion| Remote { address: region.address(), rkey: region.rkey() };
    one.send(1, Operation::Write(remote(&region)), 0..8)?;
    one.ends(ground, 1, Status::Success)?;
    region.change_access(LOCAL | AccessFlags::REMOTE_READ)?;
    same("the access flags after a change", region.access(), LOCAL | AccessFlags::REMOTE_READ)?;
    one.send(1, Operation::Write(remote(&region)), 0..8)?;
    one.ends(ground, 1, Status::RemoteAccess).map(drop)
}

pub(crate) fn windows_are_made(ground: &Ground<'_>) -> Held {
    let pd = ground.open()?.alloc_pd()?;
    for kind in [WindowType::One, WindowType::Two] {
        pd.alloc_window(kind).optional()?.destroy().destroyed()?;
    }
    Ok(())
}

pub(crate) fn extended_domains_are_opened(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    context.open_xrcd().optional()?.destroy().destroyed()
}
