//! Registered memory: memory that is passed in, at any address, changed and returned; and memory of other devices.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use crate::behaviours::each;
use crate::common::*;
use crate::held::hold;
use memmap2::{MmapMut, MmapOptions};
use uverbs::soft::Profile;
use uverbs::{
    AccessFlags, ErrorKind, Mapping, MemoryRegion, Operation, Prefetch, ProtectionDomain, ReceiveRequest,
    Remote, SendRequest, Status,
};

const LOCAL: AccessFlags = AccessFlags::LOCAL_WRITE;

/// Makes the peer write `text` to an offset in a region of the second side, and returns the status.
fn write_there(
    target: &Target,
    text: &[u8],
    region: impl Fn(&ProtectionDomain) -> (MemoryRegion, u64),
) -> Status {
    let (mut one, two) = rc_pair(target);
    let (region, offset) = region(&two.pd);
    one.memory.write(0, text).unwrap();
    let remote = Remote { address: region.address().wrapping_add(offset), rkey: region.rkey() };
    one.send(1, Operation::Write(remote), 0..text.len());
    one.completion().status
}

#[test]
fn memory_that_is_handed_over_is_written_by_the_peer_and_comes_back() {
    on_every_connecting_device(|target| {
        // The edges of a box are at any place in a word.
        for (len, range) in [(4096, 0..4096), (101, 0..101), (101, 3..90), (9001, 1..9000), (16, 7..16)] {
            let memory = Mapping::from(vec![b'.'; len].into_boxed_slice());
            let text = b"is it there?";
            let fits = text.len().min(range.len());
            let last = (range.len() - fits) as u64;
            let status = write_there(target, &text[..fits], |pd| {
                (pd.memory(&memory).range(range.clone()).access(ALL).register().unwrap(), last)
            });
            assert_eq!(status, Status::Success);
            let bytes = Box::<[u8]>::try_from(memory).unwrap();
            let at = range.end - fits;
            assert_eq!(&bytes[at..range.end], &text[..fits]);
            assert!(bytes[..at].iter().chain(&bytes[range.end..]).all(|byte| *byte == b'.'));
        }
    });
}

#[test]
fn memory_stays_with_its_region_until_that_is_destroyed() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        let memory = Mapping::from(MmapMut::map_anon(3000).unwrap());
        let region = pd.memory(&memory).range(100..3000).access(LOCAL).register().unwrap();
        assert_eq!((region.len(), region.access()), (2900, LOCAL));
        region.write(0, b"first").unwrap();
        refuses(region.write(2896, b"12345"), ErrorKind::InvalidInput, EINVAL, "given, 0..");
        let mut bytes = [0; 5];
        assert!(memory.read(100, &mut bytes));
        assert_eq!(&bytes, b"first");
        let memory = MmapMut::try_from(memory).unwrap_err();
        let second = pd.memory(&memory).register().unwrap();
        region.destroy().map_err(|(_, error)| error).unwrap();
        let memory = MmapMut::try_from(memory).unwrap_err();
        drop(second);
        assert_eq!(&MmapMut::try_from(memory).unwrap()[100..105], b"first");
    });
}

#[test]
fn memory_can_be_shared_between_processes() {
    on_every_connecting_device(|target| {
        let path = format!("/dev/shm/uverbs-memory-{}", std::process::id());
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(8192).unwrap();
        let map = || Mapping::of_file(&file, 0, 8192).unwrap();
        let (here, there) = (map(), map());
        let status = write_there(target, b"shared", |pd| {
            (pd.memory(&here).range(4000..8192).access(ALL).register().unwrap(), 96)
        });
        assert_eq!(status, Status::Success);
        let mut bytes = [0; 6];
        assert!(there.read(4096, &mut bytes));
        assert_eq!(&bytes, b"shared");
        assert_eq!(here.len(), 8192);
    });
}

#[test]
fn huge_pages_can_be_registered() {
    on_every_connecting_device(|target| {
        let size = 2 << 20;
        let Ok(map) = MmapOptions::new().len(size).huge(Some(21)).map_anon() else {
            return skip(target, "the machine has no free huge pages");
        };
        let memory = Mapping::from(map);
        let status = write_there(target, b"huge", |pd| {
            (pd.memory(&memory).access(ALL).register().unwrap(), size as u64 - 4)
        });
        assert_eq!(status, Status::Success);
        assert_eq!(&MmapMut::try_from(memory).unwrap()[size - 4..], b"huge");
    });
}

