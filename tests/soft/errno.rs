//! Bad input that concerns only the soft device, and the errno that the kernel and mlx5 return for it;
//! `flow_errno.rs` has the rest.

use crate::commands::*;
use nix::libc::{EBADF, EFAULT, EINVAL, ENOENT, EOPNOTSUPP, EPROTONOSUPPORT};
use uverbs::soft::{Profile, RawAttr, RawCommand, SoftDevice};
use uverbs::{AccessFlags, Completion, ErrorKind, FlowRule, ReceiveRequest, SendRequest, WindowType};
use uverbs_abi::efa::ids::comp_cntr::create::{COMP_BUFFER, ERR_BUFFER};
use uverbs_abi::ids::{comp_cntr, counters, flow, qp};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::write::{BufferDesc, QpCap};
use zerocopy::{FromZeros, IntoBytes};

#[test]
fn queue_pairs_and_payloads() {
    let rows: &[Row] = &[
        (
            "check sequences on raw packets",
            |w| create_qp(w.pd, w.cq).with(RawAttr::input(qp::create::FLAGS, &[0, 1, 0, 0])),
            EOPNOTSUPP,
        ),
        ("a QP without any ring", |w| with_cap(w, |cap| (cap.max_send_wr, cap.max_recv_wr) = (0, 0)), EINVAL),
        ("254 attributes of which most cannot be read", |_| info(0).with_num_attrs(254), EFAULT),
        (
            "a CQ whose ring cannot be told",
            |_| replaced(create_cq(4), RawAttr::bad_address(UHW_OUT, 16)),
            EFAULT,
        ),
        (
            "a payload that promises more than it has",
            |w| {
                create_flow(w.qp, &[eth([2, 0, 0, 0, 0, 9]), count(w.counters)])
                    .with(RawAttr::value(UHW_IN, 1))
            },
            EINVAL,
        ),
    ];
    check(&World::new(), rows);
}

#[test]
fn without_counters_and_flows() {
    let device = SoftDevice::new(Profile::default().with_counters(false).with_flows(false));
    let file = device.raw();
    done(&file, get_context());
    assert_eq!(file.invoke(&mut create_counters()), Err(EPROTONOSUPPORT));
    assert_eq!(file.invoke(&mut destroy_flow(0)), Err(EPROTONOSUPPORT));
    assert_eq!(file.invoke(&mut create_flow(0, &[])), Err(EOPNOTSUPP));
    assert_eq!(file.invoke(&mut info(counters::OBJECT.into())), Err(ENOENT));
    assert_eq!(file.invoke(&mut info(flow::OBJECT.into())), Err(ENOENT));
}

#[test]
fn before_there_is_a_context() {
    let file = SoftDevice::default().raw();
    for mut command in [create_counters(), create_flow(0, &[])] {
        assert_eq!(file.invoke(&mut command), Err(EINVAL), "{command:?}");
    }
}

