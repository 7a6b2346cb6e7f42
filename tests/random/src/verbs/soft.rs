//! Operations of a soft device: its profile, and captures that it plays.

use std::io::Cursor;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use uverbs::soft::{Capture, Profile};

use super::{done, verb};
use crate::language::Arg::{One, Word};
use crate::language::Verb;
use crate::world::Miss;

/// A soft device of another kind, by its index among the words of `profile`.
fn profile(word: u64) -> Profile {
    let usual = Profile::default().with_completion_counters(64);
    match word {
        0 => Profile::default()
            .with_max_bound_counters(2)
            .with_completion_counters(1)
            .with_max_flows(1)
            .with_max_qp(2)
            .with_max_cq(2)
            .with_max_mr(2)
            .with_max_mw(1)
            .with_max_pd(2)
            .with_max_cqe(16)
            .with_max_qp_wr(8)
            .with_max_sge(2)
            .with_gids(1)
            .with_completion_vectors(1),
        1 => {
            let usual = usual.with_counters(false).with_flows(false).with_xrc(false);
            usual.with_disassociate(false).with_sniffers(false)
        }
        2 => usual.with_rxe(Some((6, 1))).with_port_mtu(1024),
        3 => usual.with_rxe(Some((7, 2))).with_port_mtu(256),
        _ => usual
            .with_wide_rules(true)
            .with_moves_regions(true)
            .with_cq_moderation(true)
            .with_hears_itself(true),
    }
}

/// A capture of this number of frames, in the oldest format.
fn capture(frames: u64, len: usize) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1].map(u32::to_le_bytes).concat();
    for number in 0..frames {
        let frame = super::flows::frame(1 + number, len);
        let len = frame.len() as u32;
        file.extend([number as u32, 0, len, len].map(u32::to_le_bytes).concat());
        file.extend(frame);
    }
    file
}

pub(super) const VERBS: &[&[Verb]] = &[&[
    // Before anything is opened.
    verb("profile", 0, &[Word(&["small", "bare", "rxe-6.1", "rxe-7.2", "wide"])], |w, a| {
        if w.machine.soft.is_none() || w.is_child || w.contexts.iter().next().is_some() {
            return Err(Miss::Absent);
        }
        w.machine = crate::play::soft(profile(a[0]));
        done(())
    }),
    verb(
        "inject-capture",
        1,
        &[One(&[2, 0, 1]), One(&[60, 1514]), Word(&["reader", "file", "cut"])],
        |w, a| {
            w.own_memory()?;
            let mut bytes = capture(a[0], a[1] as usize);
            if a[2] == 2 {
                bytes.truncate(bytes.len().saturating_sub(30));
            }
            let opened = if a[2] == 1 {
                let file = crate::memory::file(bytes.len());
                file.write_all_at(&bytes, 0).expect("memory");
                Capture::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
            } else {
                Capture::from_reader(Cursor::new(bytes))
            };
            let Ok(mut capture) = opened else { return Ok("no capture".to_owned()) };
            // The first frame separately, the others together if possible.
            let mut count = 0;
            let is_whole = loop {
                match capture.next_frame() {
                    Ok(Some(frame)) => w.machine.inject(frame.bytes)?,
                    Ok(None) => break true,
                    Err(_) => break false,
                }
                count += 1;
                if let Some(soft) = &w.machine.soft {
                    match soft.play(&mut capture) {
                        Ok(more) => count += more,
                        Err(_) => break false,
                    }
                }
            };
            Ok(format!("{count} {is_whole}"))
        },
    ),
]];