#[test]
fn a_region_has_the_address_that_was_asked_for() {
    on_every_connecting_device(|target| {
        let (mut one, two) = rc_pair(target);
        let memory = Mapping::from(MmapMut::map_anon(8192).unwrap());
        for iova in [0, 1 << 40, 0_u64.wrapping_sub(1 << 16)] {
            let region = two.pd.memory(&memory).access(ALL).iova(iova).register().unwrap();
            let own = one.pd.memory(&memory).access(ALL).iova(iova + 4096 + 8).range(4104..8192).register();
            let own = own.unwrap();
            assert_eq!((region.address(), own.address()), (iova, iova + 4104));
            own.write(0, &iova.to_ne_bytes()).unwrap();
            let segments = [own.segment(0..8).unwrap()];
            let remote = Remote { address: iova + 16, rkey: region.rkey() };
            let request = uverbs::SendRequest::new(1, Operation::Write(remote), &segments).signaled();
            one.qp.post_send(&[request]).unwrap();
            assert_eq!(one.completion().status, Status::Success);
            let mut bytes = [0; 8];
            region.read(16, &mut bytes).unwrap();
            assert_eq!(u64::from_ne_bytes(bytes), iova);
        }
        let region = two.pd.memory(&memory).access(ALL).iova(0).register().unwrap();
        let (process, rkey) = (memory.len() as u64, region.rkey());
        one.send(1, Operation::Write(Remote { address: process, rkey }), 0..1);
        assert_eq!(one.completion().status, Status::RemoteAccess);
    });
}

#[test]
fn memory_that_cannot_be_registered_is_refused() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        let memory = Mapping::from(MmapMut::map_anon(4096).unwrap());
        let bad = |builder: uverbs::MemoryRegionBuilder<'_>, hint: &str| {
            refuses(builder.register(), ErrorKind::InvalidInput, EINVAL, hint);
        };
        bad(pd.memory(&memory).range(0..4097), "0..4097 given, 0..4096 allowed");
        bad(pd.memory(&memory).range(17..17), "at least 1");
        bad(pd.memory(&memory).iova(1), "1 given, 0 allowed");
        bad(pd.memory(&memory).range(5..9).iova(0), "0 given, 5 allowed");
        bad(
            pd.memory(&memory).iova(0_u64.wrapping_sub(4096)),
            "0xfffffffffffff000 given, at most 0xffffffffffffefff allowed",
        );
        bad(pd.memory(&memory).access(AccessFlags::REMOTE_WRITE), "LOCAL_WRITE");
        bad(pd.memory(&memory).access(AccessFlags::from_bits_retain(1 << 31)), "");
        bad(pd.memory(&Mapping::from(Vec::new().into_boxed_slice())), "at least 1");
        // Nothing uses it any more: the memory can be returned.
        assert!(MmapMut::try_from(memory).is_ok());
    });
}

#[test]
fn optional_flags_are_for_devices_that_know_them() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        pd.register(64, LOCAL | AccessFlags::RELAXED_ORDERING).unwrap();
        pd.register(64, LOCAL | AccessFlags::OPTIONAL_RANGE).unwrap();
        // Flags that a device does not support are refused: rxe of Linux 6.12 has no flag for huge pages, although it supports their
        // memory.
        if let Err(error) = pd.register(64, LOCAL | AccessFlags::HUGETLB) {
            // mana's driver has another error (`mana_ib_reg_user_mr`, mr.c, Linux 7.3).
            let kind = if target.device.driver() == "mana" {
                ErrorKind::InvalidInput
            } else {
                ErrorKind::Unsupported
            };
            assert_eq!(error.kind(), kind, "{error}");
            assert!(["rxe", "efa", "mana"].contains(&target.device.driver()), "{error}");
            assert!(error.hint().unwrap().contains("flags"));
        }
        // On-demand paging is different. rxe has it in Linux 7.2; without it, 6.1 returns EINVAL and 6.12 EOPNOTSUPP.
        match pd.register(64, LOCAL | AccessFlags::ON_DEMAND) {
            Ok(region) => {
                assert_eq!(target.device.driver(), "rxe");
                region.write(0, b"on demand").unwrap();
            }
            Err(error) => {
                let known =
                    [(ErrorKind::InvalidInput, Some(EINVAL)), (ErrorKind::Unsupported, Some(EOPNOTSUPP))];
                assert!(known.contains(&(error.kind(), error.errno())), "{error}");
                assert!(error.hint().unwrap().contains("on-demand"));
            }
        }
    });
}

