//! Spreads packets over receive queues by a hash of their headers.

use crate::bits::Bits;
use crate::command::Status;
use crate::ifc::context::{rq_num, rqtc, rx_hash_field_select, tirc};
use crate::packet::{Headers, Layer};

const HASH_NONE: u32 = 0;
const HASH_XOR: u32 = 1;
const HASH_TOEPLITZ: u32 = 2;

/// Bits of the selected fields.
const SOURCE_IP: u32 = 1 << 0;
const DESTINATION_IP: u32 = 1 << 1;
const SOURCE_PORT: u32 = 1 << 2;
const DESTINATION_PORT: u32 = 1 << 3;

/// The destination of a receiver's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Queue(u32),
    Table { number: u32, hash: Hash },
}

/// How packets are spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hash {
    function: u32,
    key: Vec<u8>,
    outer: u32,
    inner: u32,
}

/// A transport interface receive (TIR): a destination of flows.
#[derive(Debug)]
pub(crate) struct Tir {
    pub(crate) context: Vec<u8>,
    pub(crate) target: Target,
}

impl Tir {
    /// The receiver that CREATE_TIR describes.
    ///
    /// # Errors
    /// `BadParameter` for a kind or a hash that does not exist.
    pub(crate) fn new(context: &[u8]) -> Result<Self, Status> {
        let target = match context.num(tirc::disp_type) {
            0 => Target::Queue(context.num(tirc::inline_rqn)),
            1 => Target::Table { number: context.num(tirc::indirect_table), hash: Hash::new(context)? },
            _ => return Err(Status::BadParameter),
        };
        Ok(Self { context: context.to_vec(), target })
    }
}

impl Hash {
    fn new(context: &[u8]) -> Result<Self, Status> {
        let function = context.num(tirc::rx_hash_fn);
        if function > HASH_TOEPLITZ {
            return Err(Status::BadParameter);
        }
        Ok(Self {
            function,
            key: context.part(tirc::rx_hash_toeplitz_key).to_vec(),
            outer: context.num(tirc::rx_hash_field_selector_outer),
            inner: context.num(tirc::rx_hash_field_selector_inner),
        })
    }

    /// The hash of a packet: of its inner headers if fields of these are selected, otherwise of its outer ones.
    pub(crate) fn of(&self, headers: &Headers) -> u32 {
        let fields = |selector: u32| selector.to_be_bytes()[..].num(rx_hash_field_select::selected_fields);
        let (layer, fields) = match &headers.inner {
            Some(inner) if fields(self.inner) != 0 => (inner, fields(self.inner)),
            _ => (&headers.outer, fields(self.outer)),
        };
        let input = input(layer, fields);
        match self.function {
            HASH_NONE => 0,
            HASH_XOR => input.iter().fold(0, |hash, byte| hash ^ byte).into(),
            _ => toeplitz(&self.key, &input),
        }
    }
}

/// The selected fields of a packet, in their order; absent fields are left out.
fn input(layer: &Layer, fields: u32) -> Vec<u8> {
    let mut input = Vec::new();
    if let Some(network) = &layer.network {
        for (bit, address) in [(SOURCE_IP, network.source), (DESTINATION_IP, network.destination)] {
            if fields & bit != 0 {
                input.extend(address.bytes());
            }
        }
    }
    if let Some(transport) = &layer.transport {
        for (bit, port) in [(SOURCE_PORT, transport.source), (DESTINATION_PORT, transport.destination)] {
            if fields & bit != 0 {
                input.extend(port.to_be_bytes());
            }
        }
    }
    input
}

/// The Toeplitz hash: for each bit of the input that is set, the 32 bits of the key from that position on.
fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| bytes.get(at / 8).is_some_and(|byte| byte << (at % 8) & 0x80 != 0);
    let mut window = key.first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
    let mut hash = 0;
    for at in 0..input.len() * 8 {
        if bit(input, at) {
            hash ^= window;
        }
        window = window << 1 | u32::from(bit(key, at + 32));
    }
    hash
}

