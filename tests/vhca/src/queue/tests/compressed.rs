//! Compressed completions in the guest's memory.

use super::*;

/// A queue of eight entries with small completions of this kind.
fn compressed(small: u32) -> Cq {
    let mut input = create(3, 0);
    let context = input.part_mut(create_cq_in::cq_context);
    context.set(cqc::cqe_comp_en, 1_u32);
    context.set(cqc::mini_cqe_res_format, small);
    Cq::new(&input).unwrap()
}

fn packet(counter: u16, len: u32, hash: u32) -> CompletionEntry {
    let mut entry = completion(counter);
    entry.word(12, hash);
    entry.word(44, len);
    entry
}

#[test]
fn completions_that_come_together_are_compressed() {
    let memory = guest();
    let mut cq = compressed(0);
    let entry = |at: u64| {
        let mut entry = [0; 64];
        memory.read(RING + at * 64, &mut entry).unwrap();
        entry
    };
    for i in 0..3_u16 {
        assert_eq!(
            cq.post(&memory, packet(i, 100 + u32::from(i), 7 + u32::from(i)), true),
            Ok(Posted::Silently)
        );
    }
    assert_eq!(entry(0), [0; 64], "the rest of the burst is not there yet");
    assert_eq!(cq.arm(0), Posted::Silently);
    assert_eq!(cq.release(&memory), Ok(Posted::Event));
    let title = entry(0);
    assert_eq!(
        (title[63], title[60..62].to_vec(), title[44..48].to_vec()),
        (2 << 4 | 3 << 2, vec![0, 0], vec![0, 0, 0, 3])
    );
    let small: Vec<_> = entry(1)[..24].chunks(8).map(|small| (small[3], small[7])).collect();
    assert_eq!(small, [(7, 100), (8, 101), (9, 102)]);
    // One alone is an ordinary completion, and so is one whose counter does not follow.
    assert_eq!(cq.post(&memory, packet(3, 60, 1), true), Ok(Posted::Silently));
    assert_eq!(cq.post(&memory, packet(9, 61, 1), true), Ok(Posted::Silently));
    assert_eq!((entry(3)[63], entry(3)[47]), (2 << 4, 60));
    let error = CompletionEntry::new(Opcode::ResponderError, 0x1234, 10).error(Syndrome::Length);
    assert_eq!(cq.post(&memory, error, true), Ok(Posted::Silently));
    assert_eq!((entry(4)[63], entry(4)[47], entry(5)[63]), (2 << 4, 61, 14 << 4));
    assert_eq!(cq.context.num(cqc::producer_counter), 6);
}

#[test]
fn compressed_completions_have_room_or_are_lost() {
    let memory = guest();
    let mut cq = compressed(1);
    let posted: Vec<_> = (0..9).map(|i| cq.post(&memory, packet(i, 60, 0), true).unwrap()).collect();
    assert_eq!(posted[..8], [Posted::Silently; 8]);
    assert_eq!(posted[8], Posted::Overrun);
    assert_eq!(cq.context.num(cqc::producer_counter), 8);
}
