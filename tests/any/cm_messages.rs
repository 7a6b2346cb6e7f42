//! Messages over connections, wherever there is a connection manager.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::connections::{LONG, Place, on_every_network};
use crate::common::*;
use uverbs::ErrorKind;
use uverbs::cm::{ConnectError, Listener, Messages, MessagesBuilder};

const RESET: Option<i32> = Some(104);

fn small() -> MessagesBuilder {
    Messages::builder().size(64).depth(3)
}

/// Both ends: that of the side that has connected, and the other.
fn pair(place: &Place, builders: [MessagesBuilder; 2]) -> [Messages; 2] {
    let (listener, address) = place.listen();
    let [one, two] = builders.map(|builder| builder.context(&place.context));
    thread::scope(|scope| {
        let server = scope.spawn(|| two.accept(listener.next().within(LONG).unwrap()).within(LONG).unwrap());
        let client = one.connect(place.cm.resolve(address)).within(LONG).unwrap();
        [client, server.join().unwrap()]
    })
}

fn take(messages: &Messages) -> Vec<u8> {
    messages.recv().within(LONG).unwrap().expect("a message").to_vec()
}

/// Sends everything back until the other side closes. Returns the number of messages.
fn echo(messages: &Messages) -> u64 {
    let mut count = 0;
    while let Some(message) = messages.recv().within(LONG).unwrap() {
        messages.send(&message).within(LONG).unwrap();
        count += 1;
    }
    count
}

fn serve(listener: &Listener) -> Result<u64, ConnectError> {
    Ok(echo(&Messages::accept(listener.next().within(LONG)?).within(LONG)?))
}

#[test]
fn messages_come_whole_and_in_their_order_whatever_their_size() {
    on_every_network(|place| {
        for depths in [[1, 1], [1, 4], [5, 2], [16, 16]] {
            let [client, server] =
                pair(place, depths.map(|depth| Messages::builder().size(512).depth(depth)));
            assert_eq!((client.max_size(), server.max_size()), (512, 512));
            let text = |number: usize| vec![number as u8; number * 37 % 513];
            thread::scope(|scope| {
                let echoes = scope.spawn(|| echo(&server));
                thread::scope(|scope| {
                    scope.spawn(|| {
                        (0..200).for_each(|number| client.send(&text(number)).within(LONG).unwrap());
                    });
                    for number in 0..200 {
                        assert_eq!(take(&client), text(number), "message {number} with {depths:?}");
                    }
                });
                client.close().within(LONG).unwrap();
                assert_eq!(echoes.join().unwrap(), 200);
            });
            assert!(server.recv().within(LONG).unwrap().is_none());
            let refused = server.send(b"x").within(LONG).unwrap_err();
            assert_eq!(refused.errno(), Some(32), "{refused}");
            server.close().within(LONG).unwrap();
        }
    });
}

#[test]
fn an_echo_needs_nothing_but_an_address() {
    on_every_network(|place| {
        let (listener, address) = place.listen();
        thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener));
            let client = Messages::connect(place.cm.resolve(address)).within(LONG).unwrap();
            let (own, peer) = client.addresses().unwrap();
            assert_eq!((own.ip(), peer), (place.address, address));
            assert_eq!(client.device().unwrap().0.name(), place.context.device().name());
            client.send(b"hello").within(LONG).unwrap();
            assert_eq!(take(&client), b"hello");
            client.close().within(LONG).unwrap();
            assert_eq!(server.join().unwrap().unwrap(), 1);
        });
    });
}

#[test]
fn the_side_that_has_accepted_may_send_first() {
    on_every_network(|place| {
        let [client, server] = pair(place, [small(), small()]);
        server.send(b"first").within(LONG).unwrap();
        assert_eq!(take(&client), b"first");
    });
}

