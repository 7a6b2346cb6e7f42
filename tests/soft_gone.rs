//! A transport that says "the device is gone" while the soft device is not: memory must stay valid for it.
#![cfg(feature = "soft")]

use nix::errno::Errno;
use uverbs::command::Command;
use uverbs::transport::{Mapping, Transport};
use uverbs::{AccessFlags, FlowRule, ReceiveRequest, SoftDevice};

/// Answers every destroy with EIO, and passes on the rest.
#[derive(Debug)]
struct Gone(Box<dyn Transport>);

impl Transport for Gone {
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno> {
        if command.op().ends_with(".destroy") { Err(Errno::EIO) } else { self.0.invoke(command) }
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.0.map(offset, len)
    }
}

#[test]
fn a_device_that_was_told_nothing_may_write_to_memory_that_was_let_go() {
    let soft = SoftDevice::default();
    let context = soft.device().open_with(|inner| Box::new(Gone(inner))).unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).unwrap();
    let mut qp = pd.raw_packet(&cq).connect(1).unwrap();
    let flow = qp.create_flow(&FlowRule::normal(1)).unwrap();
    let region = pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
    let segments = [region.segment(0..2048).unwrap()];
    qp.post_receive(&[ReceiveRequest::new(1, &segments)]).unwrap();
    drop((flow, qp, region));
    assert_eq!(soft.resources().memory_regions, 1);
    soft.inject(&[7; 100]);
    drop((pd, cq, context));
    assert!(soft.resources().is_empty());
}
