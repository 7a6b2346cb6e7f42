//! Look-ups and groups on the soft network, with what happens to no test on a kernel at the right moment: late and lost messages, a device
//! that is removed at each step, a listener with more look-ups than it takes.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use uverbs::cm::{Listener, LookUp, Lost, Manager, Reason, SoftNetwork};
use uverbs::{Context, ErrorKind, QueuePair, SoftDevice, Ud};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);

struct Place {
    network: SoftNetwork,
    device: SoftDevice,
    context: Context,
    cm: Manager,
}

impl Place {
    fn new() -> Self {
        let (network, device) = (SoftNetwork::default(), SoftDevice::default());
        network.join(&device, ip("10.0.0.1")).unwrap();
        let (cm, context) = (network.manager().unwrap(), device.device().open().unwrap());
        Self { network, device, context, cm }
    }

    fn queue_pair(&self) -> QueuePair<Ud> {
        let cq = self.context.create_cq(8).unwrap();
        self.context.alloc_pd().unwrap().ud(&cq).create().unwrap()
    }

    fn listen(&self, backlog: u32) -> (Listener<Ud>, SocketAddr) {
        let listener = self.cm.datagrams().listener(SocketAddr::new(ip("10.0.0.1"), 0));
        let listener = listener.backlog(backlog).listen().unwrap();
        let address = listener.address().unwrap();
        (listener, address)
    }

    fn look_up(&self, cm: &Manager, address: SocketAddr) -> LookUp {
        let target = cm.datagrams().resolve(address).run().within(LONG).unwrap();
        target.look_up(&mut self.queue_pair()).unwrap()
    }

