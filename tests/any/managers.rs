//! Several managers in a process: connections that move from one to another, and what reaches them there. Then a message that comes before
//! the acknowledgement.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::connections::{LONG, on_every_network};
use uverbs::ErrorKind;
use uverbs::cm::{Closed, SoftNetwork};

const SHORT: Duration = Duration::from_millis(20);

#[test]
fn a_connection_moves_to_another_manager_with_its_queue_pair() {
    on_every_network(|place| {
        for client_moves in [false, true] {
            let ((mut one, mut client), (mut two, mut server)) = place.pair();
            let other = (place.another)();
            let moves = if client_moves { &mut client } else { &mut server };
            moves.move_to(&other).unwrap();
            moves.move_to(&other).unwrap();
            assert_eq!(client.addresses().unwrap().0, server.addresses().unwrap().1);
            one.send(client.queue_pair(), b"x");
            assert_eq!((one.end().0, two.end().0), (77, 5));
            // Each side's wait reads the events of its own manager.
            thread::scope(|scope| {
                let leaves = scope.spawn(|| client.disconnect().within(LONG).unwrap());
                assert_eq!(server.closed().within(LONG).unwrap(), Closed::Disconnected);
                assert_eq!(leaves.join().unwrap(), Closed::Disconnected);
            });
        }
    });
}

#[test]
fn an_unread_event_moves_with_its_connection_while_another_thread_waits_there() {
    on_every_network(|place| {
        // Nobody waits for the other manager; a thread sleeps there.
        for is_read in [false, true] {
            let ((_one, client), (_two, mut server)) = place.pair();
            let other = (place.another)();
            let listener = other.listen(SocketAddr::new(place.address, 0)).unwrap();
            drop(client);
            // The end has arrived, and nobody has read it.
            thread::sleep(SHORT);
            thread::scope(|scope| {
                if is_read {
                    scope.spawn(|| {
                        let error = listener.next().within(Duration::from_secs(1)).unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::TimedOut);
                    });
                    thread::sleep(SHORT);
                }
                server.move_to(&other).unwrap();
                let start = std::time::Instant::now();
                assert_eq!(server.closed().within(LONG).unwrap(), Closed::Disconnected);
                assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
            });
            // The earlier manager's file is not needed.
            drop(server);
        }
    });
}

#[test]
fn a_connection_outlives_the_manager_from_which_it_came() {
    on_every_network(|place| {
        let first = (place.another)();
        let listener = first.listen(SocketAddr::new(place.address, 0)).unwrap();
        let address = listener.address().unwrap();
        thread::scope(|scope| {
            let (_end, connect) = place.connect(address);
            let client = scope.spawn(|| connect.establish().within(LONG).unwrap());
            let (_other, accept) = place.accept(listener.next().within(LONG).unwrap());
            let mut server = accept.establish().within(LONG).unwrap();
            server.move_to(&place.cm).unwrap();
            let client = client.join().unwrap();
            drop((listener, first));
            assert_eq!(client.closed().within(SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
            drop(client);
            assert_eq!(server.closed().within(LONG).unwrap(), Closed::Disconnected);
        });
    });
}

#[test]
fn a_connection_stays_where_it_is_if_the_other_manager_is_of_another_network() {
    on_every_network(|place| {
        let ((_one, client), (_two, mut server)) = place.pair();
        let error = server.move_to(&SoftNetwork::default().manager().unwrap()).unwrap_err();
        assert_eq!((error.kind(), error.op()), (ErrorKind::InvalidInput, "cm.move"));
        assert!(error.to_string().contains("not of one connection manager"), "{error}");
        drop(client);
        assert_eq!(server.closed().within(LONG).unwrap(), Closed::Disconnected);
    });
}

#[test]
fn a_notice_of_a_message_does_no_harm_when_the_acknowledgement_comes_as_well() {
    on_every_network(|place| {
        let (listener, address) = place.listen();
        for _ in 0..5 {
            thread::scope(|scope| {
                let (end, connect) = place.connect(address);
                let client = scope.spawn(|| connect.establish().within(LONG).unwrap());
                let (mut other, mut accept) = place.accept(listener.next().within(LONG).unwrap());
                other.receive(accept.queue_pair(), 3);
                let notifier = accept.notifier();
                if !place.is_iwarp {
                    assert_eq!(notifier.notify().unwrap_err().kind(), ErrorKind::InvalidInput);
                }
                let mut server = Some(scope.spawn(|| accept.establish().within(LONG).unwrap()));
                let mut ready = || server.take().map(|server| server.join().unwrap());
                let mut client = client.join().unwrap();
                // siw may leave a message in its socket that comes before its server is ready.
                let before = if place.is_iwarp { ready() } else { None };
                end.send(client.queue_pair(), b"early");
                assert_eq!(other.end().0, 3);
                notifier.notify().unwrap();
                let server = before.or_else(ready);
                notifier.notify().unwrap();
                drop(server);
                notifier.notify().unwrap();
            });
        }
    });
}
