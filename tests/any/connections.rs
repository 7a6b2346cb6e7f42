//! Connections by the connection manager: on the soft network as over RoCE and as over iWARP, and by the kernel's for the device whose
//! address the lane sets.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use uverbs::cm::{
    Accept, Closed, Connect, ConnectError, Connection, Incoming, Listener, Manager as Cm, Reason,
    SoftNetwork, Target as Found,
};
use uverbs::soft::Profile;
use uverbs::{
    CompletionQueue, Context, ErrorKind, MemoryRegion, Operation, QueuePair, Rc, ReceiveRequest, SendRequest,
    Status,
};

pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A manager, and an address of the device under test.
pub(crate) struct Place {
    pub(crate) cm: Cm,
    pub(crate) address: IpAddr,
    pub(crate) context: Context,
    pub(crate) is_iwarp: bool,
    /// The soft network, if it is one.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "random programs need it"))]
    pub(crate) network: Option<SoftNetwork>,
    /// Opens another manager.
    pub(crate) another: Box<dyn Fn() -> Cm + Sync>,
}

/// One end of a connection, without its queue pair.
#[derive(Debug)]
pub(crate) struct End {
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl End {
    pub(crate) fn new(context: &Context) -> (Self, QueuePair<Rc>) {
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(32).unwrap());
        let memory = pd.register(4096, uverbs::AccessFlags::LOCAL_WRITE).unwrap();
        let qp = pd.rc(&cq).send_depth(8).receive_depth(8).create().unwrap();
        (Self { cq, memory }, qp)
    }

    pub(crate) fn receive(&self, qp: &mut QueuePair<Rc>, wr_id: u64) {
        let room = [self.memory.segment(0..64).unwrap()];
        qp.post_receive(&[ReceiveRequest::new(wr_id, &room)]).unwrap();
    }

    pub(crate) fn send(&self, qp: &mut QueuePair<Rc>, text: &[u8]) {
        self.memory.write(1024, text).unwrap();
        let piece = [self.memory.segment(1024..1024 + text.len()).unwrap()];
        qp.post_send(&[SendRequest::new(77, Operation::Send, &piece).signaled()]).unwrap();
    }

    /// The next completion.
    pub(crate) fn end(&mut self) -> (u64, Status) {
        let (start, mut batch) = (Instant::now(), uverbs::Completion::batch::<1>());
        while self.cq.poll(&mut batch) == 0 {
            assert!(start.elapsed() < LONG, "no completion");
            thread::yield_now();
        }
        (batch[0].wr_id, batch[0].status)
    }

    pub(crate) fn text(&self, len: usize) -> Vec<u8> {
        let mut text = vec![0; len];
        self.memory.read(0, &mut text).unwrap();
        text
    }
}

/// Runs a behaviour wherever there is a connection manager, and checks that no identifier is left.
pub(crate) fn on_every_network(behaviour: impl Fn(&Place)) {
    let on_soft = |target: &Target| {
        let (network, device) = (SoftNetwork::default(), target.soft.as_ref().expect("soft"));
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        network.join(device, address).unwrap();
        let (cm, context) = (network.manager().unwrap(), target.open());
        let is_iwarp = device.profile().iwarp;
        let others = network.clone();
        let another = Box::new(move || others.manager().unwrap());
        behaviour(&Place { cm, address, context, is_iwarp, network: Some(network.clone()), another });
        // Over iWARP, a client that was not answered is destroyed in another thread.
        until("no identifier is left", || network.identifiers() == 0);
        assert_eq!(network.identifiers(), 0, "identifiers are left");
    };
    let iwarp = Target::soft(Profile::default().with_iwarp(true));
    on_soft(&iwarp);
    let soft = iwarp.soft.as_ref().expect("soft");
    until("nothing is left", || soft.resources().is_empty());
    on_every_device(|target| {
        if target.soft.is_some() {
            return on_soft(target);
        }
        let Ok(address) = std::env::var("UVERBS_TEST_ADDRESS") else {
            return skipped("the kernel's connection manager: UVERBS_TEST_ADDRESS names no address");
        };
        let (cm, address) = (Cm::open().unwrap(), address.parse().unwrap());
        let is_iwarp = cm.device_of(address).unwrap().0.node_type() == uverbs::abi::types::node_type::RNIC;
        let another = Box::new(|| Cm::open().unwrap());
        behaviour(&Place { cm, address, context: target.open(), is_iwarp, network: None, another });
    });
}

