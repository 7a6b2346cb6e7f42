//! Datagrams by the connection manager: look-ups and multicast groups, on the soft network and by the kernel's manager for the device whose
//! address the lane sets. iWARP has none.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use super::connections::{LONG, Place, on_every_network};
use crate::common::*;
use uverbs::cm::{ConnectError, Destination, Group, Incoming, Listener, Reason, Target as Found};
use uverbs::{
    Attributes, CompletionQueue, ConnectionOptions, Context, Datagram, ErrorKind, MULTICAST_QP,
    ProtectionDomain, QpState, Status, Ud, WcFlags,
};

/// The routing header before the data.
const HEADER: usize = 40;
/// The queue key of the connection manager.
const KEY: u32 = 0x0123_4567;

/// Runs a behaviour wherever a connection manager has datagrams.
fn on_every_network_of_datagrams(behaviour: impl Fn(&Place)) {
    on_every_network(|place| {
        if !place.is_iwarp {
            behaviour(place);
        }
    });
}

fn side(context: &Context) -> Side<Ud> {
    Side::new(context, |pd: &ProtectionDomain, cq: &CompletionQueue| pd.ud(cq).create().unwrap())
}

fn listen(place: &Place) -> (Listener<Ud>, SocketAddr) {
    let listener = place.cm.datagrams().listen(SocketAddr::new(place.address, 0)).unwrap();
    let address = listener.address().unwrap();
    assert_eq!(address.ip(), place.address);
    (listener, address)
}

fn find(place: &Place, address: SocketAddr) -> Found<Ud> {
    place.cm.datagrams().resolve(address).run().within(LONG).unwrap()
}

fn group(place: &Place, address: &str) -> uverbs::Result<Group> {
    let groups = place.cm.datagrams().group(address.parse().unwrap());
    groups.source(SocketAddr::new(place.address, 0)).run().within(LONG)
}

fn send(from: &mut Side<Ud>, to: &Destination, text: &[u8]) {
    from.memory.write(0, text).unwrap();
    let datagram = Datagram { immediate: Some(7), ..to.datagram() };
    from.send(1, datagram, 0..text.len());
}

fn text<const LEN: usize>(side: &Side<Ud>) -> [u8; LEN] {
    side.bytes::<LEN>(1000 + HEADER)
}

fn refusal(error: &ConnectError) -> (ErrorKind, Reason, Vec<u8>) {
    let rejection = error.rejection().expect("a rejection").clone();
    (error.kind(), rejection.reason, rejection.private_data)
}

/// Looks up, while `serve` has what arrives.
fn look_up<T>(
    place: &Place,
    (listener, address): &(Listener<Ud>, SocketAddr),
    serve: impl FnOnce(Incoming<Ud>) -> T,
) -> (Result<uverbs::cm::Service, ConnectError>, T) {
    let mut client = side(&place.context);
    let request = find(place, *address).look_up(&mut client.qp).unwrap();
    thread::scope(|scope| {
        let asks = scope.spawn(|| request.run().within(LONG));
        let served = serve(listener.next().within(LONG).unwrap());
        (asks.join().unwrap(), served)
    })
}

#[test]
fn a_look_up_finds_the_queue_pair_that_datagrams_reach() {
    on_every_network_of_datagrams(|place| {
        let (listener, address) = listen(place);
        let (mut client, mut server) = (side(&place.context), side(&place.context));
        let target = find(place, address);
        let (own, to) = target.addresses().unwrap();
        assert_eq!((own.ip(), to), (place.address, address));
        let request = target.look_up(&mut client.qp).unwrap().private_data(b"a question").unwrap();
        assert_eq!(client.qp.state().unwrap(), QpState::ReadyToSend);
        let service = thread::scope(|scope| {
            let asks = scope.spawn(|| request.run().within(LONG).unwrap());
            let incoming = listener.next().within(LONG).unwrap();
            assert!(incoming.private_data().starts_with(b"a question"));
            assert_eq!(incoming.device().unwrap().0.name(), place.context.device().name());
            assert_eq!(incoming.addresses().unwrap(), (address, own));
            let answer = incoming.accept(&mut server.qp).unwrap().private_data(b"an answer").unwrap();
            server.receive(5, 1000..1100);
            answer.send().unwrap();
            asks.join().unwrap()
        });
        assert!(service.private_data.starts_with(b"an answer"));
        let destination = service.destination;
        assert_eq!((destination.qp_num(), destination.qkey()), (server.qp.number(), KEY));
        send(&mut client, &destination, b"hello");
        let got = server.completion();
        assert_eq!((got.wr_id, got.status, got.len as usize), (5, Status::Success, HEADER + 5));
        assert_eq!((got.source_qp, u32::from_be(got.immediate)), (client.qp.number(), 7));
        assert!(got.flags.contains(WcFlags::GRH));
        assert_eq!(&text(&server), b"hello");
        assert_eq!(client.completion().status, Status::Success);
        // A destination outlives what it was found with.
        drop((listener, client));
        assert_eq!(
            destination.clone().address_handle().context().device().name(),
            place.context.device().name()
        );
    });
}

