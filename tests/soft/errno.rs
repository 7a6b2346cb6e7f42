//! Bad input that a kernel does not survive or that only the soft device has, and the errno that the kernel and mlx5
//! give for it; the rest is in `flow_errno.rs`.

use crate::commands::*;
use nix::libc::{EFAULT, EINVAL, ENOENT, EOPNOTSUPP, EPROTONOSUPPORT};
use uverbs::soft::{Profile, RawAttr, RawCommand, SoftDevice};
use uverbs::{AccessFlags, Completion, ErrorKind, FlowRule, ReceiveRequest, SendRequest, WindowType};
use uverbs_abi::ids::{counters, flow, qp};
use uverbs_abi::ioctl::UHW_IN;
use uverbs_abi::write::QpCap;
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
        // The kernel would read on behind it.
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