#[test]
fn the_smaller_size_holds_and_a_longer_message_is_refused() {
    on_every_network(|place| {
        let [client, server] = pair(place, [small().size(100), small()]);
        for side in [&client, &server] {
            assert_eq!(side.max_size(), 64);
            let error = side.send(&[0; 65]).within(LONG).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        client.send(&[7; 64]).within(LONG).unwrap();
        client.send(&[]).within(LONG).unwrap();
        assert_eq!((take(&server), take(&server)), (vec![7; 64], vec![]));
        let (_listener, address) = place.listen();
        for wrong in [small().size(0), small().depth(0)] {
            let error = wrong.connect(place.cm.resolve(address)).within(LONG).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    });
}

#[test]
fn a_side_that_takes_nothing_is_not_sent_more_than_it_has_receives_for() {
    on_every_network(|place| {
        let [client, server] = pair(place, [small(), small()]);
        for number in 0..3_u8 {
            client.send(&[number]).within(LONG).unwrap();
        }
        let late = client.send(&[9]).within(Duration::from_millis(50)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        // Messages that the program keeps count, and the last one that it drops is told although it is not half of them.
        let kept: Vec<_> = (0..2).map(|_| server.recv().within(LONG).unwrap().unwrap()).collect();
        assert_eq!(take(&server), [2]);
        client.send(&[3]).within(LONG).unwrap();
        let late = client.send(&[9]).within(Duration::from_millis(50)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert_eq!(take(&server), [3]);
        assert_eq!((&*kept[0], &*kept[1]), (&[0][..], &[1][..]));
        drop(kept);
        for number in 4..20 {
            client.send(&[number]).within(LONG).unwrap();
            assert_eq!(take(&server), [number]);
        }
    });
}

#[test]
fn a_message_that_another_thread_drops_lets_the_other_side_send() {
    on_every_network(|place| {
        let [client, server] = pair(place, [small().depth(1), small().depth(1)]);
        let (give, given) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || given.into_iter().for_each(drop));
            scope.spawn(|| (0..100).for_each(|number: u8| client.send(&[number]).within(LONG).unwrap()));
            for number in 0..100 {
                let message = server.recv().within(LONG).unwrap().unwrap();
                assert_eq!(*message, [number]);
                give.send(message).unwrap();
            }
            drop(give);
        });
    });
}

#[test]
fn a_message_outlives_its_connection() {
    on_every_network(|place| {
        let [client, server] = pair(place, [small(), small()]);
        client.send(b"kept").within(LONG).unwrap();
        let message = server.recv().within(LONG).unwrap().unwrap();
        drop(server);
        assert_eq!(client.recv().within(LONG).unwrap_err().errno(), RESET);
        assert_eq!(&*message, b"kept");
    });
}

#[test]
fn a_side_that_leaves_without_closing_is_noticed_while_others_wait() {
    on_every_network(|place| {
        for server_leaves in [false, true] {
            let [client, server] = pair(place, [small(), small()]);
            let (leaves, stays) = if server_leaves { (server, client) } else { (client, server) };
            leaves.send(b"last").within(LONG).unwrap();
            assert_eq!(take(&stays), b"last");
            thread::scope(|scope| {
                let waits = scope.spawn(|| stays.recv().within(LONG).unwrap_err());
                thread::sleep(Duration::from_millis(20));
                drop(leaves);
                let (start, error) = (Instant::now(), waits.join().unwrap());
                assert_eq!(error.errno(), RESET, "{error}");
                assert!(start.elapsed() < LONG / 2);
            });
            assert_eq!(stays.send(b"x").within(LONG).unwrap_err().errno(), RESET);
            assert_eq!(stays.close().within(LONG).unwrap_err().errno(), RESET);
        }
    });
}

#[test]
fn both_sides_may_close_at_the_same_time() {
    on_every_network(|place| {
        for _ in 0..5 {
            let ends = pair(place, [small(), small()]);
            thread::scope(|scope| {
                for end in ends.map(|end| scope.spawn(|| end.close().within(LONG))) {
                    end.join().unwrap().unwrap();
                }
            });
        }
    });
}

#[test]
fn a_close_waits_for_the_messages_before_it() {
    on_every_network(|place| {
        let [client, server] = pair(place, [small(), small()]);
        for number in 0..3_u8 {
            client.send(&[number]).within(LONG).unwrap();
        }
        thread::scope(|scope| {
            let closes = scope.spawn(|| client.close().within(LONG).unwrap());
            for number in 0..3 {
                assert_eq!(take(&server), [number]);
            }
            assert!(server.recv().within(LONG).unwrap().is_none());
            closes.join().unwrap();
        });
        let [client, _server] = pair(place, [small(), small()]);
        let late = client.close().within(Duration::from_millis(50)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut, "nobody receives there");
    });
}

#[test]
fn a_side_of_another_kind_is_refused() {
    on_every_network(|place| {
        let (listener, address) = place.listen();
        thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener).unwrap_err().kind());
            let (_end, connect) = place.connect(address);
            let error = connect.private_data(b"hello").unwrap().establish().within(LONG).unwrap_err();
            assert_eq!((error.kind(), server.join().unwrap()), (ErrorKind::Refused, ErrorKind::Malformed));
        });
        thread::scope(|scope| {
            let client = scope.spawn(|| Messages::connect(place.cm.resolve(address)).within(LONG));
            let (_end, accept) = place.accept(listener.next().within(LONG).unwrap());
            let server = accept.establish().within(LONG).unwrap();
            assert_eq!(client.join().unwrap().unwrap_err().kind(), ErrorKind::Malformed);
            server.closed().within(LONG).unwrap();
        });
    });
}

