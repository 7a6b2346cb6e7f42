//! Bad input, and the errno of the kernel for it: nothing else may change.

use crate::commands::*;
use crate::common::{Answers, Target, on_every_device, on_every_device_and};
use crate::files;
use nix::libc::{EBADF, EFAULT, EINVAL, ENODATA, ENOENT, ENOMSG, ENOSPC, EOPNOTSUPP, EPROTONOSUPPORT};
use uverbs::soft::{Profile, RawAttr, RawCommand};
use uverbs_abi::ids::{async_event, comp_channel, counters, cq, device, mr, pd, qp, wq};
use uverbs_abi::ioctl::UHW_IN;
use uverbs_abi::types::qp_type;
use uverbs_abi::write::cmd;

/// Sends every row to every device, and checks that nothing is left. The soft device is configured without features that some of the
/// others lack.
fn every_row(rows: &[Row<Base>]) {
    on_every_device_and(Profile::default().with_xrc(false), |target: &Target| {
        let base = files::base(target, qp_type::RC);
        let mut answers = Answers::of(target);
        send_rows(&base, rows, |what, got, expected| answers.is(what, got, expected));
    });
}

#[test]
fn header_and_method() {
    let rows: &[Row<Base>] = &[
        ("a length below the header's", |_| info(0).with_length(23), EINVAL),
        ("a length that is not that of the attributes", |_| info(0).with_length(24), EINVAL),
        ("255 attributes, more than a page", |_| info(0).with_num_attrs(255), EINVAL),
        ("reserved1 set", |_| info(0).with_reserved(1, 0), EPROTONOSUPPORT),
        ("reserved2 set", |_| info(0).with_reserved(0, 1), EPROTONOSUPPORT),
        ("the id of another driver", |_| info(0).with_driver_id(2), EINVAL),
        (
            "reserved set and another driver",
            |_| info(0).with_reserved(1, 0).with_driver_id(2),
            EPROTONOSUPPORT,
        ),
        ("completion counters, which no kernel has", |_| RawCommand::new(19, 0), EPROTONOSUPPORT),
        ("object 200", |_| RawCommand::new(200, 0), EPROTONOSUPPORT),
        ("a driver's object", |_| RawCommand::new(0x1000, 0x1000), EPROTONOSUPPORT),
        ("an object outside the name spaces", |_| RawCommand::new(0xe000, 0), EPROTONOSUPPORT),
        ("an object with a stray bit", |_| RawCommand::new(0x2001, 0), EPROTONOSUPPORT),
        ("DEVICE method 20", |_| RawCommand::new(0, 20), EPROTONOSUPPORT),
        ("a driver's method of DEVICE", |_| RawCommand::new(0, 0x1000), EPROTONOSUPPORT),
        ("method 0x8003", |_| RawCommand::new(0, 0x8003), EPROTONOSUPPORT),
        ("PD method 5", |_| RawCommand::new(pd::OBJECT, 5), EPROTONOSUPPORT),
        ("COUNTERS method 3", |_| RawCommand::new(counters::OBJECT, 3), EPROTONOSUPPORT),
        ("REG_MR, which came with 7.2", |_| RawCommand::new(mr::OBJECT, mr::method::REG), EPROTONOSUPPORT),
        ("QUERY_PORT_SPEED, which came with 7.2", |_| RawCommand::new(0, 7), EPROTONOSUPPORT),
        ("work queues, which this device lacks", |_| RawCommand::new(wq::OBJECT, 0), EPROTONOSUPPORT),
        ("registering memory of a DM, which it lacks", |_| RawCommand::new(mr::OBJECT, 0), EPROTONOSUPPORT),
    ];
    every_row(rows);
}

