//! Memory windows of the soft device, with commands built by hand: errno of commands, and the status of every bind that is refused.

use crate::commands::verbs::*;
use crate::commands::*;
use nix::libc::{EBUSY, EINVAL, ENOENT, ENOMEM};
use uverbs::soft::{Profile, SoftDevice};
use uverbs_abi::ids::{mr, mw, pd};
use uverbs_abi::rxe::MwWr;
use uverbs_abi::types::{AccessFlags, qp_type, wc_opcode, wc_status, wr_opcode};
use uverbs_abi::write::{AllocMw, AllocMwResp, DeallocMw, DeregMr, ReregMr, cmd};
use zerocopy::{FromZeros, IntoBytes};

const RC: u8 = qp_type::RC;
const WRITE: AccessFlags = AccessFlags::REMOTE_WRITE;

/// A window as its maker knows it.
#[derive(Clone, Copy)]
struct Window {
    handle: u32,
    key: u32,
}

fn alloc(side: &Side, mw_type: u8) -> Window {
    let request = AllocMw { pd_handle: side.pd, mw_type, ..AllocMw::new_zeroed() };
    let made: AllocMwResp = answer(&done(&side.file, write(cmd::ALLOC_MW, &request, 8)), CORE_OUT);
    Window { handle: made.mw_handle, key: made.rkey }
}

fn dealloc(side: &Side, window: Window) -> Result<(), i32> {
    side.file.invoke(&mut write(cmd::DEALLOC_MW, &DeallocMw { mw_handle: window.handle }, 0))
}

/// A request to bind a window to the second 64 bytes of a region.
fn bind(pair: &Pair, window: Window, lkey: u32) -> MwWr {
    MwWr {
        addr: pair.a.address + 64,
        length: 64,
        mr_lkey: lkey,
        mw_rkey: window.key,
        rkey: window.key + 1,
        access: WRITE.bits(),
    }
}

fn post(request: MwWr) -> Post {
    let mut post = Post::new(5, wr_opcode::BIND_MW, &[]);
    post.wqe.wr.wr[..32].copy_from_slice(request.as_bytes());
    post
}

/// The status of a bind.
fn end(pair: &Pair, request: MwWr) -> u32 {
    pair.send(&[post(request)]);
    let [wc] = pair.a.take()[..] else { panic!("one completion") };
    assert_eq!(wc.wr_id, 5);
    if wc.status == wc_status::SUCCESS {
        assert_eq!(wc.opcode, wc_opcode::BIND_MW);
    }
    wc.status
}

#[test]
fn windows_are_made_and_destroyed_as_the_kernel_does_it() {
    let device = SoftDevice::new(Profile::default().with_max_mw(2));
    let side = Side::new(&device, 4096);
    let ask = |pd_handle, mw_type| {
        let request = AllocMw { pd_handle, mw_type, ..AllocMw::new_zeroed() };
        side.file.invoke(&mut write(cmd::ALLOC_MW, &request, 8))
    };
    assert_eq!(ask(99, 0), Err(ENOENT));
    assert_eq!(ask(side.pd, 0), Err(EINVAL));
    assert_eq!(ask(side.pd, 3), Err(EINVAL));
    let (one, two) = (alloc(&side, 1), alloc(&side, 2));
    assert_ne!(one.key >> 8, two.key >> 8);
    assert_eq!(device.resources().memory_windows, 2);
    assert_eq!(ask(side.pd, 1), Err(ENOMEM));
    assert_eq!(dealloc(&side, one), Ok(()));
    assert_eq!(dealloc(&side, one), Err(ENOENT));
    assert_eq!(dealloc(&side, Window { handle: side.pd, key: 0 }), Err(EINVAL));
    assert_eq!(side.file.invoke(&mut destroy(mw::OBJECT, mw::method::DESTROY, two.handle)), Ok(()));
    let busy = alloc(&side, 2);
    // The region is in the domain too.
    done(&side.file, destroy(mr::OBJECT, mr::method::DESTROY, 2));
    assert_eq!(side.file.invoke(&mut destroy(pd::OBJECT, pd::method::DESTROY, side.pd)), Err(EBUSY));
    assert_eq!(dealloc(&side, busy), Ok(()));
    assert_eq!(side.file.invoke(&mut destroy(pd::OBJECT, pd::method::DESTROY, side.pd)), Ok(()));
}

