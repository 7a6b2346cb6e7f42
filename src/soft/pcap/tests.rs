//! Captures that the tests build.

use super::*;
use crate::soft::SoftDevice;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// A source that returns one of these pieces with each read, or an error, and counts the reads.
struct Slow(VecDeque<io::Result<Vec<u8>>>, Arc<Mutex<usize>>);

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        *self.1.lock().unwrap() += 1;
        let Some(piece) = self.0.pop_front() else { return Ok(0) };
        let mut piece = piece?;
        let now = piece.len().min(buffer.len());
        buffer[..now].copy_from_slice(&piece[..now]);
        if now < piece.len() {
            self.0.push_front(Ok(piece.split_off(now)));
        }
        Ok(now)
    }
}

fn slow(pieces: impl IntoIterator<Item = io::Result<Vec<u8>>>) -> (Slow, Arc<Mutex<usize>>) {
    let reads = Arc::default();
    (Slow(pieces.into_iter().collect(), Arc::clone(&reads)), reads)
}

fn pcap(link_type: u32) -> Vec<u8> {
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, link_type];
    words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

fn record(bytes: &[u8]) -> Vec<u8> {
    let words = [1_u32, 2, bytes.len() as u32, bytes.len() as u32 + 7];
    let head = words.iter().flat_map(|word| word.to_le_bytes());
    head.chain(bytes.iter().copied()).collect()
}

/// A block of pcapng; the body consists of words.
fn block(type_: u32, body: &[u32], tail: &[u8]) -> Vec<u8> {
    let length = (12 + 4 * body.len() + tail.len()) as u32;
    let words = [&[type_, length][..], body].concat();
    let head: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    [&head, tail, &length.to_le_bytes()].concat()
}

fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, &[0x1a2b_3c4d, 1, !0, !0], &[])
}

/// The frames of a source, and how it ends.
fn all(source: impl Read + Send + 'static) -> (Vec<Vec<u8>>, Result<(), CaptureError>) {
    let mut frames = Vec::new();
    let mut capture = match Capture::from_reader(source) {
        Ok(capture) => capture,
        Err(error) => return (frames, Err(error)),
    };
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => frames.push(frame.bytes.to_vec()),
            Ok(None) => return (frames, Ok(())),
            Err(error) => {
                assert!(matches!(capture.next_frame(), Ok(None)), "after an error there is nothing");
                return (frames, Err(error));
            }
        }
    }
}

#[test]
fn a_source_may_give_byte_by_byte() {
    for file in [
        &include_bytes!("../../../tests/golden/mixed.pcap")[..],
        include_bytes!("../../../tests/golden/mixed.pcapng"),
    ] {
        let (whole, end) = all(file);
        assert!(end.is_ok() && whole.len() > 1);
        for size in [1, 7, 4096] {
            let (source, _) = slow(file.chunks(size).map(|piece| Ok(piece.to_vec())));
            let (frames, end) = all(source);
            assert!(end.is_ok() && frames == whole, "{size} bytes at a time");
        }
    }
}

#[test]
fn a_record_larger_than_the_buffer_is_read() {
    let large = vec![7; 200_000];
    let file = [pcap(1), record(b"before"), record(&large), record(b"behind")].concat();
    let (frames, end) = all(io::Cursor::new(file));
    assert!(end.is_ok() && frames == [b"before".to_vec(), large, b"behind".to_vec()]);
    let endless = pcap(1).into_iter().chain([0; 8]).chain([0xff, 0xff, 0xff, 0x7f]);
    let source = io::Cursor::new(endless.collect::<Vec<_>>()).chain(io::repeat(0));
    assert!(matches!(all(source), (frames, Err(CaptureError::TooLarge)) if frames.is_empty()));
}

#[test]
fn what_came_before_a_failure_is_told_first() {
    let broken = || Err(io::Error::other("unplugged"));
    let cut = || record(b"frame")[..18].to_vec();
    let (source, _) = slow([Ok([pcap(1), record(b"one"), cut()].concat()), broken()]);
    let (frames, end) = all(source);
    assert!(matches!(end, Err(CaptureError::Io(error)) if error.to_string() == "unplugged"));
    assert_eq!(frames, [b"one"]);
    let (source, _) = slow([Ok(pcap(1)[..20].to_vec()), broken()]);
    assert!(matches!(all(source).1, Err(CaptureError::Io(_))));
    let interrupted = || Err(io::ErrorKind::Interrupted.into());
    let (source, _) = slow([interrupted(), Ok(pcap(1)), interrupted(), Ok(record(b"one"))]);
    assert!(matches!(all(source), (frames, Ok(())) if frames == [b"one"]));
    let (frames, end) = all(io::Cursor::new([pcap(1), record(b"one"), cut()].concat()));
    assert!(matches!(end, Err(CaptureError::Truncated)) && frames == [b"one"]);
}

