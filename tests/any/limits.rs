//! Refused numbers: the hint names what was given and what is allowed.

use crate::common::*;
use uverbs::{
    AccessFlags, Context, Error, ErrorKind, Mapping, Operation, QpState, ReceiveRequest, Result, Route,
    SendRequest,
};

/// The hint of a refusal of `given`, of which `allowed` is told.
#[track_caller]
fn names<T>(result: Result<T>, given: impl ToString, allowed: impl ToString) {
    let error = result.err().unwrap_or_else(|| panic!("{} was allowed", given.to_string()));
    let hint = error.hint().unwrap_or_default();
    let (given, allowed) = (format!(": {} given, ", given.to_string()), allowed.to_string());
    let rest = hint.split_once(&given).map(|(_, rest)| rest);
    assert!(rest.is_some_and(|rest| rest.contains(&allowed)), "no word of {given}{allowed} in: {error}");
    assert!(hint.contains(" allowed"), "{error}");
}

/// Sizes of queues, by the limits that the device reports. Drivers with plans of their own have other tests.
fn sizes(context: &Context) {
    let limits = context.query_device().unwrap().base;
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(4).unwrap();
    let over = |most: u32| most.saturating_add(1);
    for entries in [0, over(limits.max_cqe)] {
        names(context.create_cq(entries), entries, limits.max_cqe);
        names(cq.resize(entries), entries, limits.max_cqe);
    }
    let depth = over(limits.max_qp_wr);
    names(pd.rc(&cq).send_depth(depth).create(), depth, limits.max_qp_wr);
    names(pd.rc(&cq).receive_depth(depth).create(), depth, limits.max_qp_wr);
    let segments = over(limits.max_sge);
    names(pd.rc(&cq).segments(segments).create(), segments, limits.max_sge);
    if limits.max_srq > 0 {
        let depth = over(limits.max_srq_wr);
        names(pd.srq(depth).create(), depth, limits.max_srq_wr);
        names(pd.srq(0).create(), 0, limits.max_srq_wr);
        let segments = over(limits.max_srq_sge);
        names(pd.srq(4).segments(segments).create(), segments, limits.max_srq_sge);
        let mut srq = pd.srq(4).create().unwrap();
        let capacity = srq.capacity();
        names(srq.arm(capacity + 1), capacity + 1, capacity);
        names(srq.resize(depth), depth, limits.max_srq_wr);
    }
}

#[test]
fn sizes_of_queues_are_named_with_the_limit_of_the_device() {
    on_every_connecting_device(|target| {
        if target.soft.is_some() || target.device.driver() == "rxe" {
            sizes(&target.open());
        }
    });
}

#[test]
fn ports_and_indices_are_named_with_the_last_one() {
    on_every_device(|target| {
        let context = target.open();
        let ports = target.device.ports();
        let last = format!("1 to {ports}");
        for port in [0, 9] {
            names(context.query_port(port), port, &last);
            names(context.gid(port, 0), port, &last);
        }
        let gids = context.query_port(1).unwrap().legacy_resp.gid_tbl_len;
        names(context.gid(1, gids), gids, format!("0 to {}", gids - 1));
        names(context.pkey(1, 60_000), "60000", 0);
    });
}

#[test]
fn routes_are_named_with_the_tables_of_their_port() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        let gid = context.gid(1, 0).map_or([0; 16], |gid| gid.raw);
        if target.soft.is_some() || target.device.driver() == "rxe" {
            names(pd.create_ah(&Route::new(9, 0, gid)), 9, "1 to 1");
        }
        let cq = context.create_cq(4).unwrap();
        let Ok(mut qp) = pd.rc(&cq).create() else { return };
        let init = uverbs::Attributes::to(QpState::Init).port(9).pkey_index(0).access(AccessFlags::empty());
        if target.device.driver() != "siw" {
            names(qp.modify(&init), 9, "1 to 1");
        }
    });
}

#[test]
fn ranges_of_memory_are_named_with_its_length() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        names(pd.register(0, AccessFlags::empty()), 0, "at least 1");
        let memory = Mapping::from(vec![0; 4096].into_boxed_slice());
        names(pd.memory(&memory).range(1..4097).register(), "1..4097", "0..4096");
        names(pd.memory(&memory).range(7..7).register(), 0, "at least 1");
        let region = pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
        let len = region.len();
        names(region.segment(4000..len + 1), format!("4000..{}", len + 1), format!("0..{len}"));
        names(region.read(len, &mut [0; 2]), format!("{len}..{}", len + 2), format!("0..{len}"));
        let writable = pd.memory(&memory).access(AccessFlags::REMOTE_WRITE).register();
        names(writable, "REMOTE_WRITE", "only with LOCAL_WRITE");
    });
}

#[test]
fn requests_are_named_with_the_room_of_their_queue() {
    on_every_connecting_device(|target| {
        let (mut one, _two) = rc_pair(target);
        let capacity = one.qp.capacity();
        let (segments, inline) = (capacity.send_segments as usize, capacity.inline as usize);
        let segment = one.memory.segment(0..1).unwrap();
        let many = vec![segment; segments + 1];
        let send = SendRequest::new(1, Operation::Send, &many).signaled();
        names(
            one.qp.post_send(&[send]),
            segments + 1,
            format!("at most {segments} allowed; nothing was posted"),
        );
        let bytes = vec![0; inline + 1];
        let send = SendRequest::inline(1, Operation::Send, &bytes).signaled();
        names(one.qp.post_send(&[send]), inline + 1, format!("at most {inline}"));
        // The second of two, of which none is posted.
        let good = SendRequest::new(1, Operation::Send, &many[..1]).signaled();
        names(one.qp.post_send(&[good, send]), inline + 1, format!("at most {inline}"));
        let segments = capacity.receive_segments as usize;
        let many = vec![segment; segments + 1];
        let receives = [ReceiveRequest::new(1, &many)];
        names(
            one.qp.post_receive(&receives),
            segments + 1,
            format!("at most {segments} allowed; nothing was posted"),
        );
    });
}

/// An error with numbers is like one with a text: equal to its copy, before its text was read and afterwards.
#[test]
fn an_error_with_numbers_is_like_any_other() {
    on_every_device(|target| {
        let pd = target.open().alloc_pd().unwrap();
        let region = pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
        let refused = |end: usize| -> Error { region.segment(0..end).unwrap_err() };
        let (one, copy, other) = (refused(9999), refused(9999).clone(), refused(9998));
        let text =
            "mr.segment: invalid input (EINVAL): range of the memory region: 0..9999 given, 0..4096 allowed";
        assert_eq!((one.to_string(), one.kind()), (text.to_owned(), ErrorKind::InvalidInput));
        assert_eq!((one.clone(), format!("{one:?}")), (copy.clone(), format!("{copy:?}")));
        assert_ne!(one, other);
    });
}