#[test]
fn attributes() {
    let rows: &[Row<Base>] = &[
        ("an unknown mandatory attribute", |_| info(0).with(RawAttr::value(9, 0)), EPROTONOSUPPORT),
        ("a mandatory attribute above 31", |_| info(0).with(RawAttr::value(40, 0)), EPROTONOSUPPORT),
        ("an unknown driver attribute", |_| info(0).with(RawAttr::value(0x1005, 0)), EPROTONOSUPPORT),
        (
            "an attribute outside the name spaces",
            |_| info(0).with(RawAttr::value(0x2000, 0)),
            EPROTONOSUPPORT,
        ),
        ("an unknown optional attribute", |_| info(0).with(RawAttr::value(9, 0).with_flags(0)), 0),
        (
            "nothing of an unknown optional attribute counts",
            |_| {
                let mut attr = RawAttr::bad_address(9, 77).with_flags(0);
                (attr.elem_id, attr.reserved) = (3, 1);
                info(0).with(attr)
            },
            0,
        ),
        ("the same attribute twice", |_| info(0).with(RawAttr::value(0, 0)), EINVAL),
        ("a reserved byte set", |_| changed(info(0), 0, |attr| attr.reserved = 1), EINVAL),
        ("an element id where there are none", |_| changed(info(0), 0, |attr| attr.elem_id = 1), EINVAL),
        ("undefined bits in the flags", |_| changed(info(0), 0, |attr| attr.flags |= 0xff00), 0),
        ("a mandatory attribute missing", |_| without(info(0), 0), EINVAL),
        ("an output one byte short", |_| changed(info(0), 1, |attr| attr.len = 3), EINVAL),
        ("an output one byte long", |_| replaced(info(0), RawAttr::output(1, 5)), EINVAL),
        ("an output that cannot be written", |_| replaced(info(0), RawAttr::bad_address(1, 4)), EFAULT),
        ("a constant of four bytes", |_| changed(info(0), 0, |attr| attr.len = 4), EINVAL),
        ("a constant of nine bytes", |_| replaced(info(0), RawAttr::input(0, &[0; 9])), EINVAL),
        ("a handle of four bytes", |_| changed(destroy_pd(0), 0, |attr| attr.len = 4), EINVAL),
        ("a handle without object", |_| destroy_pd(99), ENOENT),
        ("a handle beyond 32 bits", |_| destroy_pd(1 << 32), ENOENT),
        ("a handle with bit 63", |_| destroy_pd(1 << 63), EINVAL),
        ("a handle of another kind", |world| destroy_pd(world.cq.into()), EINVAL),
        ("a bad handle before an unknown attribute", |_| destroy_pd(99).with(RawAttr::value(9, 0)), ENOENT),
        (
            "an unknown attribute before a bad handle",
            |_| RawCommand::new(pd::OBJECT, 0).with(RawAttr::value(9, 0)).with(RawAttr::handle(0, 99)),
            EPROTONOSUPPORT,
        ),
        ("a bad handle and a missing answer", |_| destroy(qp::OBJECT, qp::method::DESTROY, 99), ENOENT),
        (
            "a driver's payload where there is none",
            |_| RawCommand::new(pd::OBJECT, 0).with(RawAttr::value(UHW_IN, 0)).with(RawAttr::handle(0, 99)),
            EPROTONOSUPPORT,
        ),
        ("a mask of three bytes", |_| with_flags(&[0; 3]), EINVAL),
        ("a mask of five bytes", |_| with_flags(&[0; 5]), EINVAL),
        ("a mask of sixteen bytes", |_| with_flags(&[0; 16]), EINVAL),
        ("a mask with an unknown bit", |_| with_flags(&1_u32.to_ne_bytes()), EINVAL),
        ("a mask with bit 32", |_| with_flags(&(1_u64 << 32).to_ne_bytes()), EINVAL),
        ("a mask of eight bytes", |_| with_flags(&0_u64.to_ne_bytes()), 0),
        (
            "a descriptor that is not open",
            |_| create_cq(4).with(RawAttr::handle(cq::create::COMP_CHANNEL, 1000)),
            EBADF,
        ),
        (
            "a negative descriptor",
            |_| create_cq(4).with(RawAttr::handle(cq::create::COMP_CHANNEL, -1_i64 as u64)),
            EBADF,
        ),
        (
            "a descriptor of another kind",
            |_| create_cq(4).with(RawAttr::handle(cq::create::COMP_CHANNEL, 1)),
            EBADF,
        ),
        (
            "a descriptor beyond 32 bits",
            |_| create_cq(4).with(RawAttr::handle(cq::create::COMP_CHANNEL, 1 << 32)),
            EINVAL,
        ),
        (
            "a handle of a kind that the device lacks",
            |w| create_qp_of(qp_type::RC, w.pd, w.cq).with(RawAttr::handle(qp::create::XRCD_HANDLE, 0)),
            EINVAL,
        ),
    ];
    every_row(rows);
}