#[test]
fn private_data_of_look_ups_reaches_both_programs_and_too_much_of_it_is_refused_before() {
    on_every_network_of_datagrams(|place| {
        let place_of = listen(place);
        let (listener, address) = &place_of;
        let mut client = side(&place.context);
        let request = find(place, *address).look_up(&mut client.qp).unwrap();
        let error = request.private_data(&[7; 181]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("181 given"), "{error}");
        let request = find(place, *address).look_up(&mut client.qp).unwrap().private_data(&[7; 180]).unwrap();
        let service = thread::scope(|scope| {
            let asks = scope.spawn(|| request.run().within(LONG).unwrap());
            let incoming = listener.next().within(LONG).unwrap();
            assert_eq!(incoming.private_data(), [7; 180]);
            let mut server = side(&place.context);
            incoming.accept(&mut server.qp).unwrap().private_data(&[9; 136]).unwrap().send().unwrap();
            asks.join().unwrap()
        });
        assert_eq!(service.private_data, [9; 136]);
        // Too long an answer or refusal refuses the look-up without data.
        let mut server = side(&place.context);
        for is_answer in [true, false] {
            let (asked, error) = look_up(place, &place_of, |incoming| match is_answer {
                true => incoming.accept(&mut server.qp).unwrap().private_data(&[9; 137]).unwrap_err(),
                false => incoming.reject(&[9; 137]).unwrap_err(),
            });
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let (kind, reason, data) = refusal(&asked.unwrap_err());
            assert_eq!((kind, reason, data), (ErrorKind::Refused, Reason::Program, vec![0; 136]));
        }
    });
}

#[test]
fn a_refused_look_up_says_why() {
    on_every_network_of_datagrams(|place| {
        let place_of = listen(place);
        let mut server = side(&place.context);
        for step in 0..3 {
            let (asked, ()) = look_up(place, &place_of, |incoming| match step {
                0 => incoming.reject(b"not today").unwrap(),
                1 => drop(incoming),
                _ => drop(incoming.accept(&mut server.qp).unwrap()),
            });
            let (kind, reason, data) = refusal(&asked.unwrap_err());
            assert_eq!((kind, reason), (ErrorKind::Refused, Reason::Program));
            assert!(step > 0 || data.starts_with(b"not today"), "{data:?}");
        }
        let (listener, address) = place_of;
        drop(listener);
        let mut client = side(&place.context);
        let asked = find(place, address).look_up(&mut client.qp).unwrap().run().within(LONG);
        let (kind, reason, _) = refusal(&asked.unwrap_err());
        assert_eq!((kind, reason), (ErrorKind::Refused, Reason::NobodyListens));
    });
}

#[test]
fn a_dropped_listener_refuses_the_look_ups_that_nobody_has_taken() {
    on_every_network_of_datagrams(|place| {
        let (listener, address) = listen(place);
        let mut clients: Vec<_> = (0..3).map(|_| side(&place.context)).collect();
        thread::scope(|scope| {
            let asks: Vec<_> = clients
                .iter_mut()
                .map(|client| find(place, address).look_up(&mut client.qp).unwrap())
                .map(|request| scope.spawn(|| request.run().within(LONG).unwrap_err().kind()))
                .collect();
            thread::sleep(Duration::from_millis(100));
            drop(listener);
            for asked in asks {
                assert_eq!(asked.join().unwrap(), ErrorKind::Refused);
            }
        });
    });
}

#[test]
fn one_queue_pair_answers_the_look_ups_of_many_threads() {
    on_every_network_of_datagrams(|place| {
        let (listener, address) = listen(place);
        let mut server = side(&place.context);
        let number = server.qp.number();
        thread::scope(|scope| {
            for name in 0..4_u8 {
                scope.spawn(move || {
                    let mut client = side(&place.context);
                    for _ in 0..4 {
                        let request = find(place, address).look_up(&mut client.qp).unwrap();
                        let service = request.private_data(&[name]).unwrap().run().within(LONG).unwrap();
                        assert_eq!((service.private_data[0], service.destination.qp_num()), (name, number));
                    }
                });
            }
            for _ in 0..16 {
                let incoming = listener.next().within(LONG).unwrap();
                let name = [incoming.private_data()[0]];
                let answer = incoming.accept(&mut server.qp).unwrap().private_data(&name).unwrap();
                answer.send().unwrap();
            }
        });
    });
}