    fn is_clean(&self) {
        assert_eq!(self.network.identifiers(), 0);
        let left = self.device.resources();
        assert_eq!((left.queue_pairs, left.address_handles), (0, 0));
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_late_answer_reaches_its_client_and_a_cancelled_client_gets_none() {
    let place = Place::new();
    let (listener, address) = place.listen(0);
    let mut server = place.queue_pair();
    place.network.hold();
    thread::scope(|scope| {
        let client = scope.spawn(|| place.look_up(&place.cm, address).run().within(LONG).unwrap());
        assert_eq!(listener.next().within(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        place.network.release();
        let answer = listener.next().within(LONG).unwrap().accept(&mut server).unwrap();
        place.network.hold();
        answer.send().unwrap();
        thread::sleep(SHORT);
        assert!(!client.is_finished());
        place.network.release();
        assert_eq!(client.join().unwrap().destination.qp_num(), server.number());
    });
    place.network.hold();
    let error = place.look_up(&place.cm, address).run().within(SHORT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    place.network.release();
    assert_eq!(listener.next().within(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    drop((listener, server));
    place.is_clean();
}

#[test]
fn each_message_of_a_look_up_may_be_lost() {
    for answer_is_lost in [false, true] {
        let place = Place::new();
        let (listener, address) = place.listen(0);
        let mut server = place.queue_pair();
        let look_up = place.look_up(&place.cm, address);
        place.network.lose(usize::from(!answer_is_lost));
        thread::scope(|scope| {
            let client = scope.spawn(|| look_up.run().within(LONG));
            if answer_is_lost {
                let answer = listener.next().within(LONG).unwrap().accept(&mut server).unwrap();
                place.network.lose(1);
                answer.send().unwrap();
            }
            let error = client.join().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.rejection()), (ErrorKind::TimedOut, None));
            assert!(error.to_string().contains("does not answer"), "{error}");
        });
        drop((listener, server));
        place.is_clean();
    }
}

#[test]
fn more_look_ups_than_the_backlog_are_refused() {
    let place = Place::new();
    let (listener, address) = place.listen(2);
    // Whoever waits reads the events: nobody reads here before all have asked.
    let look_ups: Vec<_> = (0..5)
        .map(|_| {
            let cm = place.network.manager().unwrap();
            place.look_up(&cm, address)
        })
        .collect();
    let mut server = place.queue_pair();
    thread::scope(|scope| {
        let clients: Vec<_> =
            look_ups.into_iter().map(|look_up| scope.spawn(|| look_up.run().within(LONG))).collect();
        thread::sleep(Duration::from_millis(100));
        let mut served = 0;
        while let Ok(incoming) = listener.next().within(Duration::from_millis(100)) {
            incoming.accept(&mut server).unwrap().send().unwrap();
            served += 1;
        }
        let ends: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        let refused = ends.iter().filter_map(|end| end.as_ref().err()).collect::<Vec<_>>();
        assert_eq!((served, refused.len()), (2, 3));
        for error in refused {
            assert_eq!(error.rejection().expect("a refusal").reason, Reason::Program);
        }
    });
    drop((listener, server));
    place.is_clean();
}

#[test]
fn a_device_that_is_removed_ends_every_step_of_a_look_up() {
    let gone = ErrorKind::Disassociated;
    // Resolved, asked, taken, accepted.
    for step in 0..4 {
        let place = Place::new();
        let (listener, address) = place.listen(0);
        let (mut one, mut two) = (place.queue_pair(), place.queue_pair());
        let target = place.cm.datagrams().resolve(address).run().within(LONG).unwrap();
        if step == 0 {
            place.device.unplug();
            assert_eq!(target.look_up(&mut one).unwrap_err().kind(), gone);
        } else {
            let look_up = target.look_up(&mut one).unwrap();
            thread::scope(|scope| {
                let client = scope.spawn(|| look_up.run().within(LONG).unwrap_err());
                let incoming = listener.next().within(LONG).unwrap();
                match step {
                    1 => {
                        place.device.unplug();
                        drop(incoming);
                    }
                    2 => {
                        place.device.unplug();
                        assert_eq!(incoming.accept(&mut two).unwrap_err().kind(), gone);
                    }
                    _ => {
                        let answer = incoming.accept(&mut two).unwrap();
                        place.device.unplug();
                        assert_eq!(answer.send().unwrap_err().kind(), gone);
                    }
                }
                assert_eq!(client.join().unwrap().kind(), gone);
            });
        }
        assert_eq!(listener.next().within(LONG).unwrap_err().kind(), gone);
        drop((listener, one, two));
        place.is_clean();
    }
}

#[test]
fn a_device_that_is_removed_ends_every_step_of_a_membership() {
    let gone = ErrorKind::Disassociated;
    // Found, prepared, joined; left or dropped after that.
    for step in 0..4 {
        let place = Place::new();
        let mut qp = place.queue_pair();
        let group = place.cm.datagrams().group(ip("239.1.2.3")).run().within(LONG).unwrap();
        if step == 0 {
            place.device.unplug();
            assert_eq!(group.join(&mut qp).unwrap_err().kind(), gone);
        } else {
            let join = group.join(&mut qp).unwrap();
            if step == 1 {
                place.device.unplug();
                assert_eq!(join.run().within(LONG).unwrap_err().kind(), gone);
            } else {
                let member = join.run().within(LONG).unwrap();
                place.device.unplug();
                for _ in 0..2 {
                    assert_eq!(member.lost().within(LONG).unwrap(), Lost::Device);
                }
                if step == 2 {
                    member.leave().unwrap();
                }
            }
        }
        drop(qp);
        place.is_clean();
    }
}

#[test]
fn datagrams_listen_on_any_address() {
    let place = Place::new();
    place.network.join(&place.device, ip("fd00::1")).unwrap();
    for (any, own) in [("0.0.0.0:0", "10.0.0.1"), ("[::]:0", "fd00::1")] {
        let listener = place.cm.datagrams().listen(any.parse().unwrap()).unwrap();
        let address = SocketAddr::new(ip(own), listener.address().unwrap().port());
        let mut server = place.queue_pair();
        thread::scope(|scope| {
            let client = scope.spawn(|| place.look_up(&place.cm, address).run().within(LONG).unwrap());
            let incoming = listener.next().within(LONG).unwrap();
            assert_eq!(incoming.addresses().unwrap().0, address);
            incoming.accept(&mut server).unwrap().send().unwrap();
            assert_eq!(client.join().unwrap().destination.qp_num(), server.number());
        });
    }
    // No address of that family is there for a group.
    let empty = SoftNetwork::default();
    let error = empty.manager().unwrap().datagrams().group(ip("239.1.2.3")).run().within(LONG).unwrap_err();
    assert_eq!(error.errno(), Some(101), "{error}");
    place.is_clean();
}