/// A table of receive queues.
#[derive(Debug)]
pub(crate) struct Rqt {
    pub(crate) queues: Vec<u32>,
}

impl Rqt {
    /// The table that CREATE_RQT describes.
    ///
    /// # Errors
    /// `BadParameter` for a size that is not a power of two or is too large, `BadInputLength` for a short list.
    pub(crate) fn new(context: &[u8]) -> Result<Self, Status> {
        let size = context.num(rqtc::rqt_actual_size) as usize;
        let most = (context.num(rqtc::rqt_max_size) as usize).max(size);
        if !size.is_power_of_two() || most > 1 << 11 {
            return Err(Status::BadParameter);
        }
        let (list, _) = context.part(rqtc::rq_num).as_chunks::<4>();
        let list = list.get(..size).ok_or(Status::BadInputLength)?;
        Ok(Self { queues: list.iter().map(|entry| entry[..].num(rq_num::rq_num)).collect() })
    }

    /// The queue for a hash, selected by its low bits.
    pub(crate) fn queue(&self, hash: u32) -> Option<u32> {
        self.queues.get(hash as usize % self.queues.len().max(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Address, Transport};

    /// The key and the values of "Verifying the RSS Hash Calculation", with which every device with RSS is tested.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn hashes(source: Address, destination: Address, from: u16, to: u16) -> (u32, u32) {
        let mut frame = vec![0; 12];
        match source {
            Address::V4(_) => frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]),
            Address::V6(_) => frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]),
        }
        frame.extend([source.bytes(), destination.bytes()].concat());
        frame.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
        frame.extend([0; 16]);
        let headers = Headers::parse(&frame, &[]);
        assert!(matches!(headers.outer.transport, Some(Transport { is_tcp: true, .. })));
        let hash = |fields| {
            Hash { function: HASH_TOEPLITZ, key: KEY.to_vec(), outer: fields, inner: 0 }.of(&headers)
        };
        (hash(SOURCE_IP | DESTINATION_IP), hash(0xf))
    }

    fn v4(source: [u8; 4], destination: [u8; 4], from: u16, to: u16) -> (u32, u32) {
        hashes(Address::V4(source), Address::V4(destination), from, to)
    }

    fn v6(source: &str, destination: &str, from: u16, to: u16) -> (u32, u32) {
        let address = |text: &str| Address::V6(text.parse::<std::net::Ipv6Addr>().unwrap().octets());
        hashes(address(source), address(destination), from, to)
    }

    #[test]
    fn the_known_answers_come_out() {
        assert_eq!(v4([66, 9, 149, 187], [161, 142, 100, 80], 2794, 1766), (0x323e_8fc2, 0x51cc_c178));
        assert_eq!(v4([199, 92, 111, 2], [65, 69, 140, 83], 14230, 4739), (0xd718_262a, 0xc626_b0ea));
        assert_eq!(v4([24, 19, 198, 95], [12, 22, 207, 184], 12898, 38024), (0xd2d0_a5de, 0x5c2b_394a));
        assert_eq!(v4([38, 27, 205, 30], [209, 142, 163, 6], 48228, 2217), (0x8298_9176, 0xafc7_327f));
        assert_eq!(v4([153, 39, 163, 191], [202, 188, 127, 2], 44251, 1303), (0x5d18_09c5, 0x10e8_28a2));
        let first = v6("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766);
        assert_eq!(first, (0x2cc1_8cd5, 0x4020_7d3d));
        let second = v6("3ffe:501:8::260:97ff:fe40:efab", "ff02::1", 14230, 4739);
        assert_eq!(second, (0x0f0c_461c, 0xdde5_1bbf));
    }

    #[test]
    fn a_table_takes_the_low_bits() {
        let table = Rqt { queues: vec![10, 11, 12, 13] };
        assert_eq!([0, 5, 0xffff_fffe].map(|hash| table.queue(hash)), [Some(10), Some(11), Some(12)]);
        assert_eq!(Rqt { queues: vec![] }.queue(3), None);
    }
}
