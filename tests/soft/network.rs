//! Connections on the soft network, with what happens to no test on a kernel at the right moment: late and lost answers, a device that is
//! removed at each step, a listener with more requests than it takes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use uverbs::cm::{Closed, Connect, Connection, Incoming, Listener, Manager, SoftNetwork};
use uverbs::command::Command;
use uverbs::soft::Profile;
use uverbs::transport::{Errno, Watcher};
use uverbs::{Context, ErrorKind, QueuePair, Rc, SoftDevice};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);

struct Place {
    network: SoftNetwork,
    device: SoftDevice,
    context: Context,
    cm: Manager,
}

const PROFILES: [bool; 2] = [false, true];

impl Place {
    fn new(iwarp: bool) -> Self {
        let (network, device) =
            (SoftNetwork::default(), SoftDevice::new(Profile::default().with_iwarp(iwarp)));
        network.join(&device, ip("10.0.0.1")).unwrap();
        let (cm, context) = (network.manager().unwrap(), device.device().open().unwrap());
        Self { network, device, context, cm }
    }

    fn queue_pair(&self) -> QueuePair<Rc> {
        let cq = self.context.create_cq(8).unwrap();
        self.context.alloc_pd().unwrap().rc(&cq).create().unwrap()
    }

    fn listen(&self) -> (Listener, SocketAddr) {
        let listener = self.cm.listen(SocketAddr::new(ip("10.0.0.1"), 0)).unwrap();
        let address = listener.address().unwrap();
        (listener, address)
    }

    fn connect(&self, address: SocketAddr) -> Connect {
        self.cm.resolve(address).run().within(LONG).unwrap().connect(self.queue_pair()).unwrap()
    }

    fn accept(&self, incoming: Incoming) -> Connection {
        incoming.accept(self.queue_pair()).unwrap().establish().within(LONG).unwrap()
    }

    fn pair(&self) -> (Connection, Connection) {
        let (listener, address) = self.listen();
        thread::scope(|scope| {
            let server = scope.spawn(|| self.accept(listener.next().within(LONG).unwrap()));
            (self.connect(address).establish().within(LONG).unwrap(), server.join().unwrap())
        })
    }