#[test]
fn an_unanswered_look_up_ends_with_the_callers_deadline() {
    on_every_network_of_datagrams(|place| {
        let (listener, address) = listen(place);
        let (mut client, mut server) = (side(&place.context), side(&place.context));
        let request = find(place, address).look_up(&mut client.qp).unwrap();
        let (start, patience) = (Instant::now(), Duration::from_millis(100));
        let error = request.run().within(patience).unwrap_err();
        let took = start.elapsed();
        assert_eq!((error.kind(), error.error().op()), (ErrorKind::TimedOut, "cm.look_up"));
        assert!(took >= patience && took < patience + Duration::from_millis(250), "{took:?}");
        // Nobody hears the answer.
        let incoming = listener.next().within(LONG).unwrap();
        incoming.accept(&mut server.qp).unwrap().send().unwrap();
        let error = listener.next().within(Duration::from_millis(20)).unwrap_err();
        assert_eq!((error.kind(), error.op()), (ErrorKind::TimedOut, "cm.next"));
    });
}

#[test]
fn a_queue_pair_that_could_not_hear_is_refused() {
    on_every_network_of_datagrams(|place| {
        let (_listener, address) = listen(place);
        let mut own_key = side(&place.context);
        own_key.qp.activate(&ConnectionOptions::new(1, 0), 0x11, 0).unwrap();
        let error = find(place, address).look_up(&mut own_key.qp).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("0x11"), "{error}");
        let error = group(place, "239.1.2.3").unwrap().join(&mut own_key.qp).unwrap_err();
        assert!(error.to_string().contains("queue key"), "{error}");
        let mut broken = side(&place.context);
        broken.qp.modify(&Attributes::to(QpState::Init).port(1).pkey_index(0).qkey(KEY)).unwrap();
        broken.qp.to_error().unwrap();
        let error = find(place, address).look_up(&mut broken.qp).unwrap_err();
        assert!(error.to_string().contains("must be new, or ready"), "{error}");
        // One with the right key may have been made ready by the program.
        let mut ready = side(&place.context);
        ready.qp.activate(&ConnectionOptions::new(1, 0), KEY, 0).unwrap();
        drop(find(place, address).look_up(&mut ready.qp).unwrap());
        let other = SoftDeviceOfItsOwn::new();
        let error = find(place, address).look_up(&mut other.side().qp).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("another device"), "{error}");
    });
}

/// A device that no manager knows.
struct SoftDeviceOfItsOwn(Context);

impl SoftDeviceOfItsOwn {
    fn new() -> Self {
        Self(uverbs::SoftDevice::default().open().unwrap())
    }

    fn side(&self) -> Side<Ud> {
        side(&self.0)
    }
}