#[test]
fn memory_that_is_paged_on_demand_is_brought_in_early() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        let pinned = pd.register(64, LOCAL).unwrap();
        let error = pinned.prefetch(.., Prefetch::Read).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.hint().unwrap().contains("ON_DEMAND"));
        let Ok(region) = pd.register(3 << 20, LOCAL | AccessFlags::ON_DEMAND) else {
            return skip(target, "the device has no on-demand paging");
        };
        for what in [Prefetch::Present, Prefetch::Write, Prefetch::Read, Prefetch::Present] {
            region.prefetch(.., what).unwrap();
            region.prefetch(4095..4097, what).unwrap();
            region.start_prefetch(1 << 20.., what).unwrap();
        }
        region.prefetch(4096..4096, Prefetch::Write).unwrap();
        let error = region.prefetch(..=3 << 20, Prefetch::Read).unwrap_err();
        assert!(
            error.kind() == ErrorKind::InvalidInput && error.hint().unwrap().contains("3145728"),
            "{error}"
        );
        region.write(0, b"as before").unwrap();
        // The kernel may still be at what was only begun.
        region.destroy().map_err(|(_, error)| error).unwrap();
    });
}

/// Whether the device can change regions, which rxe of Linux 6.1 cannot. If not, checks the error.
fn can_change(target: &Target, pd: &ProtectionDomain) -> bool {
    let mut region = pd.register(64, LOCAL).unwrap();
    match region.change_access(LOCAL) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            assert!(error.hint().unwrap().contains("make a new one"));
            assert_eq!(region.access(), LOCAL);
            region.write(0, b"as before").unwrap();
            skip(target, "the driver cannot change memory regions");
            false
        }
        other => {
            other.unwrap();
            true
        }
    }
}

#[test]
fn rights_of_a_region_can_be_changed() {
    hold(each::memory::rights_of_a_region_can_be_changed);
}

#[test]
fn a_region_can_move_to_another_domain() {
    on_every_connecting_device(|target| {
        let (mut one, two) = rc_pair(target);
        if !can_change(target, &two.pd) {
            return;
        }
        let context = two.pd.context().clone();
        let old = context.alloc_pd().unwrap();
        let mut region = old.register(4096, ALL).unwrap();
        let stranger = target.open().alloc_pd().unwrap();
        refuses(region.change_domain(&stranger), ErrorKind::InvalidInput, EINVAL, "another context");
        region.change_domain(&old).unwrap();
        region.change_domain(&two.pd).unwrap();
        // Its old domain is not in use any more, and the new one is.
        old.destroy().map_err(|(_, error)| error).unwrap();
        let remote = Remote { address: region.address(), rkey: region.rkey() };
        one.memory.write(0, b"moved").unwrap();
        one.send(1, Operation::Write(remote), 0..5);
        assert_eq!(one.completion().status, Status::Success);
        let mut bytes = [0; 5];
        region.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"moved");
    });
}

/// Whether the device can move a region to other memory.
fn can_move(target: &Target, pd: &ProtectionDomain) -> bool {
    let memory = Mapping::from(MmapMut::map_anon(4096).unwrap());
    let moved = pd.register(4096, LOCAL).unwrap().change_memory(&memory, .., None);
    if moved.is_err() {
        skip(target, "the driver cannot move memory regions");
    }
    moved.is_ok()
}

