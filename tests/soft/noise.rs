//! Rings of connected queue pairs and datagrams with random contents: whatever they contain, the device continues.

use crate::commands::verbs::*;
use proptest::prelude::*;
use uverbs_abi::rxe::{DmaInfo, RecvWqe, Sge};
use uverbs_abi::types::{SendFlags, qp_state, qp_type};
use zerocopy::{FromZeros, IntoBytes};

/// The fields of a request: numbers that are valid, nearly valid, or random.
#[derive(Clone, Debug)]
struct Wild {
    opcode: u32,
    flags: u32,
    offset: u64,
    key: u32,
    lengths: [u32; 3],
    pieces: u32,
    word: u32,
}

fn wild() -> impl Strategy<Value = Wild> {
    let near = || prop_oneof![6 => 0..5000_u32, 1 => any::<u32>()];
    let key = prop_oneof![6 => Just(0_u32), 1 => any::<u32>()];
    let offset = prop_oneof![6 => 0..5000_u64, 1 => any::<u64>()];
    let opcode = prop_oneof![9 => 0..16_u32, 1 => any::<u32>()];
    let pieces = prop_oneof![6 => 0..4_u32, 1 => any::<u32>()];
    let lengths = [near(), near(), near()];
    (opcode, prop_oneof![0..32_u32, any::<u32>()], offset, key, lengths, pieces, near()).prop_map(
        |(opcode, flags, offset, key, lengths, pieces, word)| Wild {
            opcode,
            flags,
            offset,
            key,
            lengths,
            pieces,
            word,
        },
    )
}

impl Wild {
    fn piece(&self, side: &Side) -> Sge {
        Sge {
            addr: side.address.wrapping_add(self.offset),
            length: self.lengths[0],
            lkey: side.key ^ self.key,
        }
    }

    fn post(&self, from: &Side, to: &Side, number: u32, ah: u32) -> Post {
        let mut post = Post::new(1, self.opcode, &[self.piece(from); 2])
            .flags(SendFlags::from_bits_retain(self.flags))
            .extra(self.word);
        let (addr, key) = (to.address.wrapping_add(self.offset), to.key ^ self.key);
        post = match self.word % 4 {
            0 => post.atomic(addr, key, self.offset, 5),
            1 => post.to(number, ah ^ self.key),
            _ => post.remote(addr, key),
        };
        // Every second one is valid.
        if self.word % 2 == 1 {
            let dma = &mut post.wqe.dma;
            (dma.length, dma.resid, dma.num_sge) = (self.lengths[1], self.lengths[1], self.pieces);
        }
        post
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 128 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_request_goes_wrong(
        kind in prop::sample::select(vec![qp_type::RC, qp_type::UC, qp_type::UD]),
        requests in prop::collection::vec((wild(), wild()), 1..12),
    ) {
        let pair = Pair::with(kind, 8192);
        let (_, ah) = pair.a.ah(IPV4, 1);
        for (send, receive) in requests {
            let dma = DmaInfo {
                length: receive.lengths[1],
                resid: receive.lengths[2],
                num_sge: receive.pieces,
                ..DmaInfo::new_zeroed()
            };
            let wqe = RecvWqe { wr_id: 2, dma, ..RecvWqe::new_zeroed() };
            pair.qb.receives.put(&[wqe.as_bytes(), [receive.piece(&pair.b); 2].as_bytes()]);
            pair.send(&[send.post(&pair.a, &pair.b, pair.qb.number, ah)]);
            // Queue pairs in the error state are connected again.
            for (side, qp, to) in [(&pair.a, &pair.qa, &pair.qb), (&pair.b, &pair.qb, &pair.qa)] {
                if side.query(qp).qp_state == qp_state::ERR {
                    prop_assert_eq!(side.modify(&change(kind, qp.handle, 0, qp_state::RESET)), Ok(()));
                    side.raise(kind, qp, to.number, qp_state::RTS);
                }
                prop_assert!(side.take().iter().all(|wc| wc.status <= 21));
            }
        }
        let Pair { device, a, b, .. } = pair;
        drop((a, b));
        prop_assert!(device.resources().is_empty());
    }
}
