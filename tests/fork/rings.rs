//! Rings of mlx5 that were borrowed before the fork.

use std::time::{Duration, Instant};

use uverbs::Status;
use uverbs::mlx5::{CompletionRing, ReceiveRing, SendRing};

use super::*;

/// A request that does nothing and asks for a completion.
const NOTHING: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0];

pub(crate) fn borrowed() {
    on_every_bulk_device(|_, _, raw| {
        let Raw { mut qp, mut cq, .. } = Raw::new(&raw.context);
        let mut receives = ReceiveRing::of(&mut qp).unwrap();
        let places = receives.free();
        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                gone(receives.put(1, &[]));
                receives.publish();
                gone(CompletionRing::of(&mut cq));
            });
        }
        assert_eq!(receives.free(), places);
        let mut sends = SendRing::of(&mut qp).unwrap();
        let next = sends.next();
        sends.put(7, &[NOTHING]).unwrap();
        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                gone(sends.put(8, &[NOTHING]));
                sends.publish();
            });
        }
        // The child has not shown the device what the parent has put.
        std::thread::sleep(Duration::from_millis(50));
        assert!(CompletionRing::of(&mut cq).unwrap().take().is_none());
        sends.publish();
        assert_eq!(sends.next(), next.wrapping_add(1));
        let until = Instant::now() + Duration::from_secs(10);
        let (completion, _) = loop {
            if let Some(taken) = CompletionRing::of(&mut cq).unwrap().take() {
                break taken;
            }
            assert!(Instant::now() < until, "no completion");
        };
        assert_eq!((completion.wr_id, completion.status), (7, Status::Success));
    });
}
