//! Every object is created and destroyed a thousand times, and nothing grows. A separate process, because everything that it holds is
//! counted.
#![cfg(feature = "soft")]

mod common;

use common::{
    Footprint, MAC, Target, has_infiniband, on_every_device, options, packets_and_bytes, read2, resident,
};
use uverbs::{AccessFlags, Eth, FlowRule, WindowType};

/// Creates and destroys one object of every kind that a card has: frames and flow counters.
fn one_of_each_on_a_card(target: &Target) {
    let context = target.open();
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let cq = context.cq(16).channel(&channel).create().unwrap();
    let region = pd.register(8192, AccessFlags::LOCAL_WRITE).unwrap();
    let qp = pd.raw_packet(&cq).connect(1).unwrap();
    let counters = packets_and_bytes(&context);
    let flow = qp.create_flow(&FlowRule::normal(1).eth(Eth::any().dst(MAC)).count(&counters)).unwrap();
    assert_eq!(read2(&counters), [0, 0]);
    flow.destroy().unwrap();
    drop((counters, qp, region, cq, channel, pd));
}

/// Creates and destroys one object of every kind that every other device has, and a card with an InfiniBand port.
fn one_of_each(target: &Target) {
    let is_card = target.device.driver() == "mlx5";
    if is_card && !has_infiniband(target) {
        return one_of_each_on_a_card(target);
    }
    let context = target.open();
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let cq = context.cq(16).channel(&channel).create().unwrap();
    let region = pd.register(8192, AccessFlags::LOCAL_WRITE).unwrap();
    let options = options(&context);
    let (rc, uc, ud) =
        (pd.rc(&cq).create().unwrap(), pd.uc(&cq).create().unwrap(), pd.ud(&cq).create().unwrap());
    let ah = pd.create_ah(&options.route(&ud.endpoint(&options, 0).unwrap())).unwrap();
    let srq = pd.create_srq(4).unwrap();
    let shared = pd.rc(&cq).srq(&srq).create().unwrap();
    let windows = [WindowType::One, WindowType::Two].map(|kind| pd.alloc_window(kind).unwrap());
    if is_card {
        let domain = context.open_xrcd().unwrap();
        let extended = domain.srq(&pd, &cq, 4).create().unwrap();
        let receiver = domain.receive_qp().create().unwrap();
        drop((pd.xrc_send(&cq).create().unwrap(), receiver, extended, domain));
    }
    rc.destroy().unwrap();
    drop((shared, srq, windows, uc, ud, ah, region, cq, channel, pd));
}

#[test]
fn a_thousand_cycles_leave_nothing() {
    on_every_device(|target| {
        // A card takes time; a virtual one takes more.
        let rounds = if cfg!(miri) { 2 } else { if target.control.is_some() { 100 } else { 1000 } };
        // What is allocated once stays: the allocator's arenas, the device's own tables.
        (0..rounds / 10 + 1).for_each(|_| one_of_each(target));
        let (before, memory) = (Footprint::now(), resident());
        (0..rounds).for_each(|_| one_of_each(target));
        assert_eq!(Footprint::now(), before);
        let grown = resident().saturating_sub(memory);
        assert!(grown < 2048, "{grown} kB more in use");
    });
}