fn with_flags(bytes: &[u8]) -> RawCommand {
    gid_table(32, 1024 * 32).with(RawAttr::input(device::query_gid_table::FLAGS, bytes))
}

fn query_port(port: u64, room: usize) -> RawCommand {
    RawCommand::new(0, device::method::QUERY_PORT)
        .with(RawAttr::value(0, port))
        .with(RawAttr::output(1, room))
}

fn gid_table(size: u64, room: usize) -> RawCommand {
    RawCommand::new(0, device::method::QUERY_GID_TABLE)
        .with(RawAttr::value(0, size))
        .with(RawAttr::output(2, room))
        .with(RawAttr::output(3, 8))
}

fn gid_entry(port: u64, index: u64) -> RawCommand {
    RawCommand::new(0, device::method::QUERY_GID_ENTRY)
        .with(RawAttr::value(0, port))
        .with(RawAttr::value(1, index))
        .with(RawAttr::input(2, &[0; 4]))
        .with(RawAttr::output(3, 32))
}

#[test]
fn queries() {
    let rows: &[Row<Base>] = &[
        ("a second context", |_| get_context(), EINVAL),
        (
            "a capability array, which came with 7.2",
            |_| get_context().with(RawAttr::input(2, &[0; 4])),
            EPROTONOSUPPORT,
        ),
        ("port 0", |_| query_port(0, 48), EINVAL),
        ("port 2 of 1", |_| query_port(2, 48), EINVAL),
        ("port 256", |_| query_port(256, 48), EINVAL),
        ("port -1", |_| query_port(u64::MAX, 48), EINVAL),
        ("room for 40 bytes of a port", |_| query_port(1, 40), EINVAL),
        ("room for 100 bytes of a port", |_| query_port(1, 100), 0),
        (
            "QUERY_CONTEXT, which only mlx5 has",
            |_| RawCommand::new(0, device::method::QUERY_CONTEXT),
            EOPNOTSUPP,
        ),
        ("GID entries of size 0", |_| gid_table(0, 64), EINVAL),
        ("no room for GID entries", |_| gid_table(32, 0), EINVAL),
        ("room for a part of a GID entry", |_| gid_table(32, 40), EINVAL),
        ("larger GID entries", |_| gid_table(40, 1024 * 40), 0),
        ("smaller GID entries", |_| gid_table(16, 1024 * 16), 0),
        ("a GID index beyond the table", |_| gid_entry(1, 100_000), EINVAL),
        ("a GID of port 2", |_| gid_entry(2, 0), EINVAL),
        ("an empty GID entry", |_| gid_entry(1, 15), ENODATA),
        ("a GID entry without flags", |_| without(gid_entry(1, 0), 2), EINVAL),
        ("handles without a list", |_| without(info(0), 2), EINVAL),
        ("handles without a total", |_| without(info(1), 1), ENOENT),
        ("a list of six bytes", |_| replaced(info(1), RawAttr::output(2, 6)), EINVAL),
        ("a total of eight bytes", |_| replaced(info(1), RawAttr::output(1, 8)), EINVAL),
        ("handles of an object that the device lacks", |_| info(wq::OBJECT.into()), ENOENT),
        ("handles of object 0xffff", |_| info(0xffff), ENOMSG),
        ("handles of object 0x10000", |_| info(0x10000), EINVAL),
        ("handles of completion channels", |_| info(comp_channel::OBJECT.into()), 0),
        ("an event file without its attribute", |_| RawCommand::new(async_event::OBJECT, 0), EINVAL),
    ];
    every_row(rows);
}