/// As EFA's driver answers on Linux 7.3.
#[test]
fn completion_counters_of_the_hardware() {
    let device = SoftDevice::new(Profile::default().with_completion_counters(4));
    let file = device.raw();
    done(&file, get_context());
    let (base, memory) = file.memory(4096).expect("memory");
    let buffer = |at: u64| BufferDesc { type_: 1, addr: base + at, length: 8, ..BufferDesc::new_zeroed() };
    let create = |successes: BufferDesc, errors: BufferDesc| {
        RawCommand::new(comp_cntr::OBJECT, comp_cntr::method::CREATE)
            .with(RawAttr::handle(comp_cntr::create::HANDLE, 0))
            .with(RawAttr::input(COMP_BUFFER, successes.as_bytes()))
            .with(RawAttr::input(ERR_BUFFER, errors.as_bytes()))
    };
    let good = buffer(8);
    for (what, bad, errno) in [
        ("another type", BufferDesc { type_: 2, ..good }, EINVAL),
        ("a flag", BufferDesc { flags: 1, ..good }, EINVAL),
        ("no length", BufferDesc { length: 0, ..good }, EINVAL),
        ("four bytes", BufferDesc { length: 4, ..good }, EINVAL),
        ("an address between words", buffer(4), EINVAL),
        ("the end of the page", buffer(4092), EINVAL),
        ("no dma-buf", BufferDesc { type_: 0, fd: -1, ..good }, EBADF),
        ("no memory", BufferDesc { addr: 0, ..good }, EFAULT),
        ("behind the memory", buffer(1 << 20), EFAULT),
    ] {
        assert_eq!(file.invoke(&mut create(bad, good)), Err(errno), "successes: {what}");
        assert_eq!(file.invoke(&mut create(good, bad)), Err(errno), "errors: {what}");
    }
    let mut missing = RawCommand::new(comp_cntr::OBJECT, comp_cntr::method::CREATE)
        .with(RawAttr::handle(comp_cntr::create::HANDLE, 0));
    assert_eq!(file.invoke(&mut missing), Err(EINVAL));
    let long = BufferDesc { optional_flags: 1, length: 4096, fd: 3, ..buffer(0) };
    let handle = done(&file, create(long, buffer(8))).data(comp_cntr::create::HANDLE) as u32;

    let modify = |entry: u64, how: u64, value: u64| {
        RawCommand::new(comp_cntr::OBJECT, comp_cntr::method::MODIFY)
            .with(RawAttr::handle(comp_cntr::modify::HANDLE, handle.into()))
            .with(RawAttr::value(comp_cntr::modify::ENTRY, entry))
            .with(RawAttr::value(comp_cntr::modify::OP, how))
            .with(RawAttr::input(comp_cntr::modify::VALUE, value.as_bytes()))
    };
    done(&file, modify(0, 0, 40));
    done(&file, modify(1, 1, 3));
    // The kernel treats these as successes, and as an increase.
    done(&file, modify(2, 1, 1));
    done(&file, modify(0, 2, 1));
    assert_eq!(file.invoke(&mut modify(u64::MAX, 0, 1)), Err(EINVAL));
    let mut values = [0; 16];
    assert!(memory.read(0, &mut values));
    assert_eq!(u128::from_ne_bytes(values), 3 << 64 | 42);
    let mut read = RawCommand::new(comp_cntr::OBJECT, comp_cntr::method::READ)
        .with(RawAttr::handle(comp_cntr::read::HANDLE, handle.into()))
        .with(RawAttr::value(comp_cntr::read::ENTRY, 0))
        .with(RawAttr::output(comp_cntr::read::RESP_VALUE, 8));
    assert_eq!(file.invoke(&mut read), Err(EOPNOTSUPP), "the driver has no such function");
    assert_eq!(file.invoke(&mut RawCommand::new(comp_cntr::OBJECT, 4)), Err(EPROTONOSUPPORT));
    done(&file, destroy(comp_cntr::OBJECT, comp_cntr::method::DESTROY, handle));
}

fn with_cap(world: &World, change: impl FnOnce(&mut QpCap)) -> RawCommand {
    let mut cap = QpCap { max_send_wr: 8, max_recv_wr: 8, ..QpCap::new_zeroed() };
    change(&mut cap);
    replaced(create_qp(world.pd, world.cq), RawAttr::input(qp::create::CAP, cap.as_bytes()))
}

#[test]
fn a_profile_says_who_hears_a_frame() {
    for hears_itself in [false, true] {
        let device = SoftDevice::new(Profile::default().with_hears_itself(hears_itself).with_sniffers(false));
        let context = device.device().open().unwrap();
        let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
        let memory = pd.register(128, AccessFlags::LOCAL_WRITE).unwrap();
        let mut qp = pd.raw_packet(&cq).connect(1).unwrap();
        assert_eq!(qp.create_flow(&FlowRule::sniffer(1)).unwrap_err().errno(), Some(EOPNOTSUPP));
        let _flow = qp.create_flow(&FlowRule::normal(1)).unwrap();
        qp.post_receive(&[ReceiveRequest::new(1, &[memory.segment(64..).unwrap()])]).unwrap();
        qp.post_send(&[SendRequest::frame(2, &[memory.segment(..60).unwrap()])]).unwrap();
        assert_eq!(cq.poll(&mut Completion::batch::<4>()), usize::from(hears_itself));
    }
}

#[test]
fn what_a_profile_takes_away_or_adds_is_seen() {
    let open = |profile| SoftDevice::new(profile).device().open().unwrap();
    let plain = open(Profile::default());
    assert_eq!(plain.create_cq(4).unwrap().moderate(1, 1).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(plain.query_device().unwrap().cq_moderation_caps.max_cq_moderation_count, 0);
    let other = open(
        Profile::default().with_cq_moderation(true).with_completion_vectors(1).with_max_mw(0).with_gids(0),
    );
    let most = other.query_device().unwrap().cq_moderation_caps;
    let cq = other.create_cq(4).unwrap();
    cq.moderate(most.max_cq_moderation_count, most.max_cq_moderation_period).unwrap();
    let beyond = cq.moderate(1, most.max_cq_moderation_period + 1).unwrap_err();
    assert_eq!(beyond.errno(), Some(EINVAL));
    assert_eq!(other.completion_vectors(), 1);
    assert_eq!(other.cq(4).vector(1).create().unwrap_err().errno(), Some(EINVAL));
    let none = other.alloc_pd().unwrap().alloc_window(WindowType::Two).unwrap_err();
    assert_eq!((none.kind(), none.errno()), (ErrorKind::Unsupported, Some(EOPNOTSUPP)));
}
