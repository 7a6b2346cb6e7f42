//! Requests that are written directly to the device's ring.

use super::*;
use crate::driver::efa::sends::{AtOnce, Looking};
use crate::driver::request::Terms;
use crate::driver::seam::{ReceiveRing, plain};

impl Bench {
    /// Puts a request directly into the device's ring. Returns `None` if requests wait in the copy.
    fn straight(
        &mut self,
        wr_id: u64,
        opcode: Opcode<'_>,
        pieces: &[Sge],
    ) -> Option<std::result::Result<(), Refused>> {
        let data = Data::<_, NoBytes>::Pieces(pieces.iter());
        let mut straight = self.sends.straight()?;
        Some(straight.put(wr_id, SendFlags::SIGNALED, &ToDestination(opcode, TO), None, &data))
    }

    /// Puts a request with inline bytes directly into the device's ring.
    fn straight_inline(&mut self, opcode: Opcode<'_>, bytes: &[u8]) -> std::result::Result<(), Refused> {
        let data = Data::<NoPieces, _>::Inline(std::iter::once(bytes));
        let flags = SendFlags::SIGNALED | SendFlags::INLINE;
        self.sends.straight().unwrap().put(1, flags, &ToDestination(opcode, TO), None, &data)
    }
}

#[test]
fn each_is_as_it_is_by_way_of_the_copy() {
    let opcodes =
        [Opcode::Send, Opcode::SendImmediate(7), Opcode::Read(REMOTE), Opcode::WriteImmediate(REMOTE, 9)];
    let remote = |opcode: &Opcode<'_>| matches!(opcode, Opcode::Read(_) | Opcode::WriteImmediate(..));
    for inline in [0, 80] {
        let ready = || {
            let mut bench = Bench::of(state(|_, _| {}), qp_type::DRIVER, cap(4, 4, 2, inline));
            bench.bring_up();
            bench
        };
        for (opcode, pieces) in opcodes.iter().flat_map(|opcode| (0..=2).map(move |pieces| (opcode, pieces)))
        {
            if pieces == 2 && remote(opcode) {
                continue;
            }
            let (mut one, mut other) = (ready(), ready());
            let list = [PIECE, Sge { addr: 8, length: 3, lkey: 0xff12_3456 }];
            other.put(3, *opcode, &list[..pieces]).unwrap();
            assert_eq!(one.straight(3, *opcode, &list[..pieces]), Some(Ok(())));
            assert_eq!((one.doorbell(SQ_DOORBELL), other.sent(0)), (0, vec![0; one.slot]));
            [&mut one, &mut other].into_iter().for_each(|bench| {
                bench.sends.publish();
            });
            assert_eq!(
                (one.sent(0), one.doorbell(SQ_DOORBELL)),
                (other.sent(0), 1),
                "{opcode:?} of {pieces}"
            );
            for bench in [&mut one, &mut other] {
                bench.complete(0, bench.head(0).req_id.get(), 0);
            }
            assert_eq!(one.poll(), other.poll());
        }
        let opcodes = [Opcode::Send, Opcode::Write(REMOTE)];
        for (opcode, len) in
            opcodes.iter().flat_map(|opcode| [0, 8, 31, 32, 33, 80, 81].map(|len| (opcode, len)))
        {
            let (mut one, mut other) = (ready(), ready());
            let bytes: Vec<_> = (1..=len as u8).collect();
            let [put, straight] =
                [other.put_inline(1, *opcode, &bytes), one.straight_inline(*opcode, &bytes)];
            assert_eq!(straight, put, "{opcode:?} of {len}");
            let most = match (inline, opcode) {
                (0, Opcode::Send) => 32,
                (0, _) => 0,
                _ => 80,
            };
            assert_eq!(put.is_ok(), len <= most);
            [&mut one, &mut other].into_iter().for_each(|bench| {
                bench.sends.publish();
            });
            assert_eq!(one.sent(0), other.sent(0), "{opcode:?} of {len}");
        }
    }
}

