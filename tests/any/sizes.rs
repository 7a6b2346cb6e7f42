//! What is granted of a queue is not smaller than what was asked for, and is accepted when it is asked for.

use crate::common::*;
use uverbs::soft::Profile;
use uverbs::{
    Capacity, CompletionQueue, Context, ErrorKind, ProtectionDomain, QpType, QueuePairBuilder, Result,
};

/// What `make` grants for `asked`, each of which must be granted at least, and again. `None` if it is refused.
#[track_caller]
fn granted<const N: usize>(make: impl Fn([u32; N]) -> Result<[u32; N]>, asked: [u32; N]) -> Option<[u32; N]> {
    let first = match make(asked) {
        Ok(first) => first,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{asked:?}: {error}");
            assert!(error.hint().is_some(), "{asked:?}: {error}");
            return None;
        }
    };
    assert!(first.iter().zip(asked).all(|(had, asked)| *had >= asked), "{first:?} for {asked:?}");
    match make(first) {
        Ok(again) => {
            assert!(again.iter().zip(first).all(|(had, asked)| *had >= asked), "{again:?} for {first:?}")
        }
        Err(error) => panic!("{asked:?} is granted {first:?}, and that is refused: {error}"),
    }
    Some(first)
}

/// Sends, receives, segments, and inline bytes.
fn pair<'a, T: QpType>(
    kind: impl Fn(&'a ProtectionDomain, &'a CompletionQueue) -> QueuePairBuilder<'a, T>,
    pd: &'a ProtectionDomain,
    cq: &'a CompletionQueue,
) -> impl Fn([u32; 4]) -> Result<[u32; 4]> {
    move |[sends, receives, segments, inline]| {
        let builder = kind(pd, cq).send_depth(sends).receive_depth(receives);
        let Capacity { sends, receives, send_segments, receive_segments, inline, .. } =
            builder.segments(segments).inline(inline).create()?.capacity();
        // More of one kind is of no use here.
        Ok([sends, receives, send_segments.min(receive_segments.max(1)), inline])
    }
}

fn shapes(most: [u32; 3]) -> Vec<[u32; 4]> {
    let [requests, segments, inline] = most;
    let sizes = |most: u32| [1, 2, 3, 5, most / 2, most / 2 + 1, most.saturating_sub(1), most, most + 1];
    let mut shapes: Vec<_> = (1..1040).step_by(13).map(|bytes| [4, 4, 1, bytes]).collect();
    shapes.extend(sizes(inline).map(|bytes| [2, 2, 1, bytes]));
    shapes.extend([812, 813, 828, 829, 940, 956, 957, 972, 1004].map(|bytes| [16, 1, 1, bytes]));
    // Deep queues of large requests take long to create.
    shapes.extend(sizes(requests.min(1 << 15)).map(|depth| [depth, 1, 1, 0]));
    shapes.extend(sizes(requests.min(1 << 15)).map(|depth| [1, depth, 1, 0]));
    shapes.extend(sizes(segments).map(|segments| [2, 2, segments, 0]));
    shapes.extend(sizes(segments).map(|segments| [3, 3, segments, 200]));
    shapes
}

/// Whether the device has this type of queue pair; if so, its sizes were checked.
#[track_caller]
fn pairs(make: impl Fn([u32; 4]) -> Result<[u32; 4]>, most: [u32; 3]) -> bool {
    if make([1, 1, 1, 0]).is_err() {
        return false;
    }
    let accepted = shapes(most).into_iter().filter_map(|shape| granted(&make, shape)).count();
    assert!(accepted > 10, "{accepted} of {}", shapes(most).len());
    true
}

fn everything(context: &Context) {
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(4).unwrap());
    let base = context.query_device().unwrap().base;
    let most = [base.max_qp_wr, base.max_sge, 940];
    let types = [
        pairs(pair(|pd, cq| pd.rc(cq), &pd, &cq), most),
        pairs(pair(|pd, cq| pd.uc(cq), &pd, &cq), most),
        pairs(pair(|pd, cq| pd.ud(cq), &pd, &cq), most),
        pairs(pair(|pd, cq| pd.srd(cq), &pd, &cq), most),
        pairs(pair(|pd, cq| pd.raw_packet(cq), &pd, &cq), most),
    ];
    assert!(types.contains(&true));

    let sizes = |most: u32| [1, 2, 3, 100, most / 2, most / 2 + 1, most - 1, most, most + 1];
    let entries = |[entries]: [u32; 1]| Ok([context.create_cq(entries)?.capacity()]);
    for asked in sizes(base.max_cqe.min(1 << 18)) {
        granted(entries, [asked]);
        let mut queue = context.create_cq(3).unwrap();
        if queue.resize(asked).is_ok() {
            let had = queue.capacity();
            assert!(had >= asked);
            queue.resize(had).unwrap();
            assert!(queue.capacity() >= had);
        }
    }
    let shared = |[depth, segments]: [u32; 2]| {
        let srq = pd.srq(depth).segments(segments).create()?;
        Ok([srq.capacity(), srq.segments()])
    };
    let resized = |[depth]: [u32; 1]| -> Result<[u32; 1]> {
        let mut srq = pd.srq(3).create()?;
        srq.resize(depth)?;
        Ok([srq.capacity()])
    };
    let work = |[depth, segments]: [u32; 2]| {
        let queue = pd.work_queue(&cq).depth(depth).segments(segments).create()?;
        Ok([queue.capacity(), queue.segments()])
    };
    let is_there = |made: Result<[u32; 2]>| !made.is_err_and(|error| error.kind() == ErrorKind::Unsupported);
    let has_resize = !resized([4]).is_err_and(|error| error.kind() == ErrorKind::Unsupported);
    for depth in sizes(base.max_srq_wr.clamp(2, 1 << 15)) {
        if has_resize {
            granted(resized, [depth]);
        }
        for segments in [1, 2, 3, 4, 8, base.max_srq_sge.max(1), base.max_srq_sge + 1] {
            if is_there(shared([4, 1])) {
                granted(shared, [depth, segments]);
            }
            if is_there(work([4, 1])) {
                granted(work, [depth, segments]);
            }
        }
    }
}

#[test]
fn what_is_granted_is_not_smaller_and_is_accepted_again() {
    on_every_device(|target| everything(&target.open()));
}

/// The limits of this device are no powers of two, nor one less.
#[test]
fn odd_limits_are_not_exceeded_by_what_is_granted() {
    let profile = Profile::default().with_max_cqe(1000).with_max_qp_wr(300).with_max_sge(5);
    on_every_device_and(profile, |target| everything(&target.open()));
}
