//! Page lists in all forms, in memory with the driver's layout.

use super::*;
use crate::admin::tests::{BUFFER, Guest};
use crate::bytes::BytesMut as _;

/// A region of pages in reverse order.
fn payload(pd: u16, count: u64, iova: u64, length: u64) -> ([u8; 60], Vec<u8>, u64) {
    let start = 0x10_0000;
    let list = (0..count).rev().flat_map(|page| (start + page * 4096_u64).to_le_bytes()).collect();
    let mut payload = [0; 60];
    payload.put_u16(0, pd);
    payload.put_u64(36, length);
    payload.put(44, &[12, 7]);
    payload.put_u64(52, iova);
    (payload, list, start)
}

#[test]
fn addresses_lead_through_the_pages_in_their_order() {
    let mut guest = Guest::new();
    // From the middle of a page to the middle of another.
    let (mut payload, list, start) = payload(guest.pd, 3, 0x7000_0800, 2 * 4096);
    payload.put(4, &list);
    let key = guest.run(7, &payload).unwrap().u32(8);
    let device = &guest.device;
    let region = device.regions.get(key).unwrap();
    let data: Vec<u8> = (0..8192_u32).map(|i| (i % 251) as u8).collect();
    region.write(&device.memory, 0x7000_0800, &data).unwrap();
    let mut back = vec![0; 8192];
    region.read(&device.memory, 0x7000_0800, &mut back).unwrap();
    assert_eq!(back, data);
    assert_eq!(guest.bytes(start + 2 * 4096 + 0x800, 0x800), data[..0x800]);
    assert_eq!(guest.bytes(start + 4096, 4096), data[0x800..0x1800]);
    assert_eq!(guest.bytes(start, 0x800), data[0x1800..]);
}

#[test]
fn what_a_key_allows() {
    let mut guest = Guest::new();
    let (start, key, remote) = guest.region(1, access::LOCAL_WRITE | access::REMOTE_READ);
    let pd = guest.pd;
    let device = &guest.device;
    let local =
        |key, address, len, permissions| device.local_region(pd, key, address, len, permissions).is_some();
    assert!(local(key, start, 4096, access::LOCAL_WRITE));
    assert!(
        !local(key, start, 4097, 0)
            && !local(key, start - 1, 1, 0)
            && !local(key, start, 1, access::REMOTE_WRITE)
    );
    assert!(!local(key, u64::MAX, u64::MAX, 0) && !local(remote, start, 1, 0));
    let peer = |key, permissions| device.remote_region(pd, key, start, 8, permissions).is_some();
    assert!(peer(remote, access::REMOTE_READ));
    assert!(!peer(remote, access::REMOTE_WRITE) && !peer(key, access::REMOTE_READ));
    assert!(device.local_region(pd + 1, key, start, 8, 0).is_none());
}

#[test]
fn lists_in_pieces_are_the_same_as_lists_in_one() {
    let mut guest = Guest::new();
    // The list has 512 numbers per page: three pages of list, in no order.
    let count = 1100;
    let (mut payload, list, _) = payload(guest.pd, count, 0, count * 4096);
    let pieces = [0x9000, 0x8000, 0xa000_u64];
    list.chunks(4096).zip(pieces).for_each(|(piece, at)| guest.put(at, piece));
    let addresses: Vec<_> = pieces.iter().flat_map(|at| at.to_le_bytes()).collect();
    guest.put(BUFFER, &addresses);
    payload.put_u32(4, 3 * 8 + 12);
    payload.put_u64(8, BUFFER);
    let key = guest.run_with(7, 2 | 4, &payload).unwrap().u32(8);
    let numbers: Vec<_> = list.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
    assert_eq!(guest.device.regions.get(key).unwrap().pages, numbers);
}

#[test]
fn a_chain_of_lists_goes_on_behind_510_pieces() {
    let command = |indirect: u64| {
        let mut payload = [0; 60];
        payload.put_u64(8, indirect);
        Command { id: 0, opcode: 7, flags: 2 | 4, payload }
    };
    let memory = Memory::zeroed(&[(0, 0x10_0000)]);
    // All parts are the same page of list; the last is another one, named by the second chunk.
    let addresses: Vec<_> = (0..510).flat_map(|_| 0x8000_u64.to_le_bytes()).collect();
    memory.write(0x1000, &addresses).unwrap();
    let mut next = [0; 12];
    next.put_u32(0, 8 + 12);
    next.put_u64(4, 0x2000);
    memory.write(0x1000 + 4080, &next).unwrap();
    memory.write(0x2000, &0x9000_u64.to_le_bytes()).unwrap();
    memory.write(0x8000, &0x5000_u64.to_le_bytes()).unwrap();
    memory.write(0x9000, &0x6000_u64.to_le_bytes()).unwrap();
    let pages = page_list(&command(0x1000), 510 * 512 + 1, &memory).unwrap();
    assert_eq!(
        (pages.len(), pages[0], pages[509 * 512], pages[510 * 512]),
        (510 * 512 + 1, 0x5000, 0x5000, 0x6000)
    );
    // A full chunk that is the last names no other.
    memory.write(0x1000 + 4080, &[0xff; 12]).unwrap();
    assert!(page_list(&command(0x1000), 510 * 512, &memory).is_ok());
    assert_eq!(page_list(&command(0x1000), 510 * 512 + 1, &memory), Err(Status::Illegal));
}

#[test]
fn what_is_no_region() {
    let mut guest = Guest::new();
    let (good, list, _) = payload(guest.pd, 2, 0x1000, 8192);
    let mut good = good;
    good.put(4, &list);
    assert!(guest.run(7, &good).is_ok());
    let wrong: [(usize, &[u8], u8); 7] = [
        (0, &[99], 5),
        (36, &[0; 8], 5),
        (36, &[0xff; 8], 5),
        (44, &[13], 5),
        (44, &[0x8c], 3),
        (45, &[8], 3),
        (48, &[9], 5),
    ];
    for (at, bytes, status) in wrong {
        let mut payload = good;
        payload.put(at, bytes);
        assert_eq!(guest.run(7, &payload), Err(status), "{at} {bytes:?}");
    }
    // Five pages do not fit into the command; a list that is not in the guest's memory.
    let mut five = good;
    five.put_u64(36, 5 * 4096);
    assert_eq!(guest.run(7, &five), Err(5));
    five.put_u32(4, 40);
    five.put_u64(8, u64::MAX - 8);
    assert_eq!([guest.run_with(7, 2, &five), guest.run_with(7, 6, &five)], [Err(5); 2]);
}