#[test]
fn what_was_put_stays_whatever_is_forgotten_behind_it() {
    let mut bench = Bench::ready();
    assert_eq!(bench.straight(1, Opcode::Send, &[PIECE]), Some(Ok(())));
    bench.put(2, Opcode::Send, &[PIECE]).unwrap();
    assert_eq!(bench.straight(3, Opcode::Send, &[PIECE]), None, "one waits in the copy");
    bench.sends.rewind();
    assert_eq!(bench.sent(1), [0; 64]);
    assert_eq!(bench.straight(4, Opcode::Send, &[PIECE]), Some(Ok(())));
    bench.put(5, Opcode::Send, &[PIECE]).unwrap();
    bench.sends.publish();
    assert_eq!(bench.doorbell(SQ_DOORBELL), 3);
    for index in 0..3 {
        bench.complete(0, bench.head(index).req_id.get(), 0);
    }
    assert_eq!((bench.wr_ids(), bench.sends.is_idle()), (vec![1, 4, 5], Some(true)));
}

#[test]
fn one_that_is_refused_takes_neither_slot_nor_number() {
    let mut bench = Bench::ready();
    let to = |opcode| ToDestination(opcode, TO);
    let (flags, data) = (SendFlags::SIGNALED, Data::<_, NoBytes>::Pieces([PIECE].iter()));
    let mut straight = bench.sends.straight().unwrap();
    assert_eq!(straight.put(1, flags, &Opcode::Send, None, &data), Err(Refused::Lacks), "for nobody");
    assert_eq!(straight.put(1, flags, &to(Opcode::LocalInvalidate(1)), None, &data), Err(Refused::Lacks));
    let unsignaled = straight.put(1, SendFlags::empty(), &to(Opcode::Send), None, &data);
    assert_eq!(unsignaled, Err(Refused::Unsignaled));
    assert_eq!(
        straight.put(1, flags | SendFlags::FENCE, &to(Opcode::Send), None, &data),
        Err(Refused::Lacks)
    );
    assert_eq!(straight.begin(1, flags, &Opcode::Send), Err(Refused::Lacks));
    assert_eq!(straight.set_data(flags, None, &data), Err(Refused::NotBegun));
    assert_eq!(straight.set_address(TO.ah, 1, 1), Err(Refused::NotBegun));
    let long = [Sge { length: (1 << 20) + 1, ..PIECE }];
    assert_eq!(bench.straight(1, Opcode::Read(REMOTE), &long), Some(Err(Refused::TooLarge)));
    assert_eq!(bench.straight(1, Opcode::Read(REMOTE), &[PIECE; 2]), Some(Err(Refused::TooLarge)));
    assert_eq!(bench.straight(1, Opcode::Send, &[PIECE; 3]), Some(Err(Refused::TooLarge)));
    let most = [Sge { length: u32::MAX, ..PIECE }; 2];
    assert_eq!(bench.straight(1, Opcode::Send, &most), Some(Err(Refused::TooLarge)));
    assert!((0..4).all(|wr_id| bench.straight(wr_id, Opcode::Send, &[PIECE]) == Some(Ok(()))));
    assert_eq!(bench.straight(4, Opcode::Send, &[PIECE]), Some(Err(Refused::Full)));
    bench.sends.publish();
    assert_eq!(bench.doorbell(SQ_DOORBELL), 4);
    bench.sends.enter(qp_state::ERR);
    let refused = bench.straight(5, Opcode::Send, &[PIECE]);
    assert_eq!(refused, Some(Err(Refused::NotReady)), "nothing is sent in this state");
    bench.sends.enter(qp_state::RESET);
    assert!(bench.sends.is_idle() == Some(true));
}