    fn is_clean(&self) {
        assert_eq!(self.network.identifiers(), 0);
        assert_eq!(self.device.resources().queue_pairs, 0);
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_late_answer_reaches_its_client_and_a_cancelled_client_gets_none() {
    let place = Place::new(false);
    let (listener, address) = place.listen();
    place.network.hold();
    thread::scope(|scope| {
        let client = scope.spawn(|| place.connect(address).establish().within(LONG).unwrap());
        assert_eq!(listener.next().within(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        place.network.release();
        let server = place.accept(listener.next().within(LONG).unwrap());
        drop((client.join().unwrap(), server));
    });
    place.network.hold();
    let error = place.connect(address).establish().within(SHORT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    place.network.release();
    assert_eq!(listener.next().within(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    drop(listener);
    place.is_clean();
}

#[test]
fn each_message_may_be_lost() {
    // Request, reply, acknowledgement.
    for lost in 0..3 {
        let place = Place::new(false);
        let (listener, address) = place.listen();
        let connect = place.connect(address);
        thread::scope(|scope| {
            place.network.lose(usize::from(lost == 0));
            let client = scope.spawn(|| connect.establish().within(LONG));
            if lost > 0 {
                place.network.hold();
                let incoming = match listener.next().within(SHORT) {
                    Ok(incoming) => incoming,
                    Err(_) => {
                        place.network.release();
                        listener.next().within(LONG).unwrap()
                    }
                };
                place.network.release();
                place.network.lose(usize::from(lost == 1));
                let accept = incoming.accept(place.queue_pair()).unwrap();
                let server = scope.spawn(|| accept.establish().within(LONG));
                if lost == 1 {
                    assert_eq!(server.join().unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
                } else {
                    drop(server.join().unwrap().unwrap());
                }
            }
            match client.join().unwrap() {
                Ok(connection) => {
                    assert_eq!(lost, 2);
                    assert_eq!(connection.closed().within(LONG).unwrap(), Closed::Disconnected);
                }
                Err(error) => assert_eq!((lost < 2, error.kind()), (true, ErrorKind::TimedOut)),
            }
        });
        drop(listener);
        place.is_clean();
    }
}

#[test]
fn a_neighbour_with_another_hardware_address_is_lost() {
    for iwarp in PROFILES {
        let place = Place::new(iwarp);
        let (mut client, server) = place.pair();
        place.network.replace_neighbour(ip("10.0.0.1"));
        if iwarp {
            // TCP finds it again.
            assert_eq!(client.closed().within(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        } else {
            assert_eq!(client.closed().within(LONG).unwrap(), Closed::NeighbourLost);
            assert_eq!(client.disconnect().within(LONG).unwrap(), Closed::NeighbourLost);
        }
        drop((client, server));
        place.is_clean();
    }
}

#[test]
fn an_end_without_an_answer_says_so() {
    let place = Place::new(false);
    let (mut client, server) = place.pair();
    place.network.lose(1);
    assert_eq!(client.disconnect().within(LONG).unwrap(), Closed::Unanswered);
    assert_eq!(server.closed().within(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    drop((client, server));
    place.is_clean();
}

#[test]
fn a_device_that_is_removed_ends_every_step() {
    for iwarp in PROFILES {
        // Resolved, asked, taken, accepted, established.
        for step in 0..5 {
            let place = Place::new(iwarp);
            let (listener, address) = place.listen();
            let gone = ErrorKind::Disassociated;
            if step == 4 {
                let (mut client, server) = place.pair();
                place.device.unplug();
                assert_eq!(client.closed().within(LONG).unwrap(), Closed::DeviceGone);
                assert_eq!(server.closed().within(LONG).unwrap(), Closed::DeviceGone);
                assert_eq!(client.disconnect().within(LONG).unwrap(), Closed::DeviceGone);
            } else {
                let target = place.cm.resolve(address).run().within(LONG).unwrap();
                let (one, two) = (place.queue_pair(), place.queue_pair());
                if step == 0 {
                    place.device.unplug();
                    assert_eq!(target.connect(one).unwrap_err().kind(), gone);
                    drop(two);
                } else {
                    let connect = target.connect(one).unwrap();
                    thread::scope(|scope| {
                        let client = scope.spawn(|| connect.establish().within(LONG).unwrap_err());
                        if step == 1 {
                            thread::sleep(SHORT);
                            place.device.unplug();
                        } else {
                            let incoming = listener.next().within(LONG).unwrap();
                            if step == 2 {
                                place.device.unplug();
                                assert_eq!(incoming.accept(two).unwrap_err().kind(), gone);
                            } else {
                                let accept = incoming.accept(two).unwrap();
                                place.device.unplug();
                                assert_eq!(accept.establish().within(LONG).unwrap_err().kind(), gone);
                            }
                        }
                        assert_eq!(client.join().unwrap().kind(), gone);
                    });
                }
            }
            let error = loop {
                match listener.next().within(LONG) {
                    Ok(incoming) => assert_eq!(incoming.reject(b"").unwrap_err().kind(), gone),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), gone);
            drop(listener);
            until_clean(&place);
        }
    }
}

/// Over iWARP, a client that was not answered is destroyed in another thread.
fn until_clean(place: &Place) {
    for _ in 0..1000 {
        if place.network.identifiers() == 0 && place.device.resources().queue_pairs == 0 {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    place.is_clean();
}

#[test]
fn more_clients_than_the_backlog_are_repeated_or_refused() {
    for iwarp in PROFILES {
        let place = Place::new(iwarp);
        let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let listener = place.cm.listener(any).backlog(2).listen().unwrap();
        let address = SocketAddr::new(ip("10.0.0.1"), listener.address().unwrap().port());
        // Whoever waits reads the events: nobody reads here before all have asked.
        let clients: Vec<_> = (0..5).map(|_| place.network.manager().unwrap()).collect();
        thread::scope(|scope| {
            let connect = |cm: Manager| {
                let target = cm.resolve(address).run().within(LONG).unwrap();
                let connect = target.connect(place.queue_pair()).unwrap();
                connect.establish().within(LONG).map_err(|error| error.kind())
            };
            let clients: Vec<_> = clients.into_iter().map(|cm| scope.spawn(move || connect(cm))).collect();
            thread::sleep(Duration::from_millis(100));
            let mut served = Vec::new();
            while let Ok(incoming) = listener.next().within(Duration::from_millis(200)) {
                served.push(place.accept(incoming));
            }
            let ends: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
            let refused = ends.iter().filter(|end| matches!(end, Err(ErrorKind::Refused))).count();
            assert_eq!((served.len(), refused), if iwarp { (2, 3) } else { (5, 0) });
        });
        drop(listener);
        until_clean(&place);
    }
}

#[test]
fn a_call_that_is_dropped_before_it_began_leaves_nothing() {
    for iwarp in PROFILES {
        let place = Place::new(iwarp);
        let (listener, address) = place.listen();
        drop(place.cm.resolve(address).run());
        drop(place.cm.resolve(address).run().within(LONG).unwrap());
        drop(place.connect(address));
        drop(place.connect(address).establish());
        drop(listener.next());
        drop(listener);
        place.is_clean();
    }
}

#[test]
fn a_host_that_is_not_there_is_not_found() {
    let place = Place::new(false);
    let error = place.cm.resolve("10.0.0.99:1".parse().unwrap()).run().within(LONG).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("no host"), "{error}");
    let error = place.cm.device_of(ip("10.0.0.99")).unwrap_err();
    assert_eq!(error.errno(), Some(99), "{error}");
    for address in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "10.0.0.1"] {
        assert_eq!(
            place.network.join(&place.device, ip(address)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
    place.is_clean();
}

/// Counts the queries of a device.
#[derive(Debug, Default, Clone)]
struct Queries(Arc<AtomicUsize>);

impl Watcher for Queries {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        self.0.fetch_add(usize::from(command.op() == "device.query"), Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn an_open_device_is_queried_once_for_any_number_of_connections() {
    for iwarp in PROFILES {
        let mut place = Place::new(iwarp);
        let queries = Queries::default();
        place.context = place.device.device().open_with(queries.clone()).unwrap();
        for _ in 0..3 {
            drop(place.pair());
        }
        assert_eq!(queries.0.load(Ordering::Relaxed), 1);
        place.is_clean();
    }
}

/// Keeps what the network carries, from the acknowledgement of a reply on.
#[derive(Debug)]
struct Unacknowledged(SoftNetwork);

impl uverbs::cm::Watcher for Unacknowledged {
    fn before(&self, command: &uverbs::cm::Command<'_>) -> Result<(), Errno> {
        if command.number() == uverbs::abi::cm::ACCEPT {
            self.0.hold();
        }
        Ok(())
    }
}

#[test]
fn a_message_stands_for_an_acknowledgement_that_is_late() {
    let place = Place::new(false);
    let (listener, address) = place.listen();
    let clients = place.network.manager_with(Unacknowledged(place.network.clone())).unwrap();
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            let target = clients.resolve(address).run().within(LONG).unwrap();
            target.connect(place.queue_pair()).unwrap().establish().within(LONG).unwrap()
        });
        let accept = listener.next().within(LONG).unwrap().accept(place.queue_pair()).unwrap();
        let notifier = accept.notifier();
        let server = scope.spawn(|| accept.establish().within(LONG).unwrap());
        let client = client.join().unwrap();
        thread::sleep(SHORT);
        assert!(!server.is_finished(), "nothing has reached the server");
        notifier.notify().unwrap();
        let server = server.join().unwrap();
        place.network.release();
        drop(client);
        assert_eq!(server.closed().within(LONG).unwrap(), Closed::Disconnected);
    });
    drop(listener);
    place.is_clean();
}

#[test]
fn devices_of_their_own_are_connected() {
    let place = Place::new(false);
    let other = SoftDevice::default();
    place.network.join(&other, ip("10.0.0.2")).unwrap();
    place.network.join(&other, ip("fd00::2")).unwrap();
    assert_eq!(place.cm.device_of(ip("fd00::2")).unwrap().1, 1);
    let context = other.device().open().unwrap();
    let listener = place.cm.listen("10.0.0.2:7174".parse().unwrap()).unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let incoming = listener.next().within(LONG).unwrap();
            let cq = context.create_cq(4).unwrap();
            let qp = context.alloc_pd().unwrap().rc(&cq).create().unwrap();
            incoming.accept(qp).unwrap().establish().within(LONG).unwrap()
        });
        let resolve = place.cm.resolve("10.0.0.2:7174".parse().unwrap());
        let target = resolve.source("10.0.0.1:0".parse().unwrap()).type_of_service(0x68).run();
        let target = target.within(LONG).unwrap();
        assert_eq!(target.addresses().unwrap().0.ip(), ip("10.0.0.1"));
        let connection = target.connect(place.queue_pair()).unwrap().establish().within(LONG).unwrap();
        let server = server.join().unwrap();
        assert_eq!(server.addresses().unwrap().0, "10.0.0.2:7174".parse().unwrap());
        drop((connection, server));
    });
    drop(listener);
    place.is_clean();
}

/// Refuses the `nth` command of those that are sent before their turn.
#[derive(Clone, Debug)]
struct TooEarly(Arc<(AtomicUsize, usize)>);

impl uverbs::cm::Watcher for TooEarly {
    fn before(&self, command: &uverbs::cm::Command<'_>) -> Result<(), Errno> {
        use uverbs::abi::cm::{CONNECT, INIT_QP_ATTR, RESOLVE_ADDR, RESOLVE_ROUTE};
        let (seen, nth) = &*self.0;
        let is_meant = [CONNECT, INIT_QP_ATTR, RESOLVE_ADDR, RESOLVE_ROUTE].contains(&command.number());
        let is_due = is_meant && seen.fetch_add(1, Ordering::Relaxed) == *nth;
        if is_due { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

#[test]
fn a_command_that_is_refused_before_its_turn_is_sent_again() {
    for iwarp in PROFILES {
        let place = Place::new(iwarp);
        let (listener, address) = place.listen();
        // The address, the route, the attributes for INIT, and the request, which over iWARP is sent in its turn.
        let count = if iwarp { 3 } else { 6 };
        for nth in 0..count {
            let early = TooEarly(Arc::new((AtomicUsize::new(0), nth)));
            let manager = place.network.manager_with(early.clone()).unwrap();
            thread::scope(|scope| {
                let server = scope.spawn(|| place.accept(listener.next().within(LONG).unwrap()));
                let target = manager.resolve(address).run().within(LONG).unwrap();
                let connect = target.connect(place.queue_pair()).unwrap();
                let client = connect.establish().within(LONG).unwrap();
                let server = server.join().unwrap();
                drop(client);
                assert_eq!(server.closed().within(LONG).unwrap(), Closed::Disconnected);
            });
            assert!(early.0.0.load(Ordering::Relaxed) > nth, "nothing was refused");
        }
        drop(listener);
        place.is_clean();
    }
}