#[test]
fn a_connect_that_is_not_answered_ends_by_its_deadline() {
    on_every_network(|place| {
        let before = Footprint::of_devices();
        let (listener, address) = place.listen();
        let soon = Duration::from_millis(50);
        let late = Messages::connect(place.cm.resolve(address)).within(soon).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        // Over iWARP the queues wait in another thread until the kernel destroys the identifier, which ends with the refusal.
        drop(listener);
        until("no queue is left", || Footprint::of_devices() == before);
    });
}

#[test]
fn many_threads_share_a_manager() {
    on_every_network(|place| {
        let (listener, address) = place.listen();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(serve(&listener).unwrap(), 50));
            }
            for name in 0..4_u8 {
                let cm = &place.cm;
                scope.spawn(move || {
                    let client = Messages::connect(cm.resolve(address)).within(LONG).unwrap();
                    for round in 0..50 {
                        client.send(&[name, round]).within(LONG).unwrap();
                        assert_eq!(take(&client), [name, round]);
                    }
                    client.close().within(LONG).unwrap();
                });
            }
        });
    });
}

#[cfg(feature = "tokio")]
mod tasks {
    use super::*;
    use std::net::SocketAddr;
    use tokio::time::{sleep, timeout};

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { timeout(LONG, work).await.expect("it ends") })
    }

    async fn ends(place: &Place, listener: &Listener, address: SocketAddr) -> [Messages; 2] {
        let server = async { small().accept(listener.next().await.unwrap()).await.unwrap() };
        let client = async { small().connect(place.cm.resolve(address)).await.unwrap() };
        let (server, client) = tokio::join!(server, client);
        [client, server]
    }

    #[test]
    fn tasks_of_one_thread_send_and_receive() {
        on_every_network(|place| {
            let (listener, address) = place.listen();
            run(async {
                let [client, server] = ends(place, &listener, address).await;
                let echo = async {
                    while let Some(message) = server.recv().await.unwrap() {
                        server.send(&message).await.unwrap();
                    }
                };
                let sends = async {
                    for number in 0..100_u8 {
                        client.send(&[number]).await.unwrap();
                    }
                };
                let receives = async {
                    for number in 0..100_u8 {
                        assert_eq!(*client.recv().await.unwrap().unwrap(), [number]);
                    }
                };
                let talk = async {
                    tokio::join!(sends, receives);
                };
                tokio::select! {
                    () = echo => panic!("the client has not closed"),
                    () = talk => {}
                }
                let (closed, end) = tokio::join!(client.close(), server.recv());
                closed.unwrap();
                assert!(end.unwrap().is_none());
            });
        });
    }

    #[test]
    fn a_dropped_wait_loses_no_message_and_an_idle_task_notices_the_end() {
        on_every_network(|place| {
            let (listener, address) = place.listen();
            run(async {
                let [client, server] = ends(place, &listener, address).await;
                for number in 0..20_u8 {
                    assert!(timeout(Duration::from_millis(1), server.recv()).await.is_err(), "nothing yet");
                    let text = [number];
                    let (sent, message) = tokio::join!(client.send(&text), server.recv());
                    sent.unwrap();
                    assert_eq!(*message.unwrap().unwrap(), [number]);
                }
                let leave = async {
                    sleep(Duration::from_millis(20)).await;
                    drop(client);
                };
                let ((), error) = tokio::join!(leave, server.recv());
                assert_eq!(error.unwrap_err().errno(), RESET);
            });
        });
    }

    #[test]
    fn a_thread_and_a_task_of_another_thread_wait_for_the_same_manager() {
        on_every_network(|place| {
            let (listener, address) = place.listen();
            thread::scope(|scope| {
                let server = scope.spawn(|| serve(&listener));
                run(async {
                    let client = Messages::connect(place.cm.resolve(address)).await.unwrap();
                    for number in 0..50_u8 {
                        client.send(&[number]).await.unwrap();
                        assert_eq!(*client.recv().await.unwrap().unwrap(), [number]);
                    }
                    client.close().await.unwrap();
                });
                assert_eq!(server.join().unwrap().unwrap(), 50);
            });
        });
    }
}
