//! Flows with any specs, then any frames: each is answered as by a driver, and no value decreases or grows without bound.

use uverbs_abi::flow::*;
use uverbs_abi::ids::counters::read::BUFF;

use super::bytes::Bytes;
use crate::commands::*;

/// Types of filters and actions, with the length of one half.
const SPECS: &[(u32, usize)] = &[
    (SPEC_ETH, 16),
    (SPEC_IPV4, 12),
    (SPEC_IPV6, 40),
    (SPEC_ESP, 8),
    (SPEC_TCP, 4),
    (SPEC_UDP, 4),
    (SPEC_VXLAN_TUNNEL, 4),
    (SPEC_GRE, 8),
    (SPEC_MPLS, 4),
    (SPEC_ACTION_TAG, 4),
    (SPEC_ACTION_DROP, 0),
];

fn one_spec(data: &mut Bytes<'_>) -> Vec<u8> {
    let (mut type_, half) = data.pick(SPECS);
    let choice = data.u8();
    if choice & 1 != 0 {
        type_ |= SPEC_INNER;
    }
    if choice & 0xf0 == 0xf0 {
        // Of any length.
        return spec(type_, data.block());
    }
    let (mask, mut value) = (data.take(half).to_vec(), data.take(half).to_vec());
    for (byte, mask) in value.iter_mut().zip(&mask) {
        // Most rules have no bits outside their mask.
        if choice & 2 == 0 {
            *byte &= mask;
        }
    }
    let mut body = value;
    body.resize(half, 0);
    body.extend(mask);
    body.resize(2 * half, 0);
    spec(type_, &body)
}

/// Counters without a flow.
const EINVAL: i32 = 22;

pub(crate) fn run(data: &[u8]) {
    let mut data = Bytes(data);
    let world = World::new();
    world.ready(world.qp);
    let mut flows = Vec::new();
    for _ in 0..data.u8() % 12 {
        let counters = new_counters(&world.file);
        let mut specs: Vec<_> = (0..data.u8() % 5).map(|_| one_spec(&mut data)).collect();
        specs.push(count(counters));
        let CreateFlow { flow_attr, .. } = flow_header(world.qp, &specs);
        let head = FlowAttr {
            type_: data.pick(&[0, 0, 0, 0, 1, 2, 3, 4]),
            priority: data.pick(&[0, 1, 2, 7, 8, 0xffff]),
            flags: data.pick(&[0, 0, 0, 1, 2, 4, 8, 6]),
            ..flow_attr
        };
        let header = CreateFlow { comp_mask: 0, qp_handle: world.qp, flow_attr: head };
        let mut command = flow_command(&header, &specs).with(map(&PACKETS_AND_BYTES));
        match world.file.invoke(&mut command) {
            // The driver binds counters only to normal flows, whatever the request is.
            Ok(()) if head.type_ != ATTR_NORMAL => {
                assert_eq!(world.file.invoke(&mut read_counters(counters, 16)), Err(EINVAL));
            }
            Ok(()) => flows.push((answer::<[u32; 2]>(&command, CORE_OUT)[1], counters, [0_u64; 2])),
            Err(errno) => assert!((1..4096).contains(&errno)),
        }
    }
    while !data.is_empty() {
        let frame = data.frame();
        world.device.inject(frame);
        for (_, counters, before) in &mut flows {
            let now: [u64; 2] = answer(&done(&world.file, read_counters(*counters, 16)), BUFF);
            let packets = now[0] - before[0];
            assert!(packets <= 1, "a frame counts once");
            assert_eq!(now[1] - before[1], packets * frame.len() as u64);
            *before = now;
        }
        if data.u8() == 0xff
            && let Some((flow, ..)) = flows.pop()
        {
            done(&world.file, destroy_flow(flow));
        }
    }
    let World { device, base, .. } = world;
    drop(base);
    assert!(device.resources().is_empty());
}
