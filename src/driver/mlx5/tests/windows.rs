//! Binds and invalidates: the requests are identical to those that stock libmlx5 was observed to write.

use uverbs_abi::types::AccessFlags;

use super::*;
#[cfg(feature = "raw")]
use crate::driver::completion::Fields;
use crate::driver::request::Binding;
use crate::driver::request::MESSAGES;
use crate::driver::seam::{Lower, SendRing};

const BINDING: Binding = Binding {
    addr: 0x0102_0304_0506_0708,
    length: 0x0a00,
    lkey: 0x99,
    rkey: 0x0000_1207,
    new_rkey: 0x0000_1208,
    access: AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ).bits(),
    is_type_1: false,
};

fn bench(form: Form) -> Bench {
    let mut bench = Bench::of(form, 0, &cap(16, 1, 1, 0));
    bench.sends.set_ready(true);
    bench
}

fn words(bench: &Bench, block: usize, units: usize) -> Vec<u32> {
    let bytes = bench.ring(block, units * 16);
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

fn post(bench: &mut Bench, opcode: Opcode<'_>, flags: SendFlags) -> Result<(), Refused> {
    bench.sends.put(&Request { wr_id: 7, flags, opcode, data: pieces(&[]), head: None })
}

/// The words of a change: what follows the control segment.
fn change(flags: u32, list: u32, mask: u32, context: [u32; 8], entry: Option<[u32; 4]>) -> Vec<u32> {
    let mut words = vec![flags << 24, list << 16, 0, mask];
    words.resize(12, 0);
    words.extend(context);
    words.resize(28, 0);
    if let Some(entry) = entry {
        words.extend(entry);
        words.resize(44, 0);
    }
    words
}

#[test]
fn a_bind_is_of_either_type_and_of_any_rights() {
    let entry = [0x0a00, 0x99, 0x0102_0304, 0x0506_0708];
    let two = [0x3000, 0x0012_3408, 0, 0, 0x0102_0304, 0x0506_0708, 0, 0x0a00];
    let one = [0x7800, 0xffff_ff08, 0, 0, 0, 0, 0, 0x0a00];
    let all = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let all = all | AccessFlags::REMOTE_ATOMIC | AccessFlags::ZERO_BASED;
    for (form, binding, change) in [
        (Form::Messages, BINDING, change(0xb0, 4, 0x203c_6041, two, Some(entry))),
        (
            Form::Extended,
            Binding { access: all.bits(), is_type_1: true, ..BINDING },
            change(0x90, 4, 0x203c_2041, one, Some(entry)),
        ),
    ] {
        let mut bench = bench(form);
        post(&mut bench, Opcode::Bind(binding), SendFlags::SIGNALED).unwrap();
        assert_eq!(words(&bench, 0, 12), [&[0x25, 0x1234 << 8 | 12, 8, 0x1207], &change[..]].concat());
        bench.complete(CQE_REQ, 0, |cqe| cqe.sop_drop_qpn = 0x2500_1234.into());
        let mut batch = Completion::batch::<1>();
        assert_eq!(poll(&mut bench.queue, &mut batch), 1);
        assert_eq!((batch[0].wr_id, batch[0].opcode), (7, wc_opcode::BIND_MW));
    }
}

#[test]
fn a_key_is_taken_away_by_a_bind_to_nothing_or_an_invalidate() {
    let free = |key: u32| [0x4000_0000, 0xffff_ff00 | key, 0, 0, 0, 0, 0, 0];
    let unbind = Binding { length: 0, is_type_1: true, ..BINDING };
    for (opcode, key, change, done) in [
        (
            Opcode::LocalInvalidate(0x1208),
            0x1208,
            change(0x98, 0, 0x2000_6000, free(0), None),
            wc_opcode::LOCAL_INV,
        ),
        (Opcode::Bind(unbind), 0x1207, change(0x90, 0, 0x2000_2000, free(8), None), wc_opcode::BIND_MW),
    ] {
        let mut bench = bench(Form::Messages);
        post(&mut bench, opcode, SendFlags::SIGNALED).unwrap();
        assert_eq!(words(&bench, 0, 8), [&[0x25, 0x1234 << 8 | 8, 8, key], &change[..]].concat());
        bench.complete(CQE_REQ, 0, |cqe| cqe.sop_drop_qpn = 0x2500_1234.into());
        let mut batch = Completion::batch::<1>();
        assert_eq!((poll(&mut bench.queue, &mut batch), batch[0].opcode), (1, done));
    }
}

/// Bindings read in the queue which of the two it was, by either path.
#[cfg(feature = "raw")]
#[test]
fn which_change_it_was_is_read_where_it_lies() {
    let mut bench = bench(Form::Messages);
    let mut place = super::super::Unread::default();
    let opcodes = [Opcode::LocalInvalidate(1), Opcode::Bind(BINDING), Opcode::Send];
    let wanted = [wc_opcode::LOCAL_INV, wc_opcode::BIND_MW, wc_opcode::SEND];
    for (number, (opcode, wanted)) in opcodes.into_iter().zip(wanted).enumerate() {
        let place_of = bench.sends.next_slot() as u16;
        post(&mut bench, opcode, SendFlags::SIGNALED).unwrap();
        let code = if number < 2 { 0x2500_1234 } else { 0x0a00_1234 };
        bench.complete(CQE_REQ, place_of, |cqe| cqe.sop_drop_qpn = code.into());
        if bench.queue.short_unread(|| true, &mut place).is_err() {
            bench.queue.next_unread(|| true, &mut place).unwrap();
        }
        assert_eq!((place.wr_id(), place.opcode()), (7, wanted));
    }
}

#[test]
fn the_message_behind_a_change_waits_for_it() {
    let mut bench = bench(Form::Messages);
    let (none, fence) = (SendFlags::empty(), SendFlags::FENCE);
    let mut flags = Vec::new();
    for (opcode, asked) in [
        (Opcode::LocalInvalidate(1), none),
        (Opcode::LocalInvalidate(2), none),
        (Opcode::Send, none),
        (Opcode::Send, none),
        (Opcode::Bind(BINDING), fence),
        (Opcode::Send, fence),
        (Opcode::Send, none),
    ] {
        let block = bench.sends.next_slot() as usize;
        post(&mut bench, opcode, asked).unwrap();
        flags.push(words(&bench, block, 1)[2]);
    }
    assert_eq!(flags, [0, 0x20, 0x20, 0, 0x80, 0x80, 0]);
}

/// Also if what was between them is discarded, or was refused, by either path.
#[test]
fn a_message_waits_for_the_change_that_is_before_it_in_the_ring() {
    let none = SendFlags::empty();
    let flags = |bench: &mut Bench, is_short: bool| {
        let block = bench.sends.next_slot() as usize;
        let short = |bench: &mut Bench| {
            let mut batch = bench.sends.one::<false, MESSAGES>();
            batch.put(7, none, &Opcode::Send, None, &pieces(&[]))
        };
        if !is_short || short(bench).is_err() {
            post(bench, Opcode::Send, none).unwrap();
        }
        words(bench, block, 1)[2]
    };
    for is_short in [false, true] {
        let mut bench = bench(Form::Messages);
        post(&mut bench, Opcode::LocalInvalidate(1), none).unwrap();
        bench.sends.publish();
        post(&mut bench, Opcode::LocalInvalidate(2), none).unwrap();
        bench.sends.rewind();
        assert_eq!(flags(&mut bench, is_short), 0x20, "the first invalidate is before it");
        bench.sends.publish();
        post(&mut bench, Opcode::LocalInvalidate(2), none).unwrap();
        bench.sends.rewind();
        assert_eq!(flags(&mut bench, is_short), 0, "a message is before it");

        post(&mut bench, Opcode::LocalInvalidate(3), none).unwrap();
        let too_much = [PIECE; 9];
        let request = Request {
            wr_id: 7,
            flags: none,
            opcode: Opcode::Bind(BINDING),
            data: pieces(&too_much),
            head: None,
        };
        assert_eq!(bench.sends.put(&request), Err(Refused::TooLarge));
        assert_eq!(flags(&mut bench, is_short), 0x20, "what was refused is not there");
    }
}

#[test]
fn what_cannot_be_said_is_refused() {
    let mut bench = bench(Form::Messages);
    let large = |length| Opcode::Bind(Binding { length, ..BINDING });
    assert_eq!(post(&mut bench, large((1 << 31) + 1), SendFlags::empty()), Err(Refused::Lacks));
    assert_eq!(bench.sends.next_slot(), 0);
    assert_eq!(post(&mut bench, large(1 << 31), SendFlags::empty()), Ok(()));
    assert_eq!(words(&bench, 0, 12)[32], 0x8000_0000);
    let mut bench = self::bench(Form::Datagrams);
    assert_eq!(post(&mut bench, Opcode::Bind(BINDING), SendFlags::empty()), Err(Refused::Lacks));
}

#[test]
fn there_is_no_more_room_after_a_change_of_a_key_than_before() {
    let mut bench = bench(Form::Messages);
    let places = bench.sends.slots() as u32;
    post(&mut bench, Opcode::LocalInvalidate(0x1207), SendFlags::empty()).unwrap();
    post(&mut bench, Opcode::Send, SendFlags::empty()).unwrap();
    bench.sends.publish();
    let mut more = 0;
    while more < places && post(&mut bench, Opcode::Send, SendFlags::empty()).is_ok() {
        more += 1;
    }
    assert!(more < places - 2, "{more} more requests of a block each in a ring of {places} blocks");
}
