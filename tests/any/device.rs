//! Devices, contexts, and the objects that every device has.

use std::ops::Bound;

use crate::common::*;
use uverbs::abi::types::port_state;
use uverbs::{AccessFlags, ErrorKind, Gid, Mapping, Peer};

const ENETDOWN: i32 = 100;

#[test]
fn an_open_device_answers_queries() {
    on_every_device(|target| {
        let context = target.open();
        let device = context.query_device().unwrap();
        assert_eq!(u32::from(device.base.phys_port_cnt), target.device.ports());
        assert_eq!(device.base.node_guid.get(), target.device.node_guid().0);
        assert!(device.base.max_cqe > 0 && device.base.max_qp > 0);
        assert!(context.completion_vectors() > 0);
        let port = context.query_port(1).unwrap();
        // The port of a card without a network interface has no MTU and no addresses.
        let is_active = port.legacy_resp.state == port_state::ACTIVE;
        assert_eq!((1..=5).contains(&port.legacy_resp.active_mtu), is_active);
        assert!(port.legacy_resp.gid_tbl_len > 0 || !is_active);
        // iWARP has no partitions.
        let has_partitions = port.legacy_resp.pkey_tbl_len > 0;
        assert_eq!(context.pkey(1, 0).ok(), has_partitions.then_some(0xffff));
        assert!(has_partitions || target.device.driver() == "siw");
    });
}

#[test]
fn a_port_tells_its_speed_where_kernel_and_driver_can() {
    on_every_device(|target| {
        let context = target.open();
        match context.port_speed(1) {
            Err(error) if error.kind() == ErrorKind::Unsupported => skip(target, "no speed of ports"),
            speed => {
                speed.unwrap();
                context.port_speed(9).unwrap_err();
            }
        }
    });
}

