//! Creating queue pairs and address handles, on every device; their states are in `transitions.rs`.

use crate::commands::verbs::*;
use crate::commands::*;
use crate::common::{Answers, on_every_device, on_every_device_and};
use nix::libc::{EBUSY, EINVAL, ENODATA, ENOENT, EOPNOTSUPP};
use uverbs::soft::{Profile, RawAttr};
use uverbs_abi::ids::{ah, device, pd, qp};
use uverbs_abi::ioctl::UHW_OUT;
use uverbs_abi::types::{QpCreateFlags, qp_type};
use uverbs_abi::write::{GidEntry, QpCap, cmd};
use zerocopy::{FromZeros, IntoBytes};

const KINDS: [u8; 3] = [qp_type::RC, qp_type::UC, qp_type::UD];

#[test]
fn what_cannot_be_made() {
    on_every_device_and(Profile::default().with_xrc(false), |target| {
        let side = Side::on(target.raw(), 4096);
        let mut answers = Answers::of(target);
        let cap = |change: fn(&mut QpCap)| {
            let mut cap = QpCap::new_zeroed();
            change(&mut cap);
            RawAttr::input(qp::create::CAP, cap.as_bytes())
        };
        let flags = |flags: QpCreateFlags| RawAttr::input(qp::create::FLAGS, flags.bits().as_bytes());
        let mut is = |kind, name: &str, attr: RawAttr, expected: i32| {
            let mut command = create(kind, side.pd, side.cq.handle);
            command.attrs().retain(|old| old.id != attr.id);
            let got = errno(side.file.invoke(&mut command.with(attr)));
            answers.is(&format!("{name}, type {kind}"), got, Answer(expected));
        };
        for kind in KINDS {
            is(kind, "a send ring too long", cap(|cap| cap.max_send_wr = (1 << 20) + 1), EINVAL);
            is(kind, "a receive ring too long", cap(|cap| cap.max_recv_wr = (1 << 20) + 1), EINVAL);
            is(kind, "sends of too many pieces", cap(|cap| cap.max_send_sge = 33), EINVAL);
            is(kind, "receives of too many pieces", cap(|cap| cap.max_recv_sge = 33), EINVAL);
            is(kind, "too much inline data", cap(|cap| cap.max_inline_data = 1000), EINVAL);
            is(kind, "too little room for the rings", RawAttr::output(UHW_OUT, 16), EINVAL);
            // Unlike raw packets, they may have no queues at all.
            is(kind, "no queues", cap(|_| {}), 0);
            is(kind, "all sends signaled", flags(QpCreateFlags::SQ_SIG_ALL), 0);
            let errno = if kind == qp_type::UD { EOPNOTSUPP } else { EINVAL };
            is(kind, "no multicast of one's own", flags(QpCreateFlags::BLOCK_MULTICAST_LOOPBACK), errno);
        }
        is(qp_type::XRC_INI, "an extended connection", cap(|_| {}), EOPNOTSUPP);
    });
}

#[test]
fn address_handles_use_their_protection_domain() {
    on_every_device(|target| {
        let side = Side::on(target.raw(), 4096);
        let new_pd = new_pd(&side.file);
        let bad = |command| side.file.invoke(&mut { command });
        let count = || {
            let mut command = info(ah::OBJECT.into());
            assert_eq!(side.file.invoke(&mut command), Ok(()));
            answer::<u32>(&command, device::info_handles::TOTAL_HANDLES)
        };
        assert_eq!(bad(create_ah(99, IPV4, 0)), Err(ENOENT));
        let beyond = errno(bad(create_ah(new_pd, IPV4, 255)));
        Answers::of(target).is("a GID beyond the table", beyond, Answer(EINVAL));
        assert_eq!(bad(create_ah(new_pd, IPV4, 15)), Err(ENODATA));
        assert_eq!(count(), 0);

        // The driver's response may be left out.
        let made = done(&side.file, create_ah(new_pd, IPV4, 1));
        let first: u32 = answer(&made, CORE_OUT);
        let (second, number) = side.ah(IPV4, 1);
        assert_ne!(number, 0);
        assert_eq!(count(), 2);
        assert_eq!(bad(destroy(pd::OBJECT, pd::method::DESTROY, new_pd)), Err(EBUSY));
        done(&side.file, destroy(ah::OBJECT, ah::method::DESTROY, first));
        done(&side.file, destroy(pd::OBJECT, pd::method::DESTROY, new_pd));
        done(&side.file, write(cmd::DESTROY_AH, &second, 0));
        assert_eq!(bad(write(cmd::DESTROY_AH, &second, 0)), Err(ENOENT));
        assert_eq!(count(), 0);
    });
}

#[test]
fn there_are_two_gids() {
    on_every_device(|target| {
        let side = Side::on(target.raw(), 4096);
        let entry = |index| {
            let command = uverbs::soft::RawCommand::new(device::OBJECT, device::method::QUERY_GID_ENTRY)
                .with(RawAttr::value(device::query_gid_entry::PORT, 1))
                .with(RawAttr::value(device::query_gid_entry::GID_INDEX, index))
                .with(RawAttr::input(device::query_gid_entry::FLAGS, &[0; 4]))
                .with(RawAttr::output(device::query_gid_entry::RESP_ENTRY, 32));
            answer::<GidEntry>(&done(&side.file, command), device::query_gid_entry::RESP_ENTRY)
        };
        assert_eq!(entry(0).gid[..8], LINK_LOCAL[..8]);
        assert_eq!(entry(1).gid, IPV4);
        assert_eq!((entry(1).gid_index, entry(1).port_num, entry(1).gid_type), (1, 1, 2));
    });
}
