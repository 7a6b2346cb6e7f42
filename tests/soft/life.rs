//! When objects can be destroyed, what closing the file leaves, and what a device answers after its removal.

use crate::commands::*;
use nix::libc::{EBUSY, EINVAL, EIO, ENOENT, ENOMEM, ENOSPC};
use std::io::Read;
use uverbs::soft::{Profile, RawAttr, RawCommand, SoftDevice};
use uverbs_abi::ids::{cq, device, mr, pd, qp};
use uverbs_abi::rxe::CreateCqResp;
use uverbs_abi::types::event_type;
use uverbs_abi::write::{AsyncEventDesc, CreateCompChannelResp, ExQueryDeviceResp, cmd};
use uverbs_abi::{ids, ioctl};
use zerocopy::{FromZeros, IntoBytes};

fn info(world: &World, object: u16) -> Vec<u32> {
    let command = RawCommand::new(device::OBJECT, device::method::INFO_HANDLES)
        .with(RawAttr::value(0, object.into()))
        .with(RawAttr::output(1, 4))
        .with(RawAttr::output(2, 64));
    let command = done(&world.file, command);
    let total: u32 = answer(&command, 1);
    answer::<[u32; 16]>(&command, 2)[..total as usize].to_vec()
}

#[test]
fn handles_are_one_space_from_zero() {
    let world = World::new();
    let handles = [world.pd, world.cq, world.qp, world.mr, world.counters, world.bound, world.flow];
    assert_eq!(handles, [0, 1, 2, 3, 4, 5, 6]);
    done(&world.file, destroy_counters(world.counters));
    assert_eq!(new_pd(&world.file), world.counters);
    assert_eq!(info(&world, pd::OBJECT), [4, 0]);
    assert_eq!(info(&world, device::OBJECT), [0_u32; 0]);
    // A failed command releases its handle immediately.
    assert!(world.file.invoke(&mut create_cq(0)).is_err());
    assert_eq!(new_pd(&world.file), 7);
}

#[test]
fn only_from_flow_to_protection_domain_is_nothing_busy() {
    let world = World::new();
    let in_order = [
        destroy_flow(world.flow),
        destroy_counters(world.bound),
        destroy_qp(world.qp),
        destroy_cq(world.cq),
        destroy(mr::OBJECT, mr::method::DESTROY, world.mr),
        destroy(pd::OBJECT, pd::method::DESTROY, world.pd),
    ];
    for (step, command) in in_order.iter().enumerate() {
        let busy = match step {
            0 => vec![destroy_counters(world.bound), destroy_qp(world.qp)],
            1 | 2 => vec![destroy_cq(world.cq), destroy(pd::OBJECT, 0, world.pd)],
            3 | 4 => vec![destroy(pd::OBJECT, 0, world.pd)],
            _ => vec![],
        };
        for mut command in busy {
            assert_eq!(world.file.invoke(&mut command), Err(EBUSY), "{command:?}");
        }
        done(&world.file, command.clone());
        assert_eq!(world.file.invoke(&mut command.clone()), Err(ENOENT), "{command:?}");
    }
    done(&world.file, destroy_counters(world.counters));
    let left = world.resources();
    assert_eq!((left.contexts, left.async_files, left.hardware_counters), (1, 1, 0));
}

#[test]
fn a_destroy_whose_answer_cannot_be_written_has_destroyed() {
    let world = World::new();
    done(&world.file, destroy_flow(world.flow));
    let mut command = destroy(qp::OBJECT, qp::method::DESTROY, world.qp).with(RawAttr::bad_address(1, 4));
    assert_eq!(world.file.invoke(&mut command), Err(nix::libc::EFAULT));
    assert_eq!(world.resources().queue_pairs, 0);
    assert_eq!(world.file.invoke(&mut destroy_qp(world.qp)), Err(ENOENT));
}