#[test]
fn the_device_is_told_of_no_more_than_it_takes_at_once() {
    let mut bench = Bench::of(state(|answer, _| answer.max_tx_batch = 2), qp_type::DRIVER, cap(8, 4, 2, 0));
    bench.bring_up();
    let told: Vec<_> = (0..5)
        .map(|wr_id| {
            assert_eq!(bench.straight(wr_id, Opcode::Send, &[PIECE]), Some(Ok(())));
            bench.doorbell(SQ_DOORBELL)
        })
        .collect();
    assert_eq!(told, [0, 2, 2, 4, 4]);
    // Requests in the copy first use up what the device still takes at once.
    assert!((5..8).all(|wr_id| bench.put(wr_id, Opcode::Send, &[PIECE]).is_ok()));
    bench.sends.publish();
    assert_eq!(bench.doorbell(SQ_DOORBELL), 8);
    assert!((0..8).all(|index| bench.head(index).length.get() == 1));

    // A device with a minimum depth is never told of the whole ring.
    let mut bench = Bench::of(state(|answer, _| answer.min_sq_wr = 8), qp_type::DRIVER, cap(8, 4, 2, 0));
    bench.bring_up();
    let told = [0, 1, 2, 3, 4, 5, 6, 7].map(|wr_id| {
        assert_eq!(bench.straight(wr_id, Opcode::Send, &[PIECE]), Some(Ok(())));
        bench.doorbell(SQ_DOORBELL)
    });
    assert_eq!(told, [0, 0, 0, 0, 0, 0, 7, 7]);
    bench.sends.publish();
    assert_eq!(bench.doorbell(SQ_DOORBELL), 8);
}

#[test]
fn receives_that_are_kept_are_posted_up_to_the_first_that_is_refused() {
    let mut bench = Bench::ready();
    let mut kept = bench.receives.keeping();
    for wr_id in 0..3 {
        kept.put(wr_id, [PIECE].iter()).unwrap();
        assert_eq!(kept.last_slot(), wr_id as u32);
    }
    assert_eq!(kept.put(3, [PIECE; 3].iter()), Err(Refused::TooLarge));
    bench.receives.publish();
    assert_eq!(bench.doorbell(RQ_DOORBELL), 3);
    for index in 0..3 {
        let piece = bench.received(index);
        bench.deliver(0, u16::from_le_bytes([piece[8], piece[9]]), |_| {});
    }
    assert_eq!((bench.wr_ids(), bench.receives.is_idle() == Some(true)), (vec![0, 1, 2], true));
}

#[test]
fn receives_of_one_piece_are_posted_all_at_once_or_not_at_all() {
    let mut bench = Bench::ready();
    let mut told = 0;
    for round in 0..9_u64 {
        let plain = |from: u64, to: u64| plain(round * 10 + from..round * 10 + to, &PIECE);
        for other in 0..3 {
            let mut requests = plain(0, 3);
            requests[other] = None;
            assert!(!bench.receives.post_list_fast(requests.into_iter()));
            assert!(bench.receives.is_idle() == Some(true), "one is another: {other}");
        }
        assert!(
            !bench.receives.post_list_fast(plain(0, 5).into_iter()) && bench.receives.is_idle() == Some(true)
        );
        assert!(
            bench.receives.post_list_fast(plain(0, 0).into_iter()) && bench.receives.is_idle() == Some(true)
        );
        assert_eq!(bench.doorbell(RQ_DOORBELL), told, "nothing was posted");
        // Single receives take the numbers that were given back.
        for wr_id in 0..4 {
            assert!(bench.receive(round * 10 + wr_id, &[PIECE]).is_ok());
        }
        assert_eq!(bench.receives.post_fast(4, &PIECE), None, "it is full");
        assert!(!bench.receives.post_list_fast(plain(4, 5).into_iter()));
        told += 4;
        finish(&mut bench, told, round * 10..round * 10 + 4);
        assert!(bench.receives.post_list_fast(plain(0, 3).into_iter()));
        assert!(!bench.receives.post_list_fast(plain(3, 5).into_iter()), "there is room for one");
        assert!(bench.receives.post_fast(round * 10 + 3, &PIECE).is_some_and(|slot| slot < 4));
        told += 4;
        finish(&mut bench, told, round * 10..round * 10 + 4);
    }
    bench.receives.enter(qp_state::ERR);
    assert!(!bench.receives.post_list_fast([Some((1, &PIECE))].into_iter()));
    assert_eq!(bench.receives.post_fast(1, &PIECE), None);
    assert!(bench.receives.is_idle() == Some(true));
}