impl Place {
    /// A listener on a port that the kernel chooses.
    pub(crate) fn listen(&self) -> (Listener, SocketAddr) {
        let listener = self.cm.listen(SocketAddr::new(self.address, 0)).unwrap();
        let address = listener.address().unwrap();
        assert_eq!(address.ip(), self.address);
        (listener, address)
    }

    pub(crate) fn find(&self, address: SocketAddr) -> Found {
        self.cm.resolve(address).run().within(LONG).unwrap()
    }

    pub(crate) fn connect(&self, address: SocketAddr) -> (End, Connect) {
        let (end, qp) = End::new(&self.context);
        (end, self.find(address).connect(qp).unwrap())
    }

    pub(crate) fn accept(&self, incoming: Incoming) -> (End, Accept) {
        let (end, qp) = End::new(&self.context);
        (end, incoming.accept(qp).unwrap())
    }

    /// Both ends of a connection: the one that has connected, and the one that has accepted. Each has one receive posted, number 5.
    pub(crate) fn pair(&self) -> ((End, Connection), (End, Connection)) {
        let (listener, address) = self.listen();
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (end, mut accept) = self.accept(listener.next().within(LONG).unwrap());
                end.receive(accept.queue_pair(), 5);
                (end, accept.establish().within(LONG).unwrap())
            });
            let (end, mut connect) = self.connect(address);
            end.receive(connect.queue_pair(), 5);
            let connection = connect.establish().within(LONG).unwrap();
            ((end, connection), server.join().unwrap())
        })
    }
}

fn refusal(error: ConnectError) -> (ErrorKind, Reason, Vec<u8>) {
    let rejection = error.rejection().expect("a rejection").clone();
    (error.kind(), rejection.reason, rejection.private_data)
}

#[test]
fn both_sides_send_after_a_connection_and_both_learn_of_its_end() {
    on_every_network(|place| {
        let ((mut one, mut client), (mut two, mut server)) = place.pair();
        one.send(client.queue_pair(), b"from the client");
        assert_eq!((one.end(), two.end()), ((77, Status::Success), (5, Status::Success)));
        assert_eq!(two.text(15), b"from the client");
        two.send(server.queue_pair(), b"from the server");
        assert_eq!((two.end(), one.end()), ((77, Status::Success), (5, Status::Success)));
        assert_eq!(one.text(15), b"from the server");
        let (own, peer) = client.addresses().unwrap();
        assert_eq!((own.ip(), peer.ip()), (place.address, place.address));
        assert_eq!(server.addresses().unwrap(), (peer, own));
        assert_eq!(client.is_iwarp(), place.is_iwarp);
        thread::scope(|scope| {
            let leaves = scope.spawn(|| client.disconnect().within(LONG).unwrap());
            assert_eq!(server.closed().within(LONG).unwrap(), Closed::Disconnected);
            assert_eq!(leaves.join().unwrap(), Closed::Disconnected);
        });
        assert_eq!(client.closed().within(Duration::ZERO).unwrap(), Closed::Disconnected);
    });
}

#[test]
fn one_thread_reads_the_events_of_both_sides() {
    on_every_network(|place| {
        let (listener, address) = place.listen();
        for round in 0..3_u64 {
            let ((mut one, mut client), mut server) = thread::scope(|scope| {
                let (end, connect) = place.connect(address);
                let client = scope.spawn(|| connect.establish().within(LONG).unwrap());
                let (other, mut accept) = place.accept(listener.next().within(LONG).unwrap());
                other.receive(accept.queue_pair(), round);
                let server = accept.establish().within(LONG).unwrap();
                ((end, client.join().unwrap()), (other, server))
            });
            one.send(client.queue_pair(), b"x");
            assert_eq!((one.end().1, server.0.end()), (Status::Success, (round, Status::Success)));
            drop(client);
            assert_eq!(server.1.closed().within(LONG).unwrap(), Closed::Disconnected);
        }
    });
}

