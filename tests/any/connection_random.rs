//! Random programs of the connection manager's calls: listeners, requests, connections and waiting calls, each of which may go on, fail,
//! move to another manager or be dropped at any time. Nothing panics and nothing is left, in whatever order it is dropped. On the soft
//! network messages are lost and late, too.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Polling, Poll};
use std::time::Duration;

use super::connections::{Place, on_every_network};
use crate::common::*;
use uverbs::cm::{Connection, Incoming, Listener, Manager, SoftNetwork, Target};
use uverbs::{Context, Device, QueuePair, Rc};

type Call = Pin<Box<dyn Future<Output = Option<Thing>>>>;

/// What a program has at a time.
enum Thing {
    Listener(Arc<Listener>),
    Target(Target),
    Incoming(Incoming),
    Connection(Box<Connection>),
    Waiting(Call),
}

/// A program that has so many things begins nothing.
const ENOUGH: usize = 12;

struct Program {
    random: u64,
    /// The soft network, if it is one.
    network: Option<SoftNetwork>,
    ip: IpAddr,
    managers: Vec<Manager>,
    context: Context,
    things: Vec<Thing>,
    /// How many connections were established.
    established: usize,
}

impl Program {
    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random as usize % end
    }

    fn queue_pair(&self) -> uverbs::Result<QueuePair<Rc>> {
        self.context.alloc_pd()?.rc(&self.context.create_cq(4)?).create()
    }

    fn manager(&mut self) -> Manager {
        let at = self.below(self.managers.len());
        self.managers[at].clone()
    }

    fn address(&mut self) -> SocketAddr {
        SocketAddr::new(self.ip, 7000 + self.below(2) as u16)
    }

    fn wait(&mut self, call: impl Future<Output = Option<Thing>> + 'static) -> Option<Thing> {
        Some(Thing::Waiting(Box::pin(call)))
    }

    /// Begins something.
    fn begin(&mut self) {
        let (manager, address) = (self.manager(), self.address());
        let new = match self.below(3) {
            0 => {
                let backlog = self.below(3) as u32;
                let listener = manager.listener(address).backlog(backlog).listen();
                listener.ok().map(|listener| Thing::Listener(Arc::new(listener)))
            }
            _ => {
                let resolve = manager.resolve(address).type_of_service(self.below(256) as u8);
                self.wait(async move { resolve.run().await.ok().map(Thing::Target) })
            }
        };
        self.things.extend(new);
    }

    /// One thing goes on.
    fn step(&mut self, polling: &mut Polling<'_>) {
        if self.things.len() < ENOUGH && self.below(4) == 0 || self.things.is_empty() {
            return self.begin();
        }
        let mishap = self.below(40);
        if let Some(network) = &self.network {
            match mishap {
                0 => network.hold(),
                1 => network.lose(1),
                2 => network.replace_neighbour(self.ip),
                3..6 => network.release(),
                _ => {}
            }
        }
        let at = self.below(self.things.len());
        let thing = self.things.swap_remove(at);
        if self.below(30) == 0 {
            return drop(thing);
        }
        let next = match thing {
            Thing::Listener(listener) if self.things.len() >= ENOUGH => Some(Thing::Listener(listener)),
            Thing::Listener(listener) => {
                let own = listener.clone();
                self.things.push(Thing::Listener(listener));
                self.wait(async move { own.next().await.ok().map(Thing::Incoming) })
            }
            Thing::Target(target) => match self.queue_pair().and_then(|qp| target.connect(qp)) {
                Ok(connect) => self
                    .wait(async move { connect.establish().await.ok().map(Box::new).map(Thing::Connection) }),
                Err(_) => None,
            },
            Thing::Incoming(incoming) if self.below(4) == 0 => {
                let _ = incoming.reject(b"no");
                None
            }
            Thing::Incoming(incoming) => match self.queue_pair().and_then(|qp| incoming.accept(qp)) {
                Ok(accept) => {
                    if self.below(4) == 0 {
                        let _ = accept.notifier().notify();
                    }
                    self.wait(
                        async move { accept.establish().await.ok().map(Box::new).map(Thing::Connection) },
                    )
                }
                Err(_) => None,
            },
            Thing::Connection(mut connection) => {
                self.established += 1;
                match self.below(3) {
                    0 => {
                        let to = self.manager();
                        let _ = connection.move_to(&to);
                        Some(Thing::Connection(connection))
                    }
                    1 => self.wait(async move { connection.closed().await.ok().and(None) }),
                    _ => self.wait(async move { connection.disconnect().await.ok().and(None) }),
                }
            }
            Thing::Waiting(mut call) => match call.as_mut().poll(polling) {
                Poll::Ready(next) => next,
                Poll::Pending => Some(Thing::Waiting(call)),
            },
        };
        self.things.extend(next);
    }
}

/// The queue pairs of the device, and its identifiers of the connection manager.
fn left(device: &Device) -> Vec<(String, u64)> {
    let counts = device.resources().unwrap().summary().unwrap();
    let of_interest = counts.into_iter().filter(|count| matches!(count.kind.as_str(), "qp" | "cm_id"));
    of_interest.map(|count| (count.kind, count.number)).collect()
}

/// Plays a program. Returns how often a connection was used.
fn play(place: &Place, seed: u64) -> usize {
    let device = place.context.device();
    let before = left(device);
    let mut program = Program {
        random: seed * 2 + 1,
        network: place.network.clone(),
        ip: place.address,
        managers: vec![(place.another)(), (place.another)()],
        context: place.context.clone(),
        things: Vec::new(),
        established: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for step in 0..300 {
            std::future::poll_fn(|polling| {
                program.step(polling);
                Poll::Ready(())
            })
            .await;
            if step % 4 == 0 {
                // The runtime sees which files are readable. A kernel takes its time.
                match place.network {
                    Some(_) => tokio::task::yield_now().await,
                    None => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        }
        while !program.things.is_empty() {
            let at = program.below(program.things.len());
            drop(program.things.swap_remove(at));
        }
    });
    let used = program.established;
    drop(program);
    // Over iWARP, a client that was not answered is destroyed in another thread.
    until("nothing is left of a program", || {
        left(device) == before && place.network.as_ref().is_none_or(|network| network.identifiers() == 0)
    });
    used
}

#[test]
fn random_programs_of_a_connection_manager_leave_nothing() {
    on_every_network(|place| {
        // siw waits for ten seconds when it destroys a client that was not answered.
        let programs = match (&place.network, place.is_iwarp) {
            (Some(_), _) => 300,
            (None, false) => 30,
            (None, true) => 6,
        };
        let used: usize = (1..=programs).map(|seed| play(place, seed)).sum();
        assert!(used > programs as usize / 4, "{used} times was a connection used");
    });
}