/// Completes the last four receives that the doorbell has announced. They have these `wr_id`s.
fn finish(bench: &mut Bench, told: u32, wr_ids: std::ops::Range<u64>) {
    assert_eq!(bench.doorbell(RQ_DOORBELL), told);
    let numbers: Vec<_> = (told - 4..told)
        .map(|index| {
            let piece = bench.received(index as usize % 8);
            assert_eq!(piece[..8], PIECE.addr.to_le_bytes());
            u16::from_le_bytes([piece[8], piece[9]])
        })
        .collect();
    numbers.into_iter().for_each(|number| bench.deliver(1, number, |_| {}));
    assert_eq!((bench.wr_ids(), bench.receives.is_idle() == Some(true)), (wr_ids.collect(), true));
}

const FLAGS: SendFlags = SendFlags::SIGNALED;

/// The data of a request: a piece, or inline bytes.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Piece(&'a Sge),
    Bytes(&'a [u8]),
}

fn takes(looking: Looking, flags: SendFlags, opcode: &impl Terms, part: Part<'_>) -> bool {
    match part {
        Part::Piece(piece) => looking.takes_piece(flags, opcode, piece),
        Part::Bytes(bytes) => looking.takes_bytes(flags, opcode, bytes),
    }
}

impl Bench {
    /// Posts all these requests as one batch, with up to 80 bytes inline. Returns false, with nothing posted, if one of them cannot be
    /// posted.
    fn at_once(&mut self, requests: &[(SendFlags, Opcode<'_>, Part<'_>)]) -> bool {
        let posted = self.sends.post_at_once(
            requests.len(),
            80,
            |looking| {
                let is_taken = |(flags, opcode, part): &(_, Opcode<'_>, _)| {
                    takes(looking, *flags, &ToDestination(*opcode, TO), *part)
                };
                requests.iter().all(is_taken)
            },
            |batch, range| {
                requests[range.clone()].iter().zip(range).all(|((_, opcode, part), at)| {
                    let (wr_id, opcode) = (at as u64 + 1, ToDestination(*opcode, TO));
                    match part {
                        Part::Piece(piece) => batch.put_piece(wr_id, &opcode, piece),
                        Part::Bytes(bytes) => batch.put_bytes(wr_id, &opcode, bytes),
                    }
                })
            },
        );
        assert!([0, requests.len()].contains(&posted));
        posted == requests.len()
    }
}