#[test]
fn a_region_that_was_moved_is_the_other_memory_for_the_peer() {
    on_every_connecting_device(|target| {
        let (mut one, two) = rc_pair(target);
        if !can_move(target, &two.pd) {
            return;
        }
        let [first, second, third] =
            [8192, 8192, 3 * 4096].map(|len| Mapping::from(MmapMut::map_anon(len).unwrap()));
        let mut region = two.pd.memory(&first).range(0..5000).access(ALL).register().unwrap();
        let mut write = |region: &MemoryRegion, at: u64, text: &[u8]| {
            one.memory.write(0, text).unwrap();
            let remote = Remote { address: region.address().wrapping_add(at), rkey: region.rkey() };
            one.send(1, Operation::Write(remote), 0..text.len());
            one.completion().status
        };
        assert_eq!(write(&region, 10, b"first"), Status::Success);
        let (clone, address) = (region.clone(), region.address());
        refuses(region.change_memory(&second, .., None), ErrorKind::Busy, EBUSY, "clone");
        refuses(region.change_memory(&second, 0..8193, None), ErrorKind::Busy, EBUSY, "clone");
        drop(clone);
        refuses(region.change_memory(&second, 0..8193, None), ErrorKind::InvalidInput, EINVAL, "given, 0..");
        assert_eq!(
            (region.address(), region.len(), write(&region, 0, b"still")),
            (address, 5000, Status::Success)
        );

        // At its own address, and beginning inside a page.
        region.change_memory(&second, 100..8000, None).unwrap();
        assert_eq!((region.len(), region.access()), (7900, ALL));
        assert_eq!(write(&region, 7894, b"second"), Status::Success);
        let first = MmapMut::try_from(first).expect("it was let go");
        assert!(
            first.starts_with(b"still")
                && &first[10..15] == b"first"
                && first[15..].iter().all(|byte| *byte == 0)
        );
        let mut bytes = [0; 6];
        region.read(7894, &mut bytes).unwrap();
        assert_eq!(&bytes, b"second");
        // At a chosen address.
        region.change_memory(&third, 4096.., Some(1 << 40)).unwrap();
        assert_eq!((region.address(), region.len()), (1 << 40, 8192));
        assert_eq!(write(&region, 8187, b"third"), Status::Success);
        assert!(third.read(3 * 4096 - 5, &mut bytes[..5]));
        assert_eq!(&bytes[..5], b"third");
        let second = MmapMut::try_from(second).expect("it was let go");
        assert!(&second[7994..8000] == b"second" && second[8000..].iter().all(|byte| *byte == 0));
        // Not a byte beyond it.
        assert_eq!(write(&region, 8188, b"third"), Status::RemoteAccess);
        region.destroy().map_err(|(_, error)| error).unwrap();
        assert!(MmapMut::try_from(third).unwrap()[4096..3 * 4096 - 5].iter().all(|byte| *byte == 0));
    });
}

#[test]
fn a_region_stays_where_it_is_on_devices_that_cannot_move_it() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        let memory = Mapping::from(MmapMut::map_anon(4096).unwrap());
        let mut region = pd.register(4096, LOCAL).unwrap();
        let address = region.address();
        region.write(0, b"here").unwrap();
        let hint = "make a new one";
        match region.change_memory(&memory, 0..4096, None) {
            Ok(()) => return skip(target, "it can move regions"),
            error => refuses(error, ErrorKind::Unsupported, EOPNOTSUPP, hint),
        }
        refuses(region.change_memory(&memory, 0..4097, None), ErrorKind::InvalidInput, EINVAL, "given, 0..");
        refuses(
            region.change_memory(&memory, 0..16, Some(1)),
            ErrorKind::InvalidInput,
            EINVAL,
            "1 given, 0 allowed",
        );
        assert_eq!((region.address(), region.len()), (address, 4096));
        // The other memory was never used.
        assert!(MmapMut::try_from(memory).is_ok());
    });
}

#[test]
fn a_region_lets_its_old_memory_go_when_it_has_moved() {
    let target = Target::soft(Profile::default().with_moves_regions(true));
    let pd = target.open().alloc_pd().unwrap();
    let [old, new] = [(); 2].map(|()| Mapping::from(MmapMut::map_anon(4096).unwrap()));
    let mut region = pd.memory(&old).access(LOCAL).register().unwrap();
    region.change_memory(&new, 8..100, Some(8)).unwrap();
    assert_eq!((region.address(), region.len()), (8, 92));
    region.write(91, b"!").unwrap();
    refuses(region.write(92, b"!"), ErrorKind::InvalidInput, EINVAL, "given, 0..");
    assert!(MmapMut::try_from(old).is_ok());
    let new = MmapMut::try_from(new).unwrap_err();
    drop(region);
    assert_eq!(MmapMut::try_from(new).unwrap()[99], b'!');
}