#[test]
fn closing_cleans_up_whatever_depends_on_what() {
    let world = World::new();
    let other = world.device.raw();
    done(&other, get_context());
    // Newer than the queue pair that uses it: the cleanup needs a second pass.
    done(&world.file, create_flow(world.qp, &[eth([2, 0, 0, 0, 0, 8]), count(world.bound)]));
    let World { device, base, .. } = world;
    drop(base);
    let left = device.resources();
    assert_eq!(left.contexts, 1);
    drop(other);
    assert!(device.resources().is_empty());
}

#[test]
fn handles_of_one_file_mean_nothing_to_another() {
    let world = World::new();
    let other = world.device.raw();
    done(&other, get_context());
    for mut command in [destroy_flow(world.flow), read_counters(world.bound, 16), destroy_qp(world.qp)] {
        assert_eq!(other.invoke(&mut command), Err(ENOENT));
    }
    assert_eq!(new_pd(&other), 0);
}

#[test]
fn a_ring_is_mapped_once() {
    let world = World::new();
    let made = done(&world.file, create_cq(16));
    let CreateCqResp { mi } = answer(&made, ioctl::UHW_OUT);
    let size = mi.size as usize;
    assert_eq!(answer::<u32>(&made, cq::create::RESP_CQE), 31);
    assert_eq!(world.file.map(mi.offset, size + 1).err(), Some(EINVAL));
    assert_eq!(world.file.map(mi.offset + 1, size).err(), Some(EINVAL));
    assert_eq!(world.file.map(mi.offset, 0).err(), Some(EINVAL));
    let map = world.file.map(mi.offset, size).unwrap();
    assert_eq!(world.file.map(mi.offset, size).err(), Some(EINVAL));
    // It outlives its queue.
    done(&world.file, destroy_cq(made.data(cq::create::HANDLE) as u32));
    assert!(map.read(0, &mut [0; 8]));
    // A ring that was never mapped is discarded with its queue.
    let made = done(&world.file, create_cq(16));
    let CreateCqResp { mi } = answer(&made, ioctl::UHW_OUT);
    done(&world.file, destroy_cq(made.data(cq::create::HANDLE) as u32));
    assert_eq!(world.file.map(mi.offset, size).err(), Some(EINVAL));
}

#[test]
fn limits_are_those_of_the_profile() {
    let profile = Profile::default().with_max_bound_counters(1).with_max_flows(2).with_max_pd(1).with_gids(3);
    let world = World::with(profile.clone());
    assert_eq!(world.device.profile(), &profile);
    assert_eq!(world.file.invoke(&mut write(cmd::ALLOC_PD, &0_u64, 4)), Err(ENOMEM));
    // The only hardware counter is in use: the first use fails, and the object cannot be used from then on.
    let mut counting = create_flow(world.qp, &[count(world.counters)]).with(map(&PACKETS_AND_BYTES));
    assert_eq!(world.file.invoke(&mut counting.clone()), Err(ENOMEM));
    assert_eq!(world.file.invoke(&mut counting), Err(EINVAL));
    done(&world.file, destroy_counters(world.counters));
    let another = create_flow(world.qp, &[eth([2, 0, 0, 0, 0, 2])]);
    done(&world.file, another.clone());
    assert_eq!(world.file.invoke(&mut create_flow(world.qp, &[eth([2; 6])])), Err(ENOSPC));
    // The counter was released and can be used again.
    done(&world.file, destroy_flow(world.flow));
    done(&world.file, destroy_counters(world.bound));
    let fresh = new_counters(&world.file);
    done(&world.file, create_flow(world.qp, &[eth(MAC), count(fresh)]).with(map(&PACKETS_AND_BYTES)));

    let command = write(cmd::EX_QUERY_DEVICE, &0_u64, 512);
    let limits: ExQueryDeviceResp = answer(&done(&world.file, command), CORE_OUT);
    assert_eq!((limits.base.max_pd, limits.response_length), (1, 304));
    let short: [u32; 46] = answer(&done(&world.file, write(cmd::EX_QUERY_DEVICE, &0_u64, 184)), CORE_OUT);
    assert_eq!(short[45], 184);
}

