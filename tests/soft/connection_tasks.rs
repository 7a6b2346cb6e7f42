//! Both sides of connections as tasks of one thread: more clients than a backlog, and futures that are dropped at each of their steps.
#![cfg(feature = "tokio")]

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use uverbs::cm::{Closed, ConnectError, Listener, Manager, Messages, SoftNetwork, Target};
use uverbs::soft::Profile;
use uverbs::{ErrorKind, QueuePair, Rc, SoftDevice};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

#[derive(Clone)]
struct Place {
    network: SoftNetwork,
    device: SoftDevice,
    context: uverbs::Context,
    address: SocketAddr,
    /// Those that a server has.
    requests: Arc<AtomicUsize>,
}

impl Place {
    fn new(iwarp: bool) -> Self {
        let (network, device) =
            (SoftNetwork::default(), SoftDevice::new(Profile::default().with_iwarp(iwarp)));
        let address: SocketAddr = "10.0.0.1:7174".parse().unwrap();
        network.join(&device, address.ip()).unwrap();
        let context = device.device().open().unwrap();
        Self { network, device, context, address, requests: Arc::default() }
    }

    fn manager(&self) -> Manager {
        self.network.manager().unwrap()
    }

    fn queue_pair(&self) -> uverbs::Result<QueuePair<Rc>> {
        self.context.alloc_pd()?.rc(&self.context.create_cq(4)?).create()
    }