#[test]
fn batches_are_as_they_are_by_way_of_the_copy() {
    let bytes: Vec<_> = (1..=81).collect();
    let opcodes = [
        Opcode::Send,
        Opcode::SendImmediate(7),
        Opcode::Read(REMOTE),
        Opcode::Write(REMOTE),
        Opcode::WriteImmediate(REMOTE, 9),
    ];
    for inline in [0, 80] {
        let ready = || {
            let mut bench = Bench::of(state(|_, _| {}), qp_type::DRIVER, cap(4, 4, 2, inline));
            bench.bring_up();
            bench
        };
        let lens = [0, 8, 16, 31, 32, 33, 80, 81];
        let parts = || lens.map(|len| Part::Bytes(&bytes[..len])).into_iter().chain([Part::Piece(&PIECE)]);
        for (opcode, part) in opcodes.iter().flat_map(|opcode| parts().map(move |part| (*opcode, part))) {
            let (mut one, mut other) = (ready(), ready());
            // Three times, so that the ring wraps around.
            for _ in 0..3 {
                let put = [0, 1].map(|_| match part {
                    Part::Piece(piece) => other.put(1, opcode, &[*piece]),
                    Part::Bytes(bytes) => other.put_inline(1, opcode, bytes),
                });
                // A read cannot have inline data, not even of no bytes.
                let is_put =
                    put == [Ok(()); 2] && !matches!((opcode, part), (Opcode::Read(_), Part::Bytes(_)));
                assert_eq!(one.at_once(&[(FLAGS, opcode, part); 2]), is_put, "{opcode:?} of {part:?}");
                if !is_put {
                    assert_eq!((one.doorbell(SQ_DOORBELL), one.sent(0)), (0, vec![0; one.slot]));
                    break;
                }
                other.sends.publish();
                assert_eq!(one.doorbell(SQ_DOORBELL), other.doorbell(SQ_DOORBELL));
                let told = one.doorbell(SQ_DOORBELL) as usize;
                for index in (told - 2..told).map(|index| index % 4) {
                    let same = |bench: &Bench| {
                        let mut sent = bench.sent(index);
                        // The two queues may use different numbers for the same request.
                        sent[..2].fill(0);
                        sent
                    };
                    assert_eq!(same(&one), same(&other), "{opcode:?} of {part:?}");
                    for bench in [&mut one, &mut other] {
                        bench.complete(0, bench.head(index).req_id.get(), 0);
                    }
                }
                let done = one.poll();
                assert_eq!(done.iter().map(|done| done.wr_id).collect::<Vec<_>>(), [1, 2]);
                assert_eq!(done[0], Completion { wr_id: 1, ..other.poll()[0] });
                assert!(one.sends.is_idle() == Some(true));
            }
        }
    }
}

#[test]
fn of_a_batch_of_which_one_cannot_be_posted_none_is() {
    let mut bench = Bench::ready();
    let (plain, bytes) = ((FLAGS, Opcode::Send, Part::Piece(&PIECE)), [0; 33]);
    let long = Sge { length: (1 << 20) + 1, ..PIECE };
    let bad = [
        (SendFlags::empty(), Opcode::Send, Part::Piece(&PIECE)),
        (FLAGS | SendFlags::FENCE, Opcode::Send, Part::Piece(&PIECE)),
        (FLAGS, Opcode::LocalInvalidate(1), Part::Piece(&PIECE)),
        (FLAGS, Opcode::Read(REMOTE), Part::Piece(&long)),
        (FLAGS, Opcode::Send, Part::Bytes(&bytes)),
        (FLAGS, Opcode::Write(REMOTE), Part::Bytes(&bytes[..1])),
    ];
    for bad in bad {
        assert!(!bench.at_once(&[plain, bad]) && !bench.at_once(&[bad]), "{bad:?}");
        assert!(bench.sends.is_idle() == Some(true));
    }
    assert!(!bench.at_once(&[plain; 5]), "there is no such room");
    // If writing fails although the check did not, nothing is posted.
    let to = ToDestination(Opcode::Send, TO);
    for _ in 0..3 {
        let posted = bench.sends.post_at_once(
            2,
            0,
            |looking| {
                assert!(looking.takes_piece(FLAGS, &to, &PIECE));
                assert!(!looking.takes_piece(FLAGS, &Opcode::Send, &PIECE), "for nobody");
                true
            },
            |batch, _| {
                batch.put_piece(1, &to, &PIECE)
                    && batch.put_piece(1, &ToDestination(Opcode::LocalInvalidate(1), TO), &PIECE)
            },
        );
        assert!(posted == 0 && bench.sends.is_idle() == Some(true));
    }
    assert_eq!(bench.doorbell(SQ_DOORBELL), 0);
    // Single sends take the numbers that were given back.
    assert!((0..4).all(|wr_id| bench.send(wr_id).is_ok()));
    assert!(!bench.at_once(&[plain]), "it is full");
    for index in 0..4 {
        bench.complete(0, bench.head(index).req_id.get(), 0);
    }
    assert_eq!((bench.wr_ids(), bench.sends.is_idle()), (vec![0, 1, 2, 3], Some(true)));
    bench.put(1, Opcode::Send, &[PIECE]).unwrap();
    assert!(!bench.at_once(&[plain]), "one waits in the copy");
    bench.sends.rewind();
    assert!(bench.at_once(&[]) && bench.sends.is_idle() == Some(true));
    bench.sends.enter(qp_state::ERR);
    assert!(!bench.at_once(&[plain]), "nothing is sent in this state");
}