#[test]
fn a_map_is_dropped_with_the_last_flow_and_the_counter_goes_on() {
    let world = World::new();
    let read = || {
        let mut command = read_counters(world.bound, 16);
        world.file.invoke(&mut command).map(|()| answer::<[u64; 2]>(&command, 1))
    };
    let frame = [&MAC[..], &[0; 54]].concat();
    world.device.inject(&frame);
    assert_eq!(read(), Ok([1, 60]));
    // A second flow shares the counter, and must not contain a map.
    let second = new_flow(&world.file, create_flow(world.qp, &[eth([2; 6]), count(world.bound)]));
    world.device.inject(&[2; 60]);
    assert_eq!(read(), Ok([2, 120]));
    done(&world.file, destroy_flow(world.flow));
    assert_eq!(read(), Ok([2, 120]));
    done(&world.file, destroy_flow(second));
    assert_eq!(read(), Err(EINVAL));
    let bare = create_flow(world.qp, &[eth(MAC), count(world.bound)]);
    assert_eq!(world.file.invoke(&mut bare.clone()), Err(EINVAL));
    let swapped = new_flow(&world.file, bare.with(map(&[(1, 0), (0, 1), (0, 1)])));
    assert_eq!(read(), Ok([120, 4]));
    done(&world.file, destroy_flow(swapped));
}

#[test]
fn what_makes_a_kernel_follow_a_null_pointer_is_invalid_here() {
    let world = World::new();
    let unusable = |handle: u32| {
        assert_eq!(world.file.invoke(&mut read_counters(handle, 16)), Err(EINVAL));
        assert_eq!(world.file.invoke(&mut read_counters(handle, 0)), Err(EINVAL));
    };
    // COUNT in a rule that is not NORMAL is a use, but not a bind.
    let specs = [count(world.counters)];
    let mut header = flow_header(world.qp, &specs);
    header.flow_attr.type_ = 3;
    let sniffer = new_flow(&world.file, flow_command(&header, &specs));
    unusable(world.counters);
    assert_eq!(world.file.invoke(&mut destroy_counters(world.counters)), Err(EBUSY));
    done(&world.file, destroy_flow(sniffer));
    // An index that overflows the highest one.
    let wrapped = new_flow(&world.file, create_flow(world.qp, &specs).with(map(&[(0, u32::MAX)])));
    unusable(world.counters);
    done(&world.file, destroy_flow(wrapped));
    // An empty map counts as none; a map that is refused after it leaves its length behind.
    let empty = new_flow(&world.file, create_flow(world.qp, &specs).with(map(&[])));
    done(&world.file, read_counters(world.counters, 16));
    let refused = create_flow(world.qp, &[eth([2; 6]), count(world.counters)]).with(map(&[(2, 0)]));
    assert_eq!(world.file.invoke(&mut refused.clone()), Err(EINVAL));
    unusable(world.counters);
    done(&world.file, destroy_flow(empty));
}

