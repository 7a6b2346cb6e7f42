//! Exchanges with scripted peers.

use super::*;

const TEXT: &[u8; MESSAGE] = b"0000:000011:37a5f0:00000000000000000000ffffc0000201\0";
const UNUSED: &[u8; MESSAGE] = b"0000:000000:000000:00000000000000000000000000000000\0";
const END: &[u8; EXTENDED] = b"0003:000011:000022:37a5f0:000033:00000000000000000000ffffc0000201\0";

/// The result of `act` with a peer that follows `script`.
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
    complaint_of(Words::Single, script)
}

fn complaint_of(words: Words, script: impl FnOnce(TcpStream) + Send + 'static) -> String {
    with(script, |peer| peer.hear(words)).expect_err("no endpoint").to_string()
}

/// The message of a client with `count` queue pairs.
fn shared(count: usize) -> Vec<u8> {
    (0..SHARED).flat_map(|at| if at < count { *TEXT } else { *UNUSED }).collect()
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
        say(&mut client, b"done\0");
    };
    let heard = with(script, |peer| {
        let addresses = peer.hear(Words::Single)?.expect("no signal");
        peer.tell(Words::Single, &addresses)?;
        Ok((addresses[0].endpoint.qp_num, addresses.len(), peer.hear_word(Words::Single.last())?))
    });
    assert_eq!(heard.expect("a good exchange"), (0x11, 1, true));
}

#[test]
fn endpoints_of_shared_receives_are_always_as_many() {
    for count in [1, 16, MOST as usize] {
        let script = move |mut client: TcpStream| {
            say(&mut client, &shared(count));
            let mut answer = vec![0; SHARED * MESSAGE];
            client.read_exact(&mut answer).expect("the server's endpoints");
            assert_eq!(answer, shared(count));
        };
        let heard = with(script, |peer| {
            let addresses = peer.hear(Words::Shared(count))?.expect("no signal");
            peer.tell(Words::Shared(count), &addresses)?;
            Ok(addresses.len())
        });
        assert_eq!(heard.expect("a good exchange"), count);
    }
}

#[test]
fn an_end_of_an_extended_connection_has_three_numbers() {
    let script = |mut client: TcpStream| {
        say(&mut client, END);
        let mut answer = [0; EXTENDED];
        client.read_exact(&mut answer).expect("the server's end");
        assert_eq!(&answer, END);
        say(&mut client, b"END\0");
    };
    let (address, heard) = with(script, |peer| {
        let addresses = peer.hear(Words::Extended)?.expect("no signal");
        peer.tell(Words::Extended, &addresses)?;
        Ok((addresses[0], peer.hear_word(Words::Extended.last())?))
    })
    .expect("a good exchange");
    let extended = address.extended.expect("it is one");
    assert_eq!((address.endpoint.lid, address.endpoint.qp_num, address.endpoint.psn), (3, 0x11, 0x37a5f0));
    assert_eq!((extended.sender, extended.srq, address.sender().qp_num), (0x22, 0x33, 0x22));
    assert!(heard);
}

#[test]
fn other_numbers_of_queue_pairs_are_told() {
    for (count, told) in [(0, "has 0 queue pairs"), (3, "has 3 queue pairs"), (5, "has 5 queue pairs")] {
        let found = complaint_of(Words::Shared(4), move |mut client| say(&mut client, &shared(count)));
        assert!(found.contains(told) && found.contains("here --qps is 4"), "{found}");
    }
    // The same number, but not the first ones.
    let gap = [&UNUSED[..], &shared(4)[..(SHARED - 1) * MESSAGE]].concat();
    for (lines, told) in [(4, "has 5 queue pairs; here --qps is 4"), (5, "neither LID nor GID")] {
        let gap = gap.clone();
        let found = complaint_of(Words::Shared(lines), move |mut client| say(&mut client, &gap));
        assert!(found.contains(told), "{found}");
    }
    // A client of one queue pair with its own receives sends no more than this.
    let found = complaint_of(Words::Shared(1), |mut client| say(&mut client, TEXT));
    assert!(found.contains("went away after 52 of the 13312 bytes of its endpoints"), "{found}");
}

#[test]
fn what_is_no_end_of_an_extended_connection_is_told() {
    // Too few digits, too many, or none.
    for text in [
        b"0003:000011:000022:37a5f0:00033:000000000000000000000ffffc0000201\0",
        b"0003:000011:0000022:37a5f0:00033:00000000000000000000ffffc0000201\0",
        b"0003:000011:+00022:37a5f0:000033:00000000000000000000ffffc0000201\0",
        b"0003:000011:000022:37a5f0:000033:00000000000000000000ffffc0000201:",
        b"0003:000011:000022:37a5f0:000033000000000000000000000ffffc0000201\0",
        &[0xff; EXTENDED],
        &[b':'; EXTENDED],
    ] {
        let told = complaint_of(Words::Extended, move |mut client| say(&mut client, text));
        assert!(told.contains("sent no endpoint but"), "{told}");
    }
    let nowhere = b"0000:000011:000022:37a5f0:000033:00000000000000000000000000000000\0";
    let told = complaint_of(Words::Extended, move |mut client| say(&mut client, nowhere));
    assert!(told.contains("neither LID nor GID"), "{told}");
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
        // Until the server ends; unread bytes at that time cause a reset.
        let _ = client.read(&mut [0]);
    });
    assert!(told.contains("did not send its endpoint in 200ms"), "{told}");
}

#[test]
fn another_last_word_is_told() {
    for (word, sent, shown) in [("done", b"gone\0", "gone\\x00"), ("done", b"done!", "done!")] {
        let told = with(|mut client| say(&mut client, sent), |peer| peer.hear_word(word)).map(drop);
        let told = told.expect_err("it is another word").to_string();
        assert!(told.contains(&format!("sent \"{shown}\" in place of \"{word}\"")), "{told}");
    }
}

#[test]
fn no_client_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let told = Peer::accept(&listener, Duration::from_millis(30), &Stop::default()).expect_err("no client");
    assert_eq!(told.to_string(), "no client came in 30ms");
}