#[test]
fn a_bad_bind_is_a_bind_error_and_binds_nothing() {
    type Change = fn(&mut MwWr, &Pair);
    let rows: &[(&str, u8, Change)] = &[
        ("another key", 1, |wr, _| wr.mw_rkey ^= 1),
        ("no window", 1, |wr, _| wr.mw_rkey = 0x700),
        ("no region", 1, |wr, _| wr.mr_lkey = 0x700),
        ("another key of the region", 1, |wr, _| wr.mr_lkey ^= 1),
        ("a region not for windows", 1, |wr, p| wr.mr_lkey = p.a.key),
        ("a region of another domain", 1, |wr, p| {
            wr.mr_lkey = p.b.register(4096, ALL | AccessFlags::MW_BIND);
            wr.addr = p.b.address;
        }),
        ("a constant region", 1, |wr, p| wr.mr_lkey = p.a.register(4096, AccessFlags::MW_BIND)),
        ("a zero-based region", 2, |wr, p| {
            wr.mr_lkey = p.a.register(4096, ALL | AccessFlags::MW_BIND | AccessFlags::ZERO_BASED);
        }),
        ("before the region", 1, |wr, p| wr.addr = p.a.address - 1),
        ("behind the region", 2, |wr, _| wr.length = 4096),
        ("around the end of all addresses", 2, |wr, _| wr.length = u64::MAX),
        ("a zero-based window of type 1", 1, |wr, _| wr.access |= AccessFlags::ZERO_BASED.bits()),
        ("a right that only regions have", 1, |wr, _| wr.access |= AccessFlags::MW_BIND.bits()),
        ("no length for type 2", 2, |wr, _| wr.length = 0),
    ];
    for (name, kind, change) in rows {
        let pair = Pair::new(RC);
        let lkey = pair.a.register(4096, ALL | AccessFlags::MW_BIND);
        let window = alloc(&pair.a, *kind);
        let mut request = bind(&pair, window, lkey);
        change(&mut request, &pair);
        assert_eq!(end(&pair, request), wc_status::MW_BIND_ERR, "{name}");
        // The queue pair is in the error state.
        assert_eq!(end(&pair, bind(&pair, window, lkey)), wc_status::WR_FLUSH_ERR, "{name}");
    }
    // Type 2 needs a queue pair of its own domain, and must not be bound.
    let pair = Pair::new(RC);
    let lkey = pair.b.register(4096, ALL | AccessFlags::MW_BIND);
    let window = alloc(&pair.b, 2);
    let request = MwWr { addr: pair.b.address, ..bind(&pair, window, lkey) };
    assert_eq!(end(&pair, request), wc_status::MW_BIND_ERR);
    let pair = Pair::new(RC);
    let lkey = pair.a.register(4096, ALL | AccessFlags::MW_BIND);
    let window = alloc(&pair.a, 2);
    assert_eq!(end(&pair, bind(&pair, window, lkey)), wc_status::SUCCESS);
    let again = MwWr { mw_rkey: window.key + 1, ..bind(&pair, window, lkey) };
    assert_eq!(end(&pair, again), wc_status::MW_BIND_ERR);
}

#[test]
fn datagrams_bind_nothing_and_uc_invalidates_nothing() {
    for (kind, opcode) in [
        (qp_type::UD, wr_opcode::BIND_MW),
        (qp_type::UD, wr_opcode::LOCAL_INV),
        (qp_type::UC, wr_opcode::LOCAL_INV),
    ] {
        let pair = Pair::new(kind);
        pair.send(&[Post::new(5, opcode, &[])]);
        assert_eq!(ends(&pair.a.take()), [(5, wc_status::LOC_QP_OP_ERR)]);
    }
}