#[test]
fn an_unplugged_device_lets_go_and_answers_nothing_else() {
    let world = World::new();
    let mut channel = write(cmd::CREATE_COMP_CHANNEL, &0_u64, 4);
    let channel_fd = world.file.invoke_fd(&mut channel).unwrap().expect("a descriptor");
    let CreateCompChannelResp { fd } = answer(&channel, CORE_OUT);
    assert_eq!(fd as i32, std::os::fd::AsRawFd::as_raw_fd(&channel_fd));
    let late = world.device.raw();
    world.device.unplug();
    world.device.unplug();
    world.device.inject(&[0; 60]);

    let calls = [
        read_counters(world.bound, 16),
        create_counters(),
        write(cmd::ALLOC_PD, &0_u64, 4),
        write(cmd::EX_QUERY_DEVICE, &0_u64, 304),
        create_qp(world.pd, world.cq),
        create_cq(4),
        write(cmd::MODIFY_QP, &modify(world.qp, 1, uverbs_abi::types::QpAttrMask::PORT), 0),
        create_flow(world.qp, &[]),
        get_context(),
        alloc_async(),
        write(cmd::CREATE_COMP_CHANNEL, &0_u64, 4),
    ];
    for mut command in calls {
        assert_eq!(world.file.invoke(&mut command), Err(EIO), "{command:?}");
    }
    assert_eq!(late.invoke(&mut get_context()), Err(EIO));
    assert_eq!(world.file.map(0, 4096).err(), Some(EIO));
    assert_eq!(info(&world, ids::counters::OBJECT), [0_u32; 0]);
    assert_eq!(world.file.invoke(&mut destroy_flow(world.qp)), Err(EINVAL));

    // In any order: the hardware has destroyed them.
    let destroys = [
        destroy(pd::OBJECT, 0, world.pd),
        destroy_cq(world.cq),
        write(cmd::DEREG_MR, &world.mr, 0),
        destroy_qp(world.qp),
        destroy_counters(world.bound),
        destroy_flow(world.flow),
    ];
    for mut command in destroys {
        assert_eq!(world.file.invoke(&mut command.clone()), Ok(()), "{command:?}");
        assert_eq!(world.file.invoke(&mut command), Err(ENOENT), "{command:?}");
    }

    let mut record = AsyncEventDesc::new_zeroed();
    let mut events = std::fs::File::from(world.base.events.unwrap());
    events.read_exact(record.as_mut_bytes()).unwrap();
    assert_eq!((record.event_type, record.element), (event_type::DEVICE_FATAL, 0));
    // A completion channel has reached its end.
    assert_eq!(std::fs::File::from(channel_fd).read(&mut [0; 8]).unwrap(), 0);
    drop((world.base.file, late));
    drop(events);
    assert!(world.device.resources().is_empty());
}

#[test]
fn a_device_without_disassociation_goes_with_its_last_file() {
    let device = SoftDevice::new(Profile::default().with_disassociate(false));
    let file = device.raw();
    done(&file, get_context());
    device.unplug();
    assert_eq!(new_pd(&file), 0);
    drop(file);
    assert_eq!(device.raw().invoke(&mut get_context()), Err(EIO));
}

#[test]
fn a_descriptor_is_known_by_its_file() {
    if cfg!(miri) {
        return; // Miri's descriptors are not the system's: there the number is all there is.
    }
    use std::os::fd::{AsRawFd, OwnedFd};
    let world = World::new();
    let channel =
        |fd: &OwnedFd| create_cq(4).with(RawAttr::handle(cq::create::COMP_CHANNEL, fd.as_raw_fd() as u64));
    let new = || world.file.invoke_fd(&mut write(cmd::CREATE_COMP_CHANNEL, &0_u64, 4)).unwrap().unwrap();
    let first = new();
    // A duplicate is the same file; another pipe with the old number is not.
    let duplicate = first.try_clone().unwrap();
    done(&world.file, channel(&duplicate));
    assert_eq!(world.resources().completion_channels, 1);
    drop((first, duplicate));
    assert_eq!(world.resources().completion_channels, 0);
    // Usually with that number; another thread may have been faster.
    let (reader, _writer) = std::io::pipe().unwrap();
    let reader = OwnedFd::from(reader);
    assert_eq!(world.file.invoke(&mut channel(&reader)), Err(nix::libc::EBADF));
    // That of another open file.
    let other = world.device.raw();
    done(&other, get_context());
    assert_eq!(other.invoke(&mut channel(&new())), Err(nix::libc::EBADF));
    // An asynchronous event file is not a completion channel.
    let events = world.events.as_ref().unwrap();
    assert_eq!(world.file.invoke(&mut channel(events)), Err(nix::libc::EBADF));
}