#[test]
fn private_data_reaches_both_programs_and_too_much_of_it_is_refused_before() {
    on_every_network(|place| {
        let (request, reply, rejection) = if place.is_iwarp { (251, 251, 251) } else { (56, 196, 148) };
        let (listener, address) = place.listen();
        let ask = |len: usize| {
            let (end, connect) = place.connect(address);
            connect.private_data(&vec![7; len]).map(|connect| (end, connect))
        };
        let error = ask(request + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("{} given", request + 1)), "{error}");
        thread::scope(|scope| {
            let (_end, connect) = ask(request).unwrap();
            let client = scope.spawn(|| connect.establish().within(LONG).unwrap());
            let incoming = listener.next().within(LONG).unwrap();
            assert_eq!(incoming.private_data(), vec![7; request]);
            let (_other, accept) = place.accept(incoming);
            let server = accept.private_data(&vec![9; reply]).unwrap().establish().within(LONG).unwrap();
            assert_eq!(client.join().unwrap().private_data(), vec![9; reply]);
            drop(server);
        });
        // Too long a reply or a rejection refuses the connection without data.
        for is_reply in [true, false] {
            thread::scope(|scope| {
                let (_end, connect) = ask(0).unwrap();
                let client = scope.spawn(|| connect.establish().within(LONG).unwrap_err());
                let incoming = listener.next().within(LONG).unwrap();
                let error = if is_reply {
                    let (_other, accept) = place.accept(incoming);
                    accept.private_data(&vec![9; reply + 1]).unwrap_err()
                } else {
                    incoming.reject(&vec![9; rejection + 1]).unwrap_err()
                };
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                let (kind, reason, _) = refusal(client.join().unwrap());
                assert_eq!((kind, reason), (ErrorKind::Refused, Reason::Program));
            });
        }
    });
}

#[test]
fn a_rejection_says_why() {
    on_every_network(|place| {
        let (listener, address) = place.listen();
        for is_dropped in [false, true] {
            thread::scope(|scope| {
                let (_end, connect) = place.connect(address);
                let client = scope.spawn(|| connect.establish().within(LONG).unwrap_err());
                let incoming = listener.next().within(LONG).unwrap();
                if is_dropped {
                    drop(incoming);
                } else {
                    incoming.reject(b"not today").unwrap();
                }
                let (kind, reason, data) = refusal(client.join().unwrap());
                assert_eq!((kind, reason), (ErrorKind::Refused, Reason::Program));
                assert!(is_dropped || place.is_iwarp || data.starts_with(b"not today"), "{data:?}");
            });
        }
        drop(listener);
        let (_end, connect) = place.connect(address);
        let (kind, reason, _) = refusal(connect.establish().within(LONG).unwrap_err());
        assert_eq!((kind, reason), (ErrorKind::Refused, Reason::NobodyListens));
    });
}

#[test]
fn a_dropped_listener_refuses_the_requests_that_nobody_has_taken() {
    on_every_network(|place| {
        let (listener, address) = place.listen();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..3).map(|_| place.connect(address)).collect();
            let clients: Vec<_> = clients
                .into_iter()
                .map(|(end, connect)| {
                    scope.spawn(|| (end, connect.establish().within(LONG).unwrap_err()).1.kind())
                })
                .collect();
            thread::sleep(Duration::from_millis(100));
            drop(listener);
            for client in clients {
                assert_eq!(client.join().unwrap(), ErrorKind::Refused);
            }
        });
    });
}

#[test]
fn an_unanswered_request_ends_with_the_callers_deadline() {
    on_every_network(|place| {
        let (listener, address) = place.listen();
        let (_end, connect) = place.connect(address);
        let (start, patience) = (Instant::now(), Duration::from_millis(100));
        let error = connect.establish().within(patience).unwrap_err();
        let took = start.elapsed();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(took >= patience && took < patience + Duration::from_millis(250), "{took:?}");
        // Its request is still there, and cannot be accepted any more.
        let incoming = listener.next().within(LONG).unwrap();
        let (_other, qp) = End::new(&place.context);
        let accept = incoming.accept(qp).map_err(ConnectError::from);
        match accept.and_then(|accept| accept.establish().within(Duration::from_millis(500))) {
            // Over iWARP the client is destroyed in another thread, and the kernel may connect it first.
            Ok(connection) => assert_eq!(connection.closed().within(LONG).unwrap(), Closed::Disconnected),
            Err(error) => assert!(error.rejection().is_none_or(|reason| reason.private_data.len() < 149)),
        }
        let error = listener.next().within(Duration::from_millis(20)).unwrap_err();
        assert_eq!((error.kind(), error.op()), (ErrorKind::TimedOut, "cm.next"));
    });
}

#[test]
fn a_dropped_connection_tells_the_other_side() {
    on_every_network(|place| {
        for server_leaves in [false, true] {
            let ((_one, client), (_two, server)) = place.pair();
            let (leaves, stays) = if server_leaves { (server, client) } else { (client, server) };
            drop(leaves);
            assert_eq!(stays.closed().within(LONG).unwrap(), Closed::Disconnected);
        }
    });
}

