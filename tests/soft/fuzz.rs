//! Runs the fuzz targets of `tests/fuzz` on stable Rust for a short time: some random inputs, and their seeds.

#[path = "../fuzz/bodies/mod.rs"]
mod bodies;

use std::fs;
use std::path::Path;

#[cfg(feature = "cli")]
use bodies::http_request;
#[cfg(feature = "raw")]
use bodies::packet;
#[cfg(feature = "pcap")]
use bodies::pcap;
use bodies::{rule_text, soft_command, steering};
use proptest::prelude::*;

/// Stored inputs; see `tests/fuzz/README.md`.
fn seeds(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds").join(target);
    for entry in fs::read_dir(directory).expect("seeds") {
        let path = entry.expect("a seed").path();
        println!("{}", path.display());
        run(&fs::read(path).expect("a seed"));
    }
}

fn some() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![1 => Just(0_u8), 3 => any::<u8>()], 0..600)
}

#[test]
fn seeds_pass() {
    seeds("soft_command", soft_command::run);
    seeds("steering", steering::run);
    seeds("rule_text", rule_text::run);
    #[cfg(feature = "pcap")]
    seeds("pcap", pcap::run);
    #[cfg(feature = "raw")]
    seeds("packet", packet::run);
    #[cfg(feature = "cli")]
    seeds("http_request", http_request::run);
}

#[cfg(feature = "cli")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// A scrape of Prometheus with a few bytes changed, and truncated.
    #[test]
    fn any_request_has_an_answer(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut data = include_bytes!("../fuzz/seeds/http_request/prometheus").to_vec();
        for (place, byte) in damage {
            let place = place.index(data.len());
            data[place] = byte;
        }
        data.truncate(end.index(data.len() + 1));
        http_request::run(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_commands_are_answered(data in some()) {
        soft_command::run(&data);
    }

    #[test]
    fn any_frames_are_steered(data in some()) {
        steering::run(&data);
    }
}

#[cfg(feature = "pcap")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// A real capture with a few bytes changed, and truncated.
    #[test]
    fn any_capture_is_read(
        which in 0..2_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut data = [8, 8].to_vec();
        data.extend([&include_bytes!("../golden/mixed.pcap")[..], include_bytes!("../golden/mixed.pcapng")][which]);
        for (at, byte) in damage {
            let at = at.index(data.len());
            data[at] = byte;
        }
        data.truncate(end.index(data.len() + 1));
        pcap::run(&data);
    }
}

#[cfg(feature = "raw")]
proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Packets whose headers are often right, and whose sequence numbers are often those that are expected.
    #[test]
    fn any_packets_can_arrive(
        packets in prop::collection::vec((0_u8..0x20, any::<u8>(), 0_u32..12, prop::collection::vec(any::<u8>(), 0..60)), 0..12),
    ) {
        let bytes = packets.into_iter().flat_map(|(opcode, flags, psn, rest)| {
            let head = [opcode, flags & 0xf0, 0xff, 0xff, 0, 0, 0, 9];
            let body = [&head[..], &(psn | u32::from(flags & 1) << 31).to_be_bytes(), &rest].concat();
            [&[body.len() as u8][..], &body].concat()
        });
        packet::run(&bytes.collect::<Vec<_>>());
    }
}
