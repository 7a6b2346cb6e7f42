//! Devices, contexts, and the objects that every device has.

use std::ops::Bound;

use crate::behaviours::each;
use crate::common::*;
use crate::held::hold;
use uverbs::{AccessFlags, ErrorKind, Mapping, Peer};

#[test]
fn an_open_device_answers_queries() {
    hold(each::device::an_open_device_answers_queries);
    // The devices under test have the default partition alone; others may have any.
    on_every_device(|target| {
        let context = target.open();
        let has_partitions = context.query_port(1).unwrap().legacy_resp.pkey_tbl_len > 0;
        assert_eq!(context.pkey(1, 0).ok(), has_partitions.then_some(0xffff));
    });
}

#[test]
fn a_port_tells_its_speed_where_kernel_and_driver_can() {
    hold(each::device::a_port_tells_its_speed_where_kernel_and_driver_can);
}

#[test]
fn a_port_that_is_not_there_is_refused() {
    hold(each::device::a_port_that_is_not_there_is_refused);
}

#[test]
fn the_gid_table_holds_what_single_ports_have() {
    hold(each::device::the_gid_table_holds_what_single_ports_have);
    // The devices under test have one port.
    on_every_device(|target| {
        assert!(target.open().gid_table().unwrap().iter().all(|gid| gid.port == 1 && gid.raw != [0; 16]));
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
    hold(each::device::objects_come_and_go_in_any_order);
}

#[test]
fn an_object_in_use_is_given_back() {
    hold(each::device::an_object_in_use_is_given_back);
}

#[test]
fn memory_is_copied_in_and_out_within_its_bounds() {
    hold(each::memory::memory_is_copied_in_and_out_within_its_bounds);
}

#[test]
fn bad_sizes_and_flags_are_refused() {
    hold(each::memory::bad_sizes_and_flags_are_refused);
}

#[test]
fn access_flags_that_do_not_fit_together_are_named() {
    hold(each::memory::access_flags_that_do_not_fit_together_are_named);
}

#[test]
fn a_region_has_an_address_and_a_key_for_the_peer() {
    hold(each::memory::a_region_has_an_address_and_a_key_for_the_peer);
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
    // Nobody else uses the devices under test.
    on_every_device(|target| assert_eq!(target.open().next_event().unwrap(), None));
    hold(each::device::event_files_do_not_wait);
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
    hold(each::device::the_chosen_gid_is_the_first_of_those_that_can_be_used);
    // The devices under test have an address that can be used from here, if the port is active.
    on_every_device(|target| {
        let context = target.open();
        if context.check_port_active(1).is_ok() {
            context.gid_for(1, Peer::Unknown).unwrap();
        }
    });
}
