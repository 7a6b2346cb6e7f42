//! Credentials that change while a device is open, as those of a daemon that gives up its rights.

use crate::common::*;
use uverbs::{CompletionQueue, Operation, ProtectionDomain, Status};

/// The kernel takes a write only from the very credentials with which the file was opened (`ib_safe_file_access`, rdma_core.h, Linux 6.1 to
/// 7.3). Each change makes other ones, also one that takes no right away.
#[test]
fn a_thread_whose_credentials_have_changed_posts() {
    on_every_joining_device(|target| {
        let context = target.open();
        let make = |pd: &ProtectionDomain, cq: &CompletionQueue| {
            pd.rc(cq).send_depth(16).receive_depth(16).create().unwrap()
        };
        let (mut one, mut two) = (Side::new(&context, make), Side::new(&context, make));
        let _manager = join(&context, &mut one.qp, &mut two.qp);
        one.memory.write(0, b"before after").unwrap();
        let mut send = |wr_id, range| {
            two.receive(wr_id, 0..8);
            one.send(wr_id, Operation::Send, range);
            for side in [&mut one, &mut two] {
                let end = side.completion();
                assert_eq!((end.wr_id, end.status), (wr_id, Status::Success));
            }
        };
        send(1, 0..7);
        std::thread::scope(|scope| {
            let changed = scope.spawn(|| {
                nix::sys::prctl::set_keepcaps(true).unwrap();
                (2..5).for_each(|wr_id| send(wr_id, 7..12));
            });
            changed.join().unwrap();
        });
        assert_eq!(two.bytes(0), *b"after");
    });
}
