//! Requests as futures, on every device with reliable connections.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use crate::common::*;
use uverbs::{
    AccessFlags, ConnectionOptions, ErrorKind, MemoryRegion, QueuePair, Rc, ReceiveRequest, Remote,
    RequestError, Requests, Status,
};

/// A queue pair that is connected to itself, and memory that it may use from both sides.
struct Loop {
    requests: Requests<Rc>,
    memory: MemoryRegion,
    /// Number of receives, of which a device may grant more than were wanted.
    depth: usize,
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(Duration::from_secs(20), work).await.expect("it ends") })
}

impl Loop {
    fn new(target: &Target, depth: u32) -> Self {
        let context = target.open();
        let (pd, channel) = (context.alloc_pd().unwrap(), context.create_comp_channel().unwrap());
        let cq = context.cq(256).channel(&channel).create().unwrap();
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_ATOMIC;
        let memory = pd.register(8192, access).unwrap();
        let mut qp: QueuePair<Rc> = pd.rc(&cq).send_depth(depth).receive_depth(depth).create().unwrap();
        let options = ConnectionOptions { access, ..ConnectionOptions::new(1, 0) };
        let itself = qp.endpoint(&options, 0).unwrap();
        qp.connect(&options, &itself, &itself).unwrap();
        let depth = qp.capacity().receives as usize;
        Self { requests: Requests::new(qp, [cq]).unwrap(), memory, depth }
    }

    fn far(&self, at: u64) -> Remote {
        Remote { address: self.memory.address() + at, rkey: self.memory.rkey() }
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(at, &mut bytes).unwrap();
        bytes
    }

    async fn end(self) {
        self.requests.drain().await.unwrap();
        assert_eq!(self.requests.in_flight(), 0);
        let refused = self.requests.send(self.memory.segment(..8).unwrap()).await.unwrap_err();
        assert_eq!((refused.error().kind(), refused.status()), (ErrorKind::InvalidInput, None));
        drop(self.requests.into_parts().unwrap());
    }
}

/// Polls a future once, and asserts that it has not ended.
async fn begin<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

fn flushed(ended: Result<uverbs::Completion, RequestError>) {
    let error = ended.unwrap_err();
    assert_eq!((error.error().kind(), error.status()), (ErrorKind::OperationFailed, Some(Status::Flushed)));
}

#[test]
fn each_request_returns_its_own_completion() {
    on_every_connecting_device(|target| {
        run(async {
            let all = Loop::new(target, 16);
            let (requests, memory) = (&all.requests, &all.memory);
            memory.write(0, b"from here").unwrap();
            requests.write(memory.segment(..9).unwrap(), all.far(4096)).await.unwrap();
            assert_eq!(&all.bytes::<9>(4096), b"from here");
            let place = memory.segment(64..73).unwrap();
            requests.read(place, all.far(4096)).await.unwrap();
            assert_eq!(&all.bytes::<9>(64), b"from here");
            let room = [memory.segment(128..256).unwrap()];
            let (received, sent) =
                tokio::join!(requests.receive(&room), requests.send(memory.segment(..9).unwrap()));
            sent.unwrap();
            assert_eq!((received.unwrap().len, &all.bytes::<9>(128)), (9, b"from here"));
            memory.write(512, &7_u64.to_ne_bytes()).unwrap();
            let old = memory.segment(1024..1032).unwrap();
            requests.fetch_add(old, all.far(512), 5).await.unwrap();
            assert_eq!(u64::from_ne_bytes(all.bytes(1024)), 7);
            requests.compare_swap(old, all.far(512), 12, 99).await.unwrap();
            assert_eq!(u64::from_ne_bytes(all.bytes(1024)), 12);
            assert_eq!(u64::from_ne_bytes(all.bytes(512)), 99);
            all.end().await;
        });
    });
}