#[test]
fn memory_of_another_device_is_refused_where_the_driver_cannot() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        let file = File::open("/dev/null").unwrap();
        let dmabuf = |range, iova| pd.register_dmabuf(file.as_fd(), range, iova, LOCAL);
        if ["mlx5", "efa", "mana"].contains(&target.device.driver()) {
            // The device supports dma-bufs, but this file is not one.
            return refuses(dmabuf(0..4096, 0), ErrorKind::InvalidInput, EINVAL, "");
        }
        refuses(dmabuf(0..4096, 0), ErrorKind::Unsupported, EOPNOTSUPP, "another device");
        refuses(dmabuf(0..4096, 1), ErrorKind::InvalidInput, EINVAL, "1 given, 0 allowed");
        refuses(dmabuf(5..5, 5), ErrorKind::InvalidInput, EINVAL, "");
        pd.destroy().map_err(|(_, error)| error).unwrap();
    });
}

/// `tests/vm/mlx5/queues/dma-buf` starts the test with a dma-buf as standard input, and with the name of the file of its memory.
#[test]
fn memory_of_another_device_is_written_and_read_by_the_peer() {
    on_every_connecting_device(|target| {
        let path = std::env::var_os("UVERBS_TEST_DMABUF").filter(|_| target.device.driver() == "mlx5");
        let Some(path) = path else {
            return skip(target, "there is no dma-buf, or the driver does not take it");
        };
        let memory = File::options().read(true).write(true).open(path).unwrap();
        let (mut one, mut two) = rc_pair(target);
        let (file, iova) = (std::io::stdin(), (1 << 40) + 8);
        let make = |range| two.pd.register_dmabuf(file.as_fd(), range, iova, ALL);
        let beyond = 8..memory.metadata().unwrap().len() + 8;
        refuses(make(beyond), ErrorKind::InvalidInput, EINVAL, "");
        let region = make(4104..12_296).unwrap();
        assert_eq!((region.address(), region.len()), (iova, 8192));
        let hint = "another device";
        refuses(region.write(0, b"no"), ErrorKind::Unsupported, EOPNOTSUPP, hint);
        refuses(region.read(0, &mut [0]), ErrorKind::Unsupported, EOPNOTSUPP, hint);

        let remote = |at| Remote { address: iova + at, rkey: region.rkey() };
        let text: Vec<_> = (0..5000_u32).map(|i| (i % 251) as u8).collect();
        one.memory.write(0, &text).unwrap();
        one.send(1, Operation::Write(remote(777)), 0..5000);
        assert_eq!(one.completion().status, Status::Success);
        let mut bytes = vec![0; 5000];
        memory.read_exact_at(&mut bytes, 4104 + 777).unwrap();
        assert!(bytes == text);
        memory.write_all_at(b"by the other device", 4104).unwrap();
        one.send(2, Operation::Read(remote(0)), 6000..6019);
        assert_eq!(one.completion().status, Status::Success);
        let mut answer = [0; 19];
        one.memory.read(6000, &mut answer).unwrap();
        assert_eq!(&answer, b"by the other device");

        // A message into it, and one from it.
        let segment = [region.segment(100..200).unwrap()];
        two.qp.post_receive(&[ReceiveRequest::new(3, &segment)]).unwrap();
        one.send(4, Operation::Send, 0..64);
        assert_eq!((two.completion().wr_id, one.completion().status), (3, Status::Success));
        let mut message = [0; 64];
        memory.read_exact_at(&mut message, 4104 + 100).unwrap();
        assert_eq!(message, text[..64]);
        one.receive(5, 7000..7100);
        two.qp.post_send(&[SendRequest::new(6, Operation::Send, &segment[..]).signaled()]).unwrap();
        assert_eq!(one.completion().wr_id, 5);
        assert_eq!(two.completion().status, Status::Success);
        one.memory.read(7000, &mut message).unwrap();
        assert_eq!(message, text[..64]);

        one.send(7, Operation::Write(remote(8192 - 7)), 0..8);
        assert_eq!(one.completion().status, Status::RemoteAccess);
        drop(two.qp);
        region.destroy().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn windows_are_made() {
    hold(each::memory::windows_are_made);
}

#[test]
fn extended_domains_are_opened() {
    hold(each::memory::extended_domains_are_opened);
}