#[test]
fn only_a_bound_window_of_type_2_can_be_invalidated() {
    for (kind, is_bound, expected) in [
        (1, true, wc_status::LOC_QP_OP_ERR),
        (2, false, wc_status::LOC_QP_OP_ERR),
        (2, true, wc_status::SUCCESS),
    ] {
        let pair = Pair::new(RC);
        let lkey = pair.a.register(4096, ALL | AccessFlags::MW_BIND);
        let mut window = alloc(&pair.a, kind);
        if is_bound {
            assert_eq!(end(&pair, bind(&pair, window, lkey)), wc_status::SUCCESS);
            window.key += 1;
        }
        pair.send(&[Post::new(5, wr_opcode::LOCAL_INV, &[]).extra(window.key)]);
        assert_eq!(ends(&pair.a.take()), [(5, expected)]);
        if expected == wc_status::SUCCESS {
            pair.send(&[Post::new(5, wr_opcode::LOCAL_INV, &[]).extra(window.key)]);
            assert_eq!(ends(&pair.a.take()), [(5, wc_status::LOC_QP_OP_ERR)], "twice");
        }
    }
}

#[test]
fn a_region_stays_while_a_window_is_bound_to_it() {
    let pair = Pair::new(RC);
    // The fourth handle, after the domain, the queue and the region that each side has.
    let lkey = pair.a.register(4096, ALL | AccessFlags::MW_BIND);
    let handle = 4;
    let window = alloc(&pair.a, 2);
    let dereg = || pair.a.file.invoke(&mut write(cmd::DEREG_MR, &DeregMr { mr_handle: handle }, 0));
    assert_eq!(end(&pair, bind(&pair, window, lkey)), wc_status::SUCCESS);
    assert_eq!(dereg(), Err(EINVAL));
    // The binds of a queue pair end with it.
    done(&pair.a.file, destroy_qp(pair.qa.handle));
    assert_eq!(dereg(), Ok(()));
    assert_eq!(dealloc(&pair.a, window), Ok(()));
}

#[test]
fn closing_and_unplugging_take_bound_windows_along() {
    for unplug in [false, true] {
        let pair = Pair::new(RC);
        let lkey = pair.a.register(4096, ALL | AccessFlags::MW_BIND);
        for kind in [1, 2] {
            let window = alloc(&pair.a, kind);
            assert_eq!(end(&pair, bind(&pair, window, lkey)), wc_status::SUCCESS);
        }
        let device = pair.device.clone();
        if unplug {
            device.unplug();
            let left = device.resources();
            assert_eq!((left.memory_windows, left.memory_regions, left.protection_domains), (0, 0, 0));
        }
        drop(pair);
        assert!(device.resources().is_empty());
    }
}

#[test]
fn a_window_follows_its_region_and_never_leaves_it() {
    let device = SoftDevice::new(Profile::default().with_moves_regions(true));
    let pair = Pair::on(device, RC);
    let lkey = pair.a.register(4096, ALL | AccessFlags::MW_BIND);
    let window = alloc(&pair.a, 1);
    let request = MwWr { length: 1024, ..bind(&pair, window, lkey) };
    assert_eq!(end(&pair, request), wc_status::SUCCESS);
    // The peer is the second side.
    let write_at = |offset: u64| {
        let post = Post::new(1, wr_opcode::RDMA_WRITE, &[pair.b.piece(0, 8)]);
        pair.qb.post(&post.remote(pair.a.address + offset, window.key + 1));
        pair.qb.ring_doorbell(&pair.b.file);
        ends(&pair.b.take())
    };
    assert_eq!(write_at(512), [(1, wc_status::SUCCESS)]);
    let (start, length) = (pair.a.address, 256);
    let shorter = ReregMr { mr_handle: 4, flags: 1, start, hca_va: start, length, ..ReregMr::new_zeroed() };
    done(&pair.a.file, write(cmd::REREG_MR, &shorter, 8));
    assert_eq!(write_at(128), [(1, wc_status::SUCCESS)]);
    assert_eq!(write_at(512), [(1, wc_status::REM_ACCESS_ERR)]);
}