#[test]
fn requests_wait_for_room_and_none_is_posted_twice_or_lost() {
    on_every_connecting_device(|target| {
        run(async {
            let all = Loop::new(target, 4);
            let (requests, memory) = (all.requests.clone(), all.memory.clone());
            memory.write(0, &0_u64.to_ne_bytes()).unwrap();
            let writes: Vec<_> = (0..100_u8)
                .map(|number| {
                    let (requests, memory, far) =
                        (requests.clone(), memory.clone(), all.far(4096 + u64::from(number) * 8));
                    memory.write(256 + usize::from(number), &[number]).unwrap();
                    tokio::spawn(async move {
                        let from = 256 + usize::from(number);
                        requests.write(memory.segment(from..=from).unwrap(), far).await.map(drop)
                    })
                })
                .collect();
            for write in writes {
                write.await.unwrap().unwrap();
            }
            for number in 0..100_u8 {
                assert_eq!(all.bytes::<1>(4096 + usize::from(number) * 8), [number]);
            }
            drop(requests);
            all.end().await;
        });
    });
}

#[test]
fn a_dropped_future_posts_nothing_before_and_cancels_nothing_after_its_post() {
    on_every_connecting_device(|target| {
        run(async {
            let all = Loop::new(target, 4);
            let (requests, memory) = (&all.requests, &all.memory);
            let [one, two] = [[memory.segment(0..8).unwrap()], [memory.segment(8..16).unwrap()]];
            drop(requests.receive(&one));
            assert_eq!(requests.in_flight(), 0, "it was not polled");
            {
                let mut first = pin!(requests.receive(&one));
                begin(first.as_mut()).await;
            }
            assert_eq!(requests.in_flight(), 1, "it stays posted");
            let mut second = Box::pin(requests.receive(&two));
            begin(second.as_mut()).await;
            memory.write(64, b"firstsecond").unwrap();
            requests.send(memory.segment(64..69).unwrap()).await.unwrap();
            requests.send(memory.segment(69..75).unwrap()).await.unwrap();
            assert_eq!(second.await.unwrap().len, 6);
            assert_eq!((&all.bytes::<5>(0), &all.bytes::<6>(8)), (b"first", b"second"));
            assert_eq!(requests.in_flight(), 0);
            // Futures that are dropped while they wait for room give their turn to the next.
            for _ in 0..3 {
                let mut fill: Vec<_> = (0..all.depth).map(|_| Box::pin(requests.receive(&one))).collect();
                for receive in &mut fill {
                    begin(receive.as_mut()).await;
                }
                let (mut waits, mut last) = (Box::pin(requests.receive(&two)), pin!(requests.receive(&two)));
                begin(waits.as_mut()).await;
                begin(last.as_mut()).await;
                assert_eq!(requests.in_flight(), all.depth);
                requests.send(memory.segment(64..69).unwrap()).await.unwrap();
                drop(waits);
                begin(last.as_mut()).await;
                for _ in 0..all.depth {
                    requests.send(memory.segment(64..69).unwrap()).await.unwrap();
                }
                last.await.unwrap();
                for receive in fill {
                    receive.await.unwrap();
                }
            }
            all.end().await;
        });
    });
}

#[test]
fn a_drain_ends_what_was_posted_as_flushed() {
    on_every_connecting_device(|target| {
        run(async {
            let all = Loop::new(target, 4);
            let room = [all.memory.segment(0..8).unwrap()];
            let mut waits: Vec<_> =
                (0..all.depth + 2).map(|_| Box::pin(all.requests.receive(&room))).collect();
            for wait in &mut waits {
                begin(wait.as_mut()).await;
            }
            let clone = all.requests.clone();
            assert_eq!(clone.into_parts().unwrap_err().kind(), ErrorKind::Busy);
            all.requests.drain().await.unwrap();
            for (number, wait) in waits.into_iter().enumerate() {
                if number < all.depth {
                    flushed(wait.await);
                } else {
                    // These had no room, and were never posted.
                    assert_eq!(wait.await.unwrap_err().error().kind(), ErrorKind::InvalidInput);
                }
            }
            all.end().await;
        });
    });
}

