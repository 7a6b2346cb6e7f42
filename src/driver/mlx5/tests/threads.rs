//! One thread posts, resets and destroys queue pairs while another polls.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::*;
use crate::driver::mlx5::SrqPlan;
use crate::driver::mlx5::completion_ring::end_of;
use crate::driver::mlx5::track::{Source, Track};
use crate::driver::seam::LowerReceive;

/// As many rounds as there is time for.
const TURNS: u64 = if cfg!(miri) { 200 } else { 1_000_000 };

/// After a reset, a new request is at the place that an old completion names: it must not be taken for the old request.
#[test]
fn a_reset_in_the_middle_of_a_poll_hands_out_nothing_of_the_next_life() {
    let track = Track::new("test", 0, false, 1, &Source::Own(0)).unwrap();
    let (now, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    track.sends.post(0, 1, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let position = now.load(Ordering::Acquire);
                if let Some(wr_id) = track.sends.complete(0, position) {
                    assert_eq!(wr_id, position);
                }
            }
        });
        for turn in 1..TURNS {
            let begin = track.sends.reset(turn);
            track.sends.post(begin, begin + 1, turn);
            now.store(turn, Ordering::Release);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// The end of a queue is determined while another thread polls and the device reuses the ring.
#[test]
fn the_end_of_a_queue_is_behind_all_that_was_written() {
    // With four entries: some were taken and some written before the first look or after it.
    for (taken, written, more) in [(0, 0, 0), (3, 4, 0), (3, 7, 4), (0, 4, 4), (1, 3, 40), (2, 2, 3)] {
        let looks = Cell::new(0);
        let now = || if looks.get() > 0 { (taken + more, written + more) } else { (taken, written) };
        let is_filled = |position| {
            looks.set(looks.get() + 1);
            // Only by the owner bit: that of this round, or of the one two rounds before.
            let last = (0..now().1).rev().find(|last| last % 4 == position % 4);
            last.is_some_and(|last: u64| (last / 4).abs_diff(position / 4).is_multiple_of(2))
        };
        assert_eq!(end_of(|| now().0, is_filled), written + more, "{taken} {written} {more}");
    }
}

/// Two pollers get a completion of the same entry of a shared queue: only one of them gets the entry.
#[test]
fn an_entry_is_handed_out_once() {
    let mut receives = open(SrqPlan::new("test", 1, 1, &limits(0), None, || 0).unwrap(), 0);
    let (places, is_over) = (receives.places().clone(), AtomicBool::new(false));
    let wr_ids = std::thread::scope(|scope| {
        let pollers = [0, 1].map(|_| {
            scope.spawn(|| {
                let mut wr_ids = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    wr_ids.extend((0..2).filter_map(|entry| places.complete(entry)));
                }
                wr_ids
            })
        });
        for turn in 0..=TURNS {
            let mut batch = receives.writing();
            while batch.put(turn, [PIECE].into_iter()).is_err() {
                std::hint::spin_loop();
            }
            batch.end(true);
        }
        is_over.store(true, Ordering::Relaxed);
        pollers.map(|poller| poller.join().unwrap()).concat()
    });
    let mut sorted = wr_ids.clone();
    sorted.sort_unstable();
    sorted.retain(|wr_id| *wr_id < TURNS);
    assert!(sorted.iter().copied().eq(0..TURNS), "{} of {TURNS}", sorted.len());
}

/// The place of a request is free as soon as the request was found, before its kind is read.
#[test]
fn which_change_it_was_is_known_when_its_place_is_posted_again() {
    let track = Track::new("test", 0, false, 4, &Source::Own(0)).unwrap();
    let opcodes = [wc_opcode::BIND_MW, wc_opcode::LOCAL_INV, wc_opcode::LOCAL_INV, wc_opcode::BIND_MW];
    // The counter overflows meanwhile.
    let turns: u32 = if cfg!(miri) { 100 } else { 100_000 };
    for turn in 0..turns {
        let (counter, opcode) = (turn * 4, opcodes[turn as usize % 4]);
        if turn == 0 {
            track.sends.note(counter, opcode);
            track.sends.post(counter, counter + 4, turn.into());
        }
        assert_eq!(track.sends.complete(counter as u16, 0), Some(turn.into()));
        let next = counter + 4;
        track.sends.note(next, opcodes[(turn as usize + 1) % 4]);
        track.sends.post(next, next + 4, u64::from(turn) + 1);
        assert_eq!(track.sends.noted(counter as u16), opcode);
    }
}