#[test]
fn before_there_is_a_context() {
    on_every_device(|target| {
        let file = target.raw();
        let commands = [
            query_port(1, 48),
            write(cmd::ALLOC_PD, &0_u64, 4),
            write(cmd::EX_QUERY_DEVICE, &0_u64, 304),
            write(cmd::CREATE_COMP_CHANNEL, &0_u64, 4),
            alloc_async(),
            create_cq(4),
            gid_entry(1, 0),
        ];
        let mut answers = Answers::of(target);
        for mut command in commands {
            let what = format!("before there is a context: {command:?}");
            answers.is(&what, file.invoke(&mut command), Err(EINVAL));
        }
        answers.is("mapping before there is a context", file.map(0, 4096).err(), Some(EINVAL));
        // These need none.
        let probe = file.invoke(&mut RawCommand::write(cmd::QUERY_DEVICE));
        answers.is("the probe before there is a context", probe, Err(ENOSPC));
        answers.is("destroying before there is a context", file.invoke(&mut destroy_pd(0)), Err(ENOENT));
        answers.is("handles before there is a context", file.invoke(&mut info(1)), Ok(()));
    });
}

#[test]
fn write_commands() {
    let rows: &[Row<Base>] = &[
        ("the probe: QUERY_DEVICE without buffers", |_| RawCommand::write(cmd::QUERY_DEVICE), ENOSPC),
        ("no command", |_| RawCommand::new(0, 0), EINVAL),
        ("a command of four bytes", |_| changed(RawCommand::write(1), 2, |attr| attr.len = 4), EINVAL),
        ("unknown bits in the command", |_| RawCommand::write(0x101), EINVAL),
        (
            "a command beyond 32 bits",
            |_| replaced(RawCommand::write(1), RawAttr::value(2, (1 << 32) + 1)),
            EINVAL,
        ),
        ("a number that was never implemented", |_| RawCommand::write(cmd::MODIFY_AH), EOPNOTSUPP),
        ("a number above the table", |_| RawCommand::write(200), EOPNOTSUPP),
        ("an extended number above the table", |_| RawCommand::write(cmd::FLAG_EXTENDED | 200), EOPNOTSUPP),
        ("a command that the device lacks", |_| RawCommand::write(cmd::OPEN_XRCD), EOPNOTSUPP),
        (
            "a request of three bytes",
            |_| RawCommand::write(cmd::DEALLOC_PD).with(RawAttr::input(CORE_IN, &[0; 3])),
            EINVAL,
        ),
        (
            "a longer request with something in it",
            |_| {
                RawCommand::write(cmd::EX_QUERY_DEVICE)
                    .with(RawAttr::input(CORE_IN, &[[0; 8], [1; 8]].concat()))
            },
            EOPNOTSUPP,
        ),
        (
            "a longer request of zeros",
            |_| RawCommand::write(cmd::EX_QUERY_DEVICE).with(RawAttr::input(CORE_IN, &[0; 32])),
            0,
        ),
        ("an extended request of nothing", |_| RawCommand::write(cmd::EX_QUERY_DEVICE), 0),
        ("a short request", |_| write(cmd::ALLOC_PD, &0_u32, 4), ENOSPC),
        ("no room for the response", |_| write(cmd::ALLOC_PD, &0_u64, 0), ENOSPC),
        ("too little room for the response", |_| write(cmd::ALLOC_PD, &0_u64, 3), ENOSPC),
        (
            "a response that cannot be written",
            |_| replaced(write(cmd::ALLOC_PD, &0_u64, 4), RawAttr::bad_address(CORE_OUT, 4)),
            EFAULT,
        ),
        (
            "a request that cannot be read",
            |_| {
                RawCommand::write(cmd::REG_MR)
                    .with(RawAttr::bad_address(CORE_IN, 40))
                    .with(RawAttr::output(CORE_OUT, 12))
            },
            EFAULT,
        ),
        ("EX_QUERY_DEVICE with a comp_mask", |_| write(cmd::EX_QUERY_DEVICE, &1_u64, 304), EINVAL),
        ("DEALLOC_PD of nothing", |_| write(cmd::DEALLOC_PD, &99_u32, 0), ENOENT),
        ("DEREG_MR of a protection domain", |w| write(cmd::DEREG_MR, &w.pd, 0), EINVAL),
        ("QUERY_PORT of port 9", |_| write(cmd::QUERY_PORT, &[0_u64, 9], 40), EINVAL),
    ];
    every_row(rows);
}