#[test]
fn the_first_failure_ends_the_others() {
    on_every_connecting_device(|target| {
        run(async {
            let all = Loop::new(target, 8);
            let (requests, memory) = (&all.requests, &all.memory);
            let room = [memory.segment(0..8).unwrap()];
            let mut receive = Box::pin(requests.receive(&room));
            begin(receive.as_mut()).await;
            let wrong = Remote { address: memory.address(), rkey: memory.rkey() ^ 0xff_ff00 };
            let error = requests.read(memory.segment(64..72).unwrap(), wrong).await.unwrap_err();
            assert_eq!(error.error().kind(), ErrorKind::OperationFailed);
            let status = error.status().unwrap();
            // Both ends are one queue pair, which may be in the error state before the answer has come.
            assert_ne!(status, Status::Success);
            flushed(receive.await);
            all.end().await;
        });
    });
}

#[test]
fn queues_that_cannot_be_waited_for_are_refused() {
    on_every_connecting_device(|target| {
        run(async {
            let context = target.open();
            let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
            let qp = pd.rc(&cq).create().unwrap();
            let error = Requests::new(qp, [cq]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let cq = context.create_cq(16).unwrap();
            let error = Requests::new(pd.rc(&cq).create().unwrap(), []).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        });
    });
}

#[test]
fn a_runtime_that_ends_ends_the_requests() {
    on_every_connecting_device(|target| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let all = runtime.block_on(async { Loop::new(target, 4) });
        let room = [all.memory.segment(0..8).unwrap()];
        let mut receive = Box::pin(all.requests.receive(&room));
        run(begin(receive.as_mut()));
        drop(runtime);
        let error = run(receive).unwrap_err();
        assert_eq!(error.error().errno(), Some(3), "{error}");
    });
}

#[test]
fn what_was_posted_before_is_not_taken_for_a_request() {
    on_every_connecting_device(|target| {
        run(async {
            let all = Loop::new(target, 4);
            let room = [all.memory.segment(0..8).unwrap()];
            let before = [ReceiveRequest::new(0, &room)];
            all.requests.queue_pair(|qp| qp.post_receive(&before)).unwrap().unwrap();
            let mut receive = Box::pin(all.requests.receive(&room));
            begin(receive.as_mut()).await;
            all.requests.send(all.memory.segment(64..65).unwrap()).await.unwrap();
            begin(receive.as_mut()).await;
            all.requests.send(all.memory.segment(64..66).unwrap()).await.unwrap();
            assert_eq!(receive.await.unwrap().len, 2);
            all.end().await;
        });
    });
}

#[test]
fn a_queue_pair_without_receives_of_its_own_refuses_them_and_waits_for_none() {
    on_every_connecting_device(|target| {
        let context = target.open();
        let Ok(srq) = context.alloc_pd().and_then(|pd| pd.srq(4).create()) else { return };
        drop(srq);
        run(async {
            let (pd, channel) = (context.alloc_pd().unwrap(), context.create_comp_channel().unwrap());
            let cq = context.cq(16).channel(&channel).create().unwrap();
            let srq = pd.srq(4).create().unwrap();
            let qp = pd.rc(&cq).srq(&srq).create().unwrap();
            let memory = pd.register(64, AccessFlags::LOCAL_WRITE).unwrap();
            let requests = Requests::new(qp, [cq]).unwrap();
            let refused = requests.receive(&[memory.segment(..8).unwrap()]).await.unwrap_err();
            assert_eq!((refused.error().kind(), refused.status()), (ErrorKind::InvalidInput, None));
            assert!(refused.error().hint().is_some_and(|hint| hint.contains("receives of its own")));
            requests.drain().await.unwrap();
        });
    });
}