#[test]
fn a_batch_of_more_than_the_device_takes_at_once_is_told_in_several_pieces() {
    let mut bench = Bench::of(state(|answer, _| answer.max_tx_batch = 2), qp_type::DRIVER, cap(8, 4, 2, 0));
    bench.bring_up();
    let plain = (FLAGS, Opcode::Send, Part::Piece(&PIECE));
    assert_eq!(bench.straight(1, Opcode::Send, &[PIECE]), Some(Ok(())));
    // That request is in the ring, and the doorbell has not been rung for it yet.
    assert_eq!(bench.doorbell(SQ_DOORBELL), 0);
    assert!(bench.at_once(&[plain; 4]));
    assert_eq!(bench.doorbell(SQ_DOORBELL), 5);
    let put_two = |batch: &mut AtOnce<'_>, range: std::ops::Range<usize>| {
        assert!(range.len() <= 2, "{range:?}");
        range.start == 0
            && range.into_iter().all(|_| batch.put_piece(9, &ToDestination(Opcode::Send, TO), &PIECE))
    };
    assert_eq!(bench.sends.post_at_once(4, 0, |_| panic!("there is room for three"), put_two), 0);
    assert_eq!(bench.sends.post_at_once(3, 0, |_| true, put_two), 2);
    assert_eq!(bench.doorbell(SQ_DOORBELL), 7);
    assert!((0..7).all(|index| bench.head(index).length.get() == 1));
    assert!(bench.at_once(&[plain]) && !bench.at_once(&[plain]));
}

#[test]
fn one_completion_at_a_time_is_that_of_several() {
    let mut bench = Bench::ready();
    let one = |bench: &mut Bench| {
        let mut place = Completion::default();
        let taken = bench.queue.poll_one_fast(&mut place, || true);
        assert!(taken.is_none() || bench.queue.poll_one_fast(&mut place, || false) != Some(1));
        taken.map(|count| (count, place.wr_id, place.is_receive(), place.len))
    };
    assert_eq!(one(&mut bench), Some((0, 0, false, 0)));
    let number = bench.send(7).unwrap();
    bench.complete(0, number, 0);
    assert_eq!(one(&mut bench), Some((1, 7, false, 0)));
    for round in 0..9 {
        let number = bench.send(round).unwrap();
        bench.complete(round as usize % 2, number, 0);
        let mut place = Completion::default();
        assert_eq!(bench.queue.poll_one_fast(&mut place, || false), None, "it may not");
        assert_eq!(one(&mut bench), Some((1, round, false, 0)));
        let number = bench.receive(round + 10, &[PIECE]).unwrap();
        bench.deliver(round as usize % 2, number, |entry| entry.base.length = 9.into());
        assert_eq!(one(&mut bench), Some((1, round + 10, true, 9)));
        assert_eq!(bench.doorbell(CQ_DOORBELL) & 0xffff, (round * 2 + 3) as u32);
    }
    let numbers = [20, 21].map(|wr_id| bench.send(wr_id).unwrap());
    bench.complete(0, numbers[0], 1);
    assert_eq!(one(&mut bench), Some((1, 20, false, 0)), "it has failed");
    bench.complete(0, numbers[0], 0);
    assert_eq!(one(&mut bench), None, "nobody waits for it");
    bench.complete(0, numbers[1], 0);
    assert_eq!(bench.wr_ids(), [21]);
}