#[test]
fn damage_is_told_where_it_is() {
    let interface = |link_type| block(1, &[link_type, 0], &[]);
    let packet = |id| block(6, &[id, 0, 5, 4, 4], b"good");
    let cases: [(&str, Vec<Vec<u8>>, usize, &str); 8] = [
        ("nothing", vec![], 0, "not a pcap or pcapng capture"),
        ("another file", vec![vec![b'x'; 100]], 0, "not a pcap or pcapng capture"),
        ("half a header", vec![pcap(1)[..23].to_vec()], 0, "not a pcap or pcapng capture"),
        ("half a section", vec![section()[..23].to_vec()], 0, "not a pcap or pcapng capture"),
        ("link type", vec![pcap(101)], 0, "link type 101 is not Ethernet (1)"),
        (
            "no interface",
            vec![section(), interface(1), packet(0), packet(1)],
            1,
            "the capture is damaged: a frame of no interface",
        ),
        (
            "interfaces of the section before",
            vec![section(), interface(1), packet(0), section(), packet(0)],
            1,
            "the capture is damaged: a frame of no interface",
        ),
        (
            "obsolete",
            vec![section(), interface(1), packet(0), block(2, &[0, 0, 0, 0, 0], &[])],
            1,
            "the capture is damaged: frames in obsolete packet blocks",
        ),
    ];
    for (what, file, frames, error) in cases {
        let (found, end) = all(io::Cursor::new(file.concat()));
        assert_eq!((found.len(), end.unwrap_err().to_string().as_str()), (frames, error), "{what}");
    }
    let mixed = [section(), interface(1), interface(101), packet(0), block(3, &[4], b"good"), packet(1)];
    let (frames, end) = all(io::Cursor::new(mixed.concat()));
    assert!(matches!(end, Err(CaptureError::LinkType(101))) && frames == [b"good", b"good"]);
}

#[test]
fn frames_have_their_length_and_time() {
    let mut capture = Capture::from_reader(io::Cursor::new([pcap(1), record(b"one")].concat())).unwrap();
    let frame = capture.next_frame().unwrap().unwrap();
    assert_eq!((frame.bytes, frame.original_length), (&b"one"[..], 10));
    assert_eq!(frame.timestamp, Some(Duration::from_micros(1_000_002)));
    // Parts of 2^-60 s: their product with 10^9 does not fit into 64 bits.
    let resolution = [9 | 1 << 16, 0x80 | 60, 0];
    let interface = block(1, &[&[1, 0][..], &resolution].concat(), &[]);
    let packet = block(6, &[0, 1 << 27 | 3 << 28, 0, 4, 4], b"good");
    let mut capture = Capture::from_reader(io::Cursor::new([section(), interface, packet].concat())).unwrap();
    assert_eq!(capture.next_frame().unwrap().unwrap().timestamp, Some(Duration::from_millis(3500)));
}

/// The frames that are played are those of `next_frame`, and no frame is delayed until the source has the next one.
#[test]
fn frames_are_played_as_they_are_there() {
    let device = SoftDevice::default();
    let frame = || record(&[0; 60]);
    let pieces = [pcap(1), [frame(), frame(), frame()[..9].to_vec()].concat(), frame()[9..].to_vec()];
    let (source, reads) = slow(pieces.into_iter().map(Ok));
    let mut capture = Capture::from_reader(source).unwrap();
    assert_eq!(device.play(&mut capture).unwrap(), 2);
    assert_eq!(*reads.lock().unwrap(), 2, "it did not wait for the third");
    assert_eq!(device.play(&mut capture).unwrap(), 1);
    assert_eq!(device.play(&mut capture).unwrap(), 0);
    let damaged = [
        section(),
        block(1, &[1, 0], &[]),
        block(6, &[0, 0, 5, 4, 4], b"good"),
        block(6, &[9, 0, 5, 4, 4], b"good"),
    ];
    let mut capture = Capture::from_reader(io::Cursor::new(damaged.concat())).unwrap();
    assert_eq!(device.play(&mut capture).unwrap(), 1);
    assert!(matches!(device.play(&mut capture), Err(CaptureError::Malformed("a frame of no interface"))));
    assert_eq!(device.play(&mut capture).unwrap(), 0);
}

proptest! {
    /// A packet that is taken without the parser is identical to the parser's; and every complete packet without options is taken in this
    /// way.
    #[test]
    fn plain_packets_are_those_of_the_parser(
        big_endian: bool, words: [u32; 4], frame in prop::collection::vec(any::<u8>(), 0..40), more in 0..3_usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3), cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut body: Vec<u8> = words.iter().flat_map(|value| word(*value)).collect();
        body.splice(12..12, word(frame.len() as u32));
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4) + 4 * more, 0);
        let length = word(12 + body.len() as u32);
        let mut data = [&word(6)[..], &length, &body, &length, b"behind"].concat();
        let is_whole = damage.is_empty() && cut.is_none();
        for (at, byte) in damage {
            let at = at.index(data.len());
            data[at] = byte;
        }
        data.truncate(cut.map_or(usize::MAX, |cut| cut.index(data.len())));
        let plain = record::plain_packet(&data, big_endian);
        if is_whole {
            prop_assert_eq!(plain.is_some(), more == 0);
        }
        if let Some((size, plain)) = plain {
            let parse = if big_endian { parse_block_be } else { parse_block_le };
            let Ok((rest, Block::EnhancedPacket(packet))) = parse(&data) else { panic!("the parser refuses it") };
            prop_assert_eq!(size, data.len() - rest.len());
            prop_assert_eq!(format!("{plain:?}"), format!("{packet:?}"));
        }
    }
}
