//! Commands as the drivers send them.

use super::*;
use crate::limits::Limits;

fn device() -> Device {
    let mut device = Device::new(Limits::default(), [2; 6]);
    device.drop_objects();
    device
}

/// A request with these bytes after its header, for an answer of this size; returns the status and what is after the header.
fn ask(device: &mut Device, code: u32, input: &[u8], answer: usize) -> (u32, Vec<u8>) {
    let mut bytes = vec![0; REQUEST];
    bytes.put_u32(4, code);
    bytes.put_u16(10, 0x55);
    bytes.put_u32(12, (REQUEST + input.len()) as u32);
    bytes.put_u16(24, 3);
    bytes.put_u32(28, answer as u32);
    bytes.extend(input);
    let (answer_bytes, _) = device.execute(Command::parse(bytes));
    assert_eq!((answer_bytes.len(), answer_bytes.u32(12)), (answer, answer as u32), "as asked");
    assert_eq!((answer_bytes.u32(4), answer_bytes.u16(8), answer_bytes.u16(10)), (code, 3, 0x55));
    (answer_bytes.u32(24), answer_bytes[ANSWER..].to_vec())
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn answers_have_the_size_that_is_asked_for() {
    let mut device = device();
    for size in [104, 112, 32, 4096] {
        let (status, out) = ask(&mut device, code::QUERY_CAPABILITIES, &[], size);
        assert_eq!((status, out.len()), (0, size - ANSWER));
    }
    assert_eq!(
        ask(&mut device, 0x60, &words(&[4096]), 40),
        (u32::MAX, vec![0; 8]),
        "there is no device memory"
    );
    device.faults.fail(code::CREATE_PD, Fault { status: 9, times: 1, after: 1 });
    let statuses = [(); 3].map(|()| ask(&mut device, code::CREATE_PD, &[0; 8], 48).0);
    assert_eq!(statuses, [0, 9, 0]);
}

#[test]
fn a_list_of_pages_comes_in_parts_and_belongs_to_one_object() {
    let mut device = device();
    // Three pages of 8 KiB, of which the first message has two.
    let mut first = words(&[20_000]);
    first.extend([100_u32, 1, 3, 2].iter().flat_map(|word| word.to_le_bytes()));
    first.extend(words(&[0x2_0000, 0x4_0000]));
    let (status, out) = ask(&mut device, code::CREATE_DMA_REGION, &first, 40);
    assert_eq!(status, 0x105);
    let list = out.u64(0);
    let pd = ask(&mut device, code::CREATE_PD, &[0; 8], 48).1.u64(0);
    let region = words(&[pd, 2, list, 0x7000, 0xf]);
    assert_eq!(ask(&mut device, code::CREATE_MR, &region, 48).0, 1, "it is not complete");
    let rest = words(&[list, 1, 0x6_0000]);
    assert_eq!(ask(&mut device, code::ADD_PAGES, &rest, 32).0, 0);
    assert_ne!(ask(&mut device, code::ADD_PAGES, &rest, 32).0, 0, "there are three");
    let (status, out) = ask(&mut device, code::CREATE_MR, &region, 48);
    assert_eq!(status, 0);
    assert_ne!(out.u32(8), out.u32(12), "keys differ");
    assert_ne!(ask(&mut device, code::CREATE_MR, &region, 48).0, 0, "the region has the list");
    assert_ne!(ask(&mut device, code::DESTROY_PD, &words(&[pd]), 32).0, 0, "a region uses it");
    assert_eq!(ask(&mut device, code::DESTROY_MR, &words(&[out.u64(0)]), 32).0, 0);
    assert_eq!(ask(&mut device, code::DESTROY_PD, &words(&[pd]), 32).0, 0);
}

#[test]
fn no_bytes_stop_the_device() {
    let mut device = device();
    let mut seed = 1_u64;
    for (_, code) in NAMES.iter().cycle().take(NAMES.len() * 50) {
        let input: Vec<u8> = (0..100)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Mostly small numbers, which some object may have.
                if seed >> 62 == 0 { (seed >> 40) as u8 } else { 0 }
            })
            .collect();
        ask(&mut device, *code, &input, 32 + (seed >> 50) as usize % 300);
    }
}