    /// Over iWARP, a client that was not answered is destroyed in another thread.
    fn is_clean(&self, what: &str) {
        let start = Instant::now();
        while self.network.identifiers() > 0 || self.device.resources().queue_pairs > 0 {
            assert!(
                start.elapsed() < LONG,
                "{what}: {} {:?}",
                self.network.identifiers(),
                self.device.resources()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    async fn client(&self, manager: &Manager) -> Result<(), ConnectError> {
        let target = manager.resolve(self.address).run().await?;
        let mut connection = target.connect(self.queue_pair()?)?.establish().await?;
        connection.disconnect().await?;
        Ok(())
    }

    async fn server(&self, listener: &Listener) -> Result<(), ConnectError> {
        let incoming = listener.next().await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let connection = incoming.accept(self.queue_pair()?)?.establish().await?;
        assert_eq!(connection.closed().await?, Closed::Disconnected);
        Ok(())
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LONG, future).await.expect("it ends") })
}

/// Drops a future after so many polls; its result if it needs fewer.
async fn polled<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), times);
    poll_fn(|context| {
        if left > 0 {
            left -= 1;
            if let Poll::Ready(done) = future.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
        }
        if left == 0 { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// Runs both sides. One of them is dropped after so many polls; the other one must come to an end. Returns whether the first was done before.
async fn leaves(place: &Place, client_leaves: bool, times: usize) -> bool {
    let (clients, servers) = (place.manager(), place.manager());
    let listener = Arc::new(servers.listen(place.address).unwrap());
    let other = place.clone();
    if !client_leaves {
        let client = tokio::spawn(async move { other.client(&clients).await });
        let done = polled(times, place.server(&listener)).await.is_some();
        drop(listener);
        // It is refused or disconnected, but never left waiting.
        let _ = client.await.unwrap();
        return done;
    }
    let mut server = tokio::spawn(async move { other.server(&listener).await });
    let done = polled(times, place.client(&clients)).await.is_some();
    if tokio::time::timeout(SHORT, &mut server).await.is_err() {
        // One without a request waits for another client; one with a request learns that its client has left.
        if place.requests.load(Ordering::Relaxed) > 0 {
            let _ = (&mut server).await.unwrap();
        } else {
            server.abort();
            assert!(server.await.unwrap_err().is_cancelled());
        }
    }
    done
}

#[test]
fn a_future_that_is_dropped_at_any_step_leaves_nothing_and_its_peer_learns_of_it() {
    for iwarp in [false, true] {
        for client_leaves in [false, true] {
            for times in 0.. {
                let place = Place::new(iwarp);
                let is_done = run(leaves(&place, client_leaves, times));
                place.is_clean(&format!("{times} polls, {iwarp}, {client_leaves}"));
                if is_done {
                    assert!(times > 2, "{times}");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_thousand_clients_meet_a_backlog_of_two() {
    for iwarp in [false, true] {
        let place = Place::new(iwarp);
        run(async {
            let (clients, servers) = (place.manager(), place.manager());
            let listener = servers.listener(place.address).backlog(2).listen().unwrap();
            let tasks: Vec<_> = (0..1000)
                .map(|_| {
                    let (place, clients) = (place.clone(), clients.clone());
                    tokio::spawn(async move { place.client(&clients).await })
                })
                .collect();
            let server = place.clone();
            let served = tokio::spawn(async move {
                loop {
                    server.server(&listener).await.unwrap();
                }
            });
            let mut connected = 0;
            for task in tasks {
                match task.await.unwrap() {
                    Ok(()) => connected += 1,
                    Err(error) => assert_eq!((iwarp, error.kind()), (true, ErrorKind::Refused), "{error}"),
                }
            }
            served.abort();
            assert!(served.await.unwrap_err().is_cancelled());
            assert!(if iwarp { connected > 0 } else { connected == 1000 }, "{connected}");
        });
        place.is_clean("a thousand");
    }
}

/// Wakers of which each is another one. How many there are.
#[derive(Default)]
struct Fresh(Arc<AtomicUsize>);

impl Fresh {
    fn waker(&self) -> Waker {
        self.0.fetch_add(1, Ordering::Relaxed);
        Waker::from(Arc::new(One(self.0.clone())))
    }

    fn alive(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

struct One(Arc<AtomicUsize>);

impl Wake for One {
    fn wake(self: Arc<Self>) {}
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Polls a call a thousand times, each with another waker, and drops it. Few wakers are kept meanwhile: one by the call, one as a reader's,
/// one by the runtime, which keeps that. Afterwards the runtime has one.
fn has_few_wakers<T>(what: &str, future: impl Future<Output = T>) {
    let (mut future, fresh) = (Box::pin(future), Fresh::default());
    for _ in 0..1000 {
        let waker = fresh.waker();
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "{what}");
        assert!(fresh.alive() <= 5, "{what}: {} wakers", fresh.alive());
    }
    drop(future);
    assert!(fresh.alive() <= 1, "{what}: {} wakers are left", fresh.alive());
}

#[test]
fn a_call_that_is_polled_with_other_wakers_keeps_one() {
    let place = Place::new(false);
    run(async {
        let (clients, servers) = (place.manager(), place.manager());
        let listener = servers.listen(place.address).unwrap();
        has_few_wakers("next", listener.next());
        let connect = |target: Target| target.connect(place.queue_pair().unwrap()).unwrap();
        let target = clients.resolve(place.address).run().await.unwrap();
        has_few_wakers("establish", connect(target).establish());
        drop(listener.next().await.unwrap());
        let target = clients.resolve(place.address).run().await.unwrap();
        let (client, server) = tokio::join!(connect(target).establish(), async {
            let accept = listener.next().await.unwrap().accept(place.queue_pair().unwrap()).unwrap();
            accept.establish().await
        });
        let (client, server) = (client.unwrap(), server.unwrap());
        has_few_wakers("closed", client.closed());
        // Two of the same connection.
        has_few_wakers("both", async { tokio::join!(server.closed(), server.closed()) });
        drop((client, server));
        let (client, server) = tokio::join!(Messages::connect(clients.resolve(place.address)), async {
            Messages::accept(listener.next().await.unwrap()).await
        });
        let (client, server) = (client.unwrap(), server.unwrap());
        has_few_wakers("recv", client.recv());
        has_few_wakers("both directions", async { tokio::join!(server.recv(), server.recv()) });
    });
    place.is_clean("other wakers");
}