#[test]
fn a_port_that_is_not_there_is_refused() {
    on_every_device(|target| {
        let context = target.open();
        for port in [0, 2, 255] {
            refuses(
                context.query_port(port),
                ErrorKind::InvalidInput,
                EINVAL,
                &format!("port: {port} given, 1 to 1 allowed"),
            );
        }
        let missing = context.pkey(9, 0).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn the_gid_table_holds_what_single_ports_have() {
    on_every_device(|target| {
        let context = target.open();
        let table = context.gid_table().unwrap();
        let port = context.query_port(1).unwrap();
        assert_eq!(table.is_empty(), port.legacy_resp.state != port_state::ACTIVE);
        assert!(table.iter().all(|gid| gid.port == 1 && gid.raw != [0; 16]));
    });
}

#[test]
fn an_entry_of_the_gid_table_that_is_not_there_is_named_with_the_limit() {
    on_every_device(|target| {
        let context = target.open();
        let told = |port, index| {
            let error = context.gid(port, index).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput), "{error}");
            error.hint().expect("a hint").to_owned()
        };
        let ports = target.device.ports();
        assert_eq!(told(255, 0), format!("port: 255 given, 1 to {ports} allowed"));
        assert_eq!(told(0, 0), format!("port: 0 given, 1 to {ports} allowed"));
        let len = context.query_port(1).unwrap().legacy_resp.gid_tbl_len;
        if len == 0 {
            return skip(target, "its port has no table");
        }
        let last = len - 1;
        assert_eq!(told(1, len), format!("index in the GID table: {len} given, 0 to {last} allowed"));
        if context.gid_table().unwrap().iter().all(|gid| gid.index != last) {
            assert!(told(1, last).contains(&format!("entry {last} of the GID table of port 1 is empty")));
        }
    });
}

#[test]
fn objects_come_and_go_in_any_order() {
    on_every_device(|target| {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let region = pd.register(10_000, AccessFlags::LOCAL_WRITE).unwrap();
        let channel = context.create_comp_channel().unwrap();
        let cq = context.cq(100).channel(&channel).cookie(7).create().unwrap();
        assert!(cq.capacity() >= 100);
        drop(channel);
        drop(pd);
        drop(context);
        region.write(9_998, &[1, 2]).unwrap();
        drop(region);
        cq.destroy().unwrap();
    });
}

#[test]
fn an_object_in_use_is_given_back() {
    on_every_device(|target| {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let region = pd.register(1, AccessFlags::empty()).unwrap();
        let (pd, error) = pd.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        let clone = region.clone();
        let (region, error) = region.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop(clone);
        region.destroy().unwrap();
        pd.destroy().unwrap();
    });
}

#[test]
fn memory_is_copied_in_and_out_within_its_bounds() {
    on_every_device(|target| {
        let region = target.open().alloc_pd().unwrap().register(100, AccessFlags::LOCAL_WRITE).unwrap();
        assert_eq!(region.len(), 100);
        region.write(95, b"hello").unwrap();
        let mut back = [0; 5];
        region.read(95, &mut back).unwrap();
        assert_eq!(&back, b"hello");
        refuses(region.write(96, b"hello"), ErrorKind::InvalidInput, EINVAL, "given, 0..");
        refuses(region.read(usize::MAX, &mut back), ErrorKind::InvalidInput, EINVAL, "given, 0..");
        refuses(region.segment(90..101), ErrorKind::InvalidInput, EINVAL, "given, 0..");
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = region.segment(5..4);
        refuses(reversed, ErrorKind::InvalidInput, EINVAL, "given, 0..");
        assert_ne!((region.lkey(), region.address()), (0, 0));
    });
}

#[test]
fn bad_sizes_and_flags_are_refused() {
    on_every_device(|target| {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        assert_eq!(pd.register(0, AccessFlags::empty()).unwrap_err().errno(), Some(EINVAL));
        let remote_only = pd.register(1, AccessFlags::REMOTE_WRITE).unwrap_err();
        assert_eq!(remote_only.errno(), Some(EINVAL), "remote write without local write");
        assert_eq!(context.create_cq(0).unwrap_err().errno(), Some(EINVAL));
        assert_eq!(context.create_cq(u32::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
        let vector = context.completion_vectors();
        assert_eq!(context.cq(1).vector(vector).create().unwrap_err().errno(), Some(EINVAL));
        pd.destroy().unwrap();
    });
}

#[test]
fn access_flags_that_do_not_fit_together_are_named() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        for (flags, given) in [
            (AccessFlags::REMOTE_WRITE, "REMOTE_WRITE given"),
            (AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC, "REMOTE_READ | REMOTE_ATOMIC given"),
        ] {
            let error = pd.register(4096, flags).unwrap_err();
            assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidInput, Some(EINVAL)), "{error}");
            let hint = error.hint().expect("a hint");
            assert!(hint.contains(given) && hint.contains("only with LOCAL_WRITE"), "{error}");
        }
    });
}

#[test]
fn a_region_has_an_address_and_a_key_for_the_peer() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        let region = pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
        let remote = region.remote();
        assert_eq!((remote.address, remote.rkey), (region.address(), region.rkey()));
    });
}

#[test]
fn a_part_of_memory_is_said_as_of_a_slice() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        let memory = Mapping::from(vec![0; 4096].into_boxed_slice());
        let all = pd.memory(&memory).range(..).register().unwrap();
        assert_eq!((all.len(), pd.memory(&memory).range(96..).register().unwrap().len()), (4096, 4000));
        for (from, to, length) in [
            (Bound::Unbounded, Bound::Unbounded, 4096),
            (Bound::Unbounded, Bound::Excluded(8), 8),
            (Bound::Unbounded, Bound::Included(8), 9),
            (Bound::Included(4088), Bound::Unbounded, 8),
            (Bound::Excluded(4088), Bound::Unbounded, 7),
            (Bound::Included(4096), Bound::Unbounded, 0),
            (Bound::Included(1), Bound::Included(4095), 4095),
        ] {
            let segment = all.segment((from, to)).unwrap();
            assert!(
                format!("{segment:?}").contains(&format!(" length: {length},")),
                "{from:?}, {to:?}: {segment:?}"
            );
        }
        for (from, to) in [
            (Bound::Unbounded, Bound::Included(4096)),
            (Bound::Unbounded, Bound::Included(usize::MAX)),
            (Bound::Unbounded, Bound::Excluded(usize::MAX)),
            (Bound::Excluded(4096), Bound::Unbounded),
            (Bound::Excluded(usize::MAX), Bound::Unbounded),
            (Bound::Excluded(usize::MAX), Bound::Included(usize::MAX)),
            (Bound::Included(9), Bound::Excluded(8)),
        ] {
            refuses(all.segment((from, to)), ErrorKind::InvalidInput, EINVAL, "given, 0..");
            let made = pd.memory(&memory).range((from, to)).register();
            refuses(made, ErrorKind::InvalidInput, EINVAL, "");
        }
    });
}

