//! Exchanges with scripted peers.

use super::*;

const TEXT: &[u8; MESSAGE] = b"0000:000011:37a5f0:00000000000000000000ffffc0000201\0";

/// What `act` makes of a peer that follows `script`.
fn with<T>(
    script: impl FnOnce(TcpStream) + Send + 'static,
    act: impl FnOnce(&mut Peer) -> Outcome<T>,
) -> Outcome<T> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let other = thread::spawn(move || script(TcpStream::connect(address).expect("the listener")));
    let (timeout, stop) = (Duration::from_millis(200), Stop::default());
    let mut peer = Peer::accept(&listener, Duration::from_secs(10), &stop)?.expect("a client");
    peer.timeout = timeout;
    let result = act(&mut peer);
    drop(peer);
    other.join().expect("the script is followed");
    result
}

fn complaint(script: impl FnOnce(TcpStream) + Send + 'static) -> String {
    with(script, Peer::hear).expect_err("no endpoint").to_string()
}

fn say(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("it is sent");
}

#[test]
fn an_exchange_is_that_of_the_pingpong_programs() {
    let script = |mut client: TcpStream| {
        // In pieces, as TCP may deliver it.
        TEXT.chunks(20).for_each(|piece| {
            say(&mut client, piece);
            thread::sleep(Duration::from_millis(5));
        });
        let mut answer = [0; MESSAGE];
        client.read_exact(&mut answer).expect("the server's endpoint");
        assert_eq!(&answer, TEXT);
        say(&mut client, DONE);
    };
    let heard = with(script, |peer| {
        let endpoint = peer.hear()?.expect("no signal");
        peer.tell(&endpoint)?;
        Ok((endpoint.qp_num, peer.hear_done()?))
    });
    assert_eq!(heard.expect("a good exchange"), (0x11, true));
}

#[test]
fn what_is_no_endpoint_is_told() {
    for text in [&[b' '; MESSAGE], b"0000:000011:37a5f0:00000000000000000000ffffc0000201:", &[0xff; MESSAGE]]
    {
        let told = complaint(move |mut client| say(&mut client, text));
        assert!(told.contains("sent no endpoint but"), "{told}");
    }
    let told =
        complaint(|mut client| say(&mut client, b"0000:000011:37a5f0:00000000000000000000000000000000\0"));
    assert!(told.contains("neither LID nor GID"), "{told}");
}

#[test]
fn a_peer_that_stops_early_is_told() {
    let told = complaint(|mut client| say(&mut client, &TEXT[..51]));
    assert!(told.contains("went away after 51 of the 52 bytes of its endpoint"), "{told}");
    let told = complaint(drop);
    assert!(told.contains("went away after 0 of the 52 bytes"), "{told}");
    let told = complaint(|mut client| {
        say(&mut client, &TEXT[..5]);
        // Until the server gives up; that it does so with bytes unread is a reset.
        let _ = client.read(&mut [0]);
    });
    assert!(told.contains("did not send its endpoint in 200ms"), "{told}");
}

#[test]
fn another_last_word_is_told() {
    let told =
        with(|mut client| say(&mut client, b"gone\0"), Peer::hear_done).expect_err("not done").to_string();
    assert!(told.contains("sent \"gone\\x00\" in place of \"done\""), "{told}");
}

#[test]
fn no_client_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let told = Peer::accept(&listener, Duration::from_millis(30), &Stop::default()).expect_err("no client");
    assert_eq!(told.to_string(), "no client came in 30ms");
}
