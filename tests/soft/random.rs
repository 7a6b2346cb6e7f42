//! Random commands: the device answers each, and closing leaves nothing.

use crate::commands::*;
use proptest::prelude::*;
use uverbs::soft::{RawAttr, RawCommand};
use uverbs_abi::ids::{ah, counters, cq, device, flow, mr, mw, pd, qp, srq};
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::write::COMMANDS;

/// Small numbers are often handles of objects, others are at the ends of ranges.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..12_u64, 1 => any::<u64>(), 1 => prop_oneof![Just(u64::MAX), Just(1 << 32), Just(1 << 63)]]
}

fn attr() -> impl Strategy<Value = RawAttr> {
    let id = prop_oneof![8 => 0..16_u16, 2 => UHW_IN..=UHW_OUT, 1 => any::<u16>()];
    let bytes = prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..130);
    let kind = (
        0..6,
        number(),
        bytes,
        prop_oneof![Just(4_usize), Just(8), Just(16), Just(20), Just(32), Just(48), 0..200_usize],
    );
    let damage = (prop::option::weighted(0.1, any::<u16>()), prop::option::weighted(0.1, any::<u16>()));
    (id, kind, damage).prop_map(|(id, (kind, number, bytes, room), (len, flags))| {
        let attr = match kind {
            0 | 1 => RawAttr::handle(id, number),
            2 => RawAttr::value(id, number),
            3 => RawAttr::input(id, &bytes),
            4 => RawAttr::output(id, room),
            _ => RawAttr::bad_address(id, room),
        };
        let attr = match len {
            Some(len) => attr.with_len(len),
            None => attr,
        };
        match flags {
            Some(flags) => attr.with_flags(flags),
            None => attr,
        }
    })
}

/// Any method with any attributes.
fn wild() -> impl Strategy<Value = RawCommand> {
    let object = prop_oneof![
        4 => prop::sample::select(vec![device::OBJECT, pd::OBJECT, cq::OBJECT, qp::OBJECT, mr::OBJECT, flow::OBJECT, counters::OBJECT, srq::OBJECT, ah::OBJECT, mw::OBJECT]),
        1 => any::<u16>(),
    ];
    (object, 0..9_u16, prop::collection::vec(attr(), 0..18)).prop_map(|(object, method, attrs)| {
        attrs.into_iter().fold(RawCommand::new(object, method), RawCommand::with)
    })
}

/// Any write command with words that may be handles.
fn old() -> impl Strategy<Value = RawCommand> {
    let number = prop_oneof![
        8 => prop::sample::select(COMMANDS).prop_map(|info| info.number),
        1 => any::<u32>(),
    ];
    let words = prop::collection::vec(number_or_small(), 0..40);
    (number, words, 0..320_usize, prop::option::weighted(0.3, attr())).prop_map(
        |(number, words, room, more)| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let command = RawCommand::write(number)
                .with(RawAttr::input(CORE_IN, &bytes))
                .with(RawAttr::output(CORE_OUT, room));
            more.into_iter().fold(command, RawCommand::with)
        },
    )
}

fn number_or_small() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(0_u32), 4 => 0..10_u32, 1 => any::<u32>()]
}

/// A valid command with one invalid attribute.
fn damaged() -> impl Strategy<Value = RawCommand> {
    (0..9, number_or_small(), attr(), any::<prop::sample::Index>()).prop_map(
        |(which, handle, attr, place)| {
            let mut command = match which {
                0 => create_cq(handle),
                1 => create_qp(handle, 1),
                2 => create_counters(),
                3 => read_counters(handle, 16),
                4 => create_flow(2, &[eth([2, 0, 0, 0, 0, handle as u8]), count(handle)])
                    .with(map(&[(handle, handle)])),
                5 => destroy_flow(handle),
                6 => destroy_counters(handle),
                7 => destroy_qp(handle),
                _ => alloc_async(),
            };
            // Every second one stays valid.
            if handle % 2 == 1 {
                let place = place.index(command.attrs().len());
                command.attrs()[place] = attr;
            }
            command
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "two cases take nine minutes there")]
    fn no_sequence_of_commands_goes_wrong(
        commands in prop::collection::vec(prop_oneof![wild(), old(), damaged()], 1..80),
        unplug in prop::option::weighted(0.2, 0..80_usize),
        frame in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let world = World::new();
        let mut kept = Vec::new();
        for (step, mut command) in commands.into_iter().enumerate() {
            if unplug == Some(step) {
                world.device.unplug();
            }
            match world.file.invoke_fd(&mut command) {
                Ok(fd) => kept.extend(fd),
                Err(errno) => prop_assert!(errno > 0),
            }
            world.device.inject(&frame);
        }
        let World { device, base, .. } = world;
        drop(base);
        prop_assert!(device.resources().is_empty());
    }
}