#[test]
fn event_files_do_not_wait() {
    on_every_device(|target| {
        let context = target.open();
        assert_eq!(context.next_event().unwrap(), None);
        let channel = context.create_comp_channel().unwrap();
        assert_eq!(channel.next_event().unwrap(), None);
        assert!(!channel.wait(Some(std::time::Duration::from_millis(1))).unwrap());
        let mut cq = context.cq(4).channel(&channel).create().unwrap();
        cq.notify(false).unwrap();
        assert_eq!(cq.poll(&mut uverbs::Completion::batch::<4>()), 0);
        assert_eq!(channel.next_event().unwrap(), None);
    });
}

#[test]
fn contexts_of_one_device_are_apart() {
    on_every_device(|target| {
        let (one, other) = (target.open(), target.open());
        let pd = one.alloc_pd().unwrap();
        drop(other.alloc_pd().unwrap());
        drop(other);
        pd.register(8, AccessFlags::LOCAL_WRITE).unwrap();
    });
}

#[test]
fn what_a_driver_lacks_is_unsupported_with_a_hint() {
    on_every_device(|target| {
        let context = target.open();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
        match target.device.driver() {
            "rxe" => {
                let answer = context.create_counters();
                refuses(answer, ErrorKind::Unsupported, EPROTONOSUPPORT, "rxe has no flow counters");
                let answer = pd.raw_packet(&cq).create();
                refuses(answer, ErrorKind::Unsupported, EOPNOTSUPP, "no queue pairs of this type");
            }
            "mlx5" => {
                let mut srq = pd.srq(4).create().unwrap();
                refuses(srq.resize(8), ErrorKind::Unsupported, EINVAL, "cannot resize");
            }
            _ => skip(target, "it is neither rxe nor mlx5"),
        }
    });
}

#[test]
fn a_device_that_lacks_a_feature_says_so() {
    let bare = Target::soft(uverbs::soft::Profile::default().with_counters(false).with_flows(false));
    let context = bare.open();
    refuses(context.create_counters(), ErrorKind::Unsupported, EPROTONOSUPPORT, "no flow counters");
    let raw = Raw::new(&context);
    let rule = uverbs::FlowRule::normal(1);
    refuses(raw.qp.create_flow(&rule), ErrorKind::Unsupported, EOPNOTSUPP, "no flows");
}

#[test]
fn the_chosen_gid_is_the_first_of_those_that_can_be_used() {
    on_every_device(|target| {
        let context = target.open();
        let candidates = context.gid_candidates(1, Peer::Unknown).unwrap();
        let mut rated: Vec<_> = candidates.iter().map(|candidate| candidate.gid.index).collect();
        rated.sort_unstable();
        let table = context.gid_table().unwrap();
        let listed: Vec<_> = table.iter().filter(|gid| gid.port == 1).map(|gid| gid.index).collect();
        assert_eq!(rated, listed);
        match (context.check_port_active(1), context.gid_for(1, Peer::Unknown)) {
            (Ok(()), Ok(chosen)) => {
                assert_eq!(chosen.gid, context.gid(1, chosen.index.into()).unwrap());
                let first = &candidates[0];
                assert_eq!((first.gid, first.rating), (chosen.gid, Ok(chosen.reason)));
                // A peer with that GID is reached from it, or from one of the same family.
                let same = context.gid_for(1, chosen.gid.raw).unwrap();
                let is_ipv4 = |gid: Gid| gid.raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
                assert_eq!(is_ipv4(same.gid), is_ipv4(chosen.gid));
            }
            // As on a virtual ConnectX with an Ethernet port and without a network interface.
            (Err(down), Err(error)) => {
                assert_eq!(down, error);
                assert_eq!(error.errno(), Some(ENETDOWN));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(context.gid_for(200, Peer::Unknown).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}