#[test]
fn a_group_that_is_joined_by_its_address_hears_every_datagram() {
    on_every_network_of_datagrams(|place| {
        let (mut one, mut two, mut three) =
            (side(&place.context), side(&place.context), side(&place.context));
        let join = |side: &mut Side<Ud>| group(place, "239.1.2.3").unwrap().join(&mut side.qp).unwrap();
        let speaks = join(&mut one).only_send().run().within(LONG).unwrap();
        let (second, third) = (join(&mut two), join(&mut three));
        for side in [&mut two, &mut three] {
            side.receive(7, 1000..1100);
            side.receive(8, 1000..1100);
        }
        one.receive(9, 1000..1100);
        let (second, third) = (second.run().within(LONG).unwrap(), third.run().within(LONG).unwrap());
        let destination = speaks.destination();
        assert_eq!((destination.qp_num(), destination.qkey()), (MULTICAST_QP, KEY));
        assert_eq!(third.address(), "239.1.2.3".parse::<IpAddr>().unwrap());
        send(&mut one, destination, b"to all");
        for side in [&mut two, &mut three] {
            let got = side.completion();
            assert_eq!((got.wr_id, got.status, got.len as usize), (7, Status::Success, HEADER + 6));
            assert_eq!((got.source_qp, &text(side)), (one.qp.number(), b"to all"));
        }
        assert_eq!(one.completion().wr_id, 1);
        second.leave().unwrap();
        send(&mut one, destination, b"to the rest");
        assert_eq!((three.completion().wr_id, &text(&three)), (8, b"to the rest"));
        assert_eq!(two.cq.poll(&mut uverbs::Completion::batch::<4>()), 0, "it has left");
        assert_eq!(one.completion().wr_id, 1);
        assert_eq!(one.cq.poll(&mut uverbs::Completion::batch::<4>()), 0, "it only sends");
        let error = third.lost().within(Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(third);
        // It has left the queue pair too, which may be destroyed.
        three.qp.destroy().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn only_groups_are_joined_and_once_by_a_queue_pair() {
    on_every_network_of_datagrams(|place| {
        // The lane has a route to this group.
        let by_route = place.cm.datagrams().group("239.1.2.3".parse().unwrap()).run().within(LONG).unwrap();
        assert_eq!(by_route.device().unwrap().0.name(), place.context.device().name());
        let refused = |text: &str| group(place, text).unwrap_err();
        for text in ["192.0.2.9", "10.0.0.1", "fd00::1", "0.0.0.0", "255.255.255.255"] {
            let error = refused(text);
            assert_eq!((error.kind(), error.op()), (ErrorKind::InvalidInput, "cm.join"));
            assert!(error.to_string().contains("not the address of a group"), "{error}");
        }
        let (_listener, address) = listen(place);
        let to_group = SocketAddr::new("239.1.2.3".parse().unwrap(), address.port());
        let error = place.cm.datagrams().resolve(to_group).run().within(LONG).unwrap_err();
        assert!(error.to_string().contains("Datagrams::group"), "{error}");
        let mut side = side(&place.context);
        let join = |side: &mut Side<Ud>, text: &str| {
            group(place, text).unwrap().join(&mut side.qp).unwrap().run().within(LONG)
        };
        let member = join(&mut side, "239.1.2.3").unwrap();
        let error = join(&mut side, "239.1.2.3").unwrap_err();
        assert!(error.to_string().contains("in this group already"), "{error}");
        let other = join(&mut side, "239.1.2.4").unwrap();
        drop(member);
        let member = join(&mut side, "239.1.2.3").unwrap();
        other.leave().unwrap();
        // A membership keeps the queue pair.
        drop(side);
        member.leave().unwrap();
    });
}

#[test]
fn a_group_of_ipv6_is_refused_on_roce() {
    on_every_network_of_datagrams(|place| {
        let mut side = side(&place.context);
        let join = group(place, "ff12::5").unwrap().join(&mut side.qp).unwrap();
        let error = join.run().within(LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("no IPv6 groups"), "{error}");
    });
}

#[test]
fn whatever_is_dropped_at_any_step_leaves_nothing() {
    on_every_network_of_datagrams(|place| {
        let (listener, address) = listen(place);
        let mut client = side(&place.context);
        drop(place.cm.datagrams().resolve(address).run());
        drop(find(place, address));
        drop(find(place, address).look_up(&mut client.qp).unwrap());
        drop(find(place, address).look_up(&mut client.qp).unwrap().run());
        drop(listener.next());
        drop(place.cm.datagrams().group("239.1.2.3".parse().unwrap()).run());
        drop(group(place, "239.1.2.3").unwrap());
        drop(group(place, "239.1.2.3").unwrap().join(&mut client.qp).unwrap());
        drop(group(place, "239.1.2.3").unwrap().join(&mut client.qp).unwrap().run());
        let member =
            group(place, "239.1.2.3").unwrap().join(&mut client.qp).unwrap().run().within(LONG).unwrap();
        drop(member);
        client.qp.destroy().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn ports_of_datagrams_are_not_those_of_connections() {
    on_every_network_of_datagrams(|place| {
        let (listener, address) = listen(place);
        let connections = place.cm.listen(address).unwrap();
        let taken = place.cm.datagrams().listen(address).unwrap_err();
        assert_eq!(taken.errno(), Some(98), "{taken}");
        drop((listener, connections));
        drop(place.cm.datagrams().listener(address).backlog(1).reuse_address().listen().unwrap());
    });
}

#[test]
fn iwarp_has_no_datagrams_and_no_groups() {
    on_every_network(|place| {
        if !place.is_iwarp {
            return;
        }
        let no_datagrams = |error: uverbs::Error| {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains("no datagrams"), "{error}");
        };
        let address = SocketAddr::new(place.address, 7174);
        no_datagrams(place.cm.datagrams().resolve(address).run().within(LONG).unwrap_err());
        no_datagrams(place.cm.datagrams().listen(address).unwrap_err());
        no_datagrams(group(place, "239.1.2.3").unwrap_err());
    });
}