#[test]
fn both_sides_may_disconnect_at_the_same_time() {
    on_every_network(|place| {
        for _ in 0..5 {
            let ((_one, mut client), (_two, mut server)) = place.pair();
            thread::scope(|scope| {
                let ends = [&mut client, &mut server]
                    .map(|end| scope.spawn(|| end.disconnect().within(LONG).unwrap()));
                for end in ends {
                    assert_eq!(end.join().unwrap(), Closed::Disconnected);
                }
            });
        }
    });
}

#[test]
fn threads_that_share_a_manager_get_their_own_connections() {
    on_every_network(|place| {
        let (listener, address) = place.listen();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let incoming = listener.next().within(LONG).unwrap();
                        let data = incoming.private_data()[..1].to_vec();
                        let (_end, accept) = place.accept(incoming);
                        let accept = accept.private_data(&data).unwrap();
                        let connection = accept.establish().within(LONG).unwrap();
                        assert_eq!(connection.closed().within(LONG).unwrap(), Closed::Disconnected);
                    }
                });
            }
            for name in 0..8_u8 {
                scope.spawn(move || {
                    for _ in 0..2 {
                        let (_end, connect) = place.connect(address);
                        let connect = connect.private_data(&[name]).unwrap();
                        let mut connection = connect.establish().within(LONG).unwrap();
                        assert_eq!(connection.private_data()[0], name);
                        connection.disconnect().within(LONG).unwrap();
                    }
                });
            }
        });
    });
}

#[test]
fn addresses_that_cannot_be_used_are_refused_with_the_reason() {
    on_every_network(|place| {
        let (listener, address) = place.listen();
        let listen = |text: &str| place.cm.listen(text.parse().unwrap()).unwrap_err();
        let taken = place.cm.listen(address).unwrap_err();
        assert_eq!(taken.errno(), Some(98), "{taken}");
        for text in ["127.0.0.1:0", "[::1]:0"] {
            let error = listen(text);
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("any address"), "{error}");
        }
        let foreign = listen("192.0.2.77:0");
        assert_eq!(foreign.errno(), Some(99), "{foreign}");
        for text in ["127.0.0.1:9", "0.0.0.0:9"] {
            let error = place.cm.resolve(text.parse().unwrap()).run().within(LONG).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        let any: SocketAddr = SocketAddr::new("0.0.0.0".parse().unwrap(), 0);
        let all = place.cm.listener(any).backlog(4).listen().unwrap();
        let target = place.find(SocketAddr::new(place.address, all.address().unwrap().port()));
        assert_eq!(target.addresses().unwrap().1.port(), all.address().unwrap().port());
        let (device, port) = place.cm.device_of(place.address).unwrap();
        assert_eq!((device.name(), port), (place.context.device().name(), 1));
        assert_eq!(target.device().unwrap().0.name(), device.name());
        drop(listener);
        drop(place.cm.listen(address).unwrap());
    });
}

#[test]
fn own_addresses_that_are_not_here_are_refused_with_the_reason() {
    on_every_network(|place| {
        let from = |text: &str| {
            let resolve = place.cm.resolve(SocketAddr::new(place.address, 9)).source(text.parse().unwrap());
            resolve.run().within(LONG).unwrap_err()
        };
        let foreign = from("192.0.2.77:0");
        assert_eq!(foreign.errno(), Some(99), "{foreign}");
        assert!(foreign.to_string().contains("not an address of this host"), "{foreign}");
        let other = from("[fd00::1]:0");
        assert_eq!(other.kind(), ErrorKind::InvalidInput, "{other}");
        assert!(other.to_string().contains("families"), "{other}");
        let local = place.cm.listen("[fe80::1]:0".parse().unwrap()).unwrap_err();
        assert_eq!(local.kind(), ErrorKind::InvalidInput, "{local}");
        assert!(local.to_string().contains("fe80::1%eth0"), "{local}");
    });
}

#[test]
fn a_queue_pair_that_is_not_new_is_refused() {
    on_every_network(|place| {
        if place.is_iwarp {
            // There the kernel lets an idle queue pair begin again.
            return;
        }
        let (_listener, address) = place.listen();
        let (_end, mut qp) = End::new(&place.context);
        qp.modify(
            &uverbs::Attributes::to(uverbs::QpState::Init)
                .port(1)
                .pkey_index(0)
                .access(uverbs::AccessFlags::empty()),
        )
        .unwrap();
        qp.to_error().unwrap();
        let error = place.find(address).connect(qp).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}
