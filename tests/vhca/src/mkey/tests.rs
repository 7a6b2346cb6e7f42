//! Keys that commands create and requests change, in a guest with two pages.

use super::*;
use crate::bits::BitsMut;
use vpci::Memory;

const PD: u32 = 3;
const QPN: u32 = 0x77;
const START: u64 = 0x7000_0800;
const USER: Reach = Reach { pd: Some(PD), qpn: QPN, reserved: false };
const DRIVER: Reach = Reach { pd: None, qpn: 5, reserved: true };

/// The fields of a context.
type Fields<'a> = &'a [(Field, u64)];

fn context(fields: Fields<'_>) -> Vec<u8> {
    let mut context = vec![0; 64];
    fields.iter().for_each(|(field, value)| context.set(*field, *value));
    context
}

fn add(keys: &mut Mkeys, index: u32, fields: Fields<'_>, list: &[u8]) -> Result<(), Status> {
    let mut input = vec![0; 272];
    let common =
        [(mkc::pd, PD.into()), (mkc::qpn, 0xff_ffff), (mkc::mkey_7_0, 0x55), (mkc::log_page_size, 12)];
    input.put(create_mkey_in::memory_key_mkey_entry, &context(&[&common[..], fields].concat()));
    input.set(create_mkey_in::translations_octword_actual_size, list.len() as u32 / 16);
    input.extend(list);
    keys.insert(index, &input)
}

fn piece(len: u32, key: u32, address: u64) -> Vec<u8> {
    [&len.to_be_bytes()[..], &key.to_be_bytes(), &address.to_be_bytes()].concat()
}

fn pages() -> Vec<u8> {
    [0x9000_u64.to_be_bytes(), 0x1003_u64.to_be_bytes()].concat()
}

/// Keys 0x10 to 0x12: two separate pages with an address of the process; the same read-only; a key of keys. 0x14 is all memory, 0x20 a
/// free window of the second type, 0x21 a free region without pages.
fn keys() -> Mkeys {
    let mut keys = Mkeys::default();
    let region = [(mkc::access_mode_1_0, 1), (mkc::start_addr, START), (mkc::len, 0x1000), (mkc::lr, 1)];
    let writes =
        [&region[..], &[(mkc::lw, 1), (mkc::rw, 1), (mkc::rr, 1), (mkc::a, 1), (mkc::umr_en, 1)]].concat();
    add(&mut keys, 0x10, &writes, &pages()).unwrap();
    add(&mut keys, 0x11, &region, &pages()).unwrap();
    let pieces = [piece(8, 0x1055, START + 0x7fc), piece(4, 0x1055, START)].concat();
    add(&mut keys, 0x12, &[(mkc::access_mode_1_0, 2), (mkc::len, 12), (mkc::lr, 1), (mkc::lw, 1)], &pieces)
        .unwrap();
    assert_eq!(add(&mut keys, 0x13, &[(mkc::access_mode_1_0, 3)], &[]), Err(Status::BadParameter));
    add(&mut keys, 0x14, &[(mkc::length64, 1), (mkc::lr, 1)], &[]).unwrap();
    let free = [(mkc::free, 1), (mkc::umr_en, 1), (mkc::lr, 1)];
    let window = [(mkc::access_mode_1_0, 2), (mkc::en_rinval, 1), (mkc::translations_octword_size, 4)];
    add(&mut keys, 0x20, &[&free[..], &window].concat(), &[]).unwrap();
    let region = [(mkc::access_mode_1_0, 1), (mkc::pd, 0), (mkc::translations_octword_size, 1)];
    add(&mut keys, 0x21, &[&free[..], &region].concat(), &[]).unwrap();
    keys
}

fn guest() -> Memory {
    let memory = Memory::zeroed(&[(0x1000, 4096), (0x9000, 4096)]);
    memory.write(0x9800, &[1, 2, 3, 4]).unwrap();
    memory.write(0x9ffc, &[5, 6, 7, 8]).unwrap();
    memory.write(0x1000, &[9, 10, 11, 12]).unwrap();
    memory
}

fn read_by(
    keys: &Mkeys,
    reach: Reach,
    key: u32,
    address: u64,
    len: usize,
    access: Access,
) -> Result<Vec<u8>, Denied> {
    let mut bytes = vec![0; len];
    let segment = Segment { len: len as u32, key, address };
    keys.read(&guest(), reach, segment, &mut bytes, access).map(|()| bytes)
}

fn read(keys: &Mkeys, key: u32, address: u64, len: usize) -> Result<Vec<u8>, Denied> {
    read_by(keys, USER, key, address, len, Access::LocalRead)
}

fn may(keys: &Mkeys, reach: Reach, key: u32, address: u64, access: Access) -> Result<(), Denied> {
    keys.check(reach, Segment { len: 0, key, address }, 4, access)
}

#[test]
fn addresses_go_through_pages_and_keys_of_keys() {
    let keys = keys();
    assert_eq!(read(&keys, 0x1055, START, 4), Ok(vec![1, 2, 3, 4]));
    assert_eq!(read(&keys, 0x1055, START + 0x7fc, 8), Ok(vec![5, 6, 7, 8, 9, 10, 11, 12]));
    assert_eq!(read(&keys, 0x1255, 2, 8), Ok(vec![7, 8, 9, 10, 11, 12, 1, 2]));
    assert_eq!(read(&keys, 0x1455, 0x9ffc, 4), Ok(vec![5, 6, 7, 8]));
}

#[test]
fn what_is_not_allowed_is_denied() {
    let keys = keys();
    assert_eq!(read(&keys, 0x1056, START, 4), Err(Denied::NoKey));
    assert_eq!(read(&keys, 0x2055, START, 4), Err(Denied::NoKey));
    assert_eq!(read(&keys, 0x1055, START - 1, 4), Err(Denied::Range));
    assert_eq!(read(&keys, 0x1055, START + 0xffd, 4), Err(Denied::Range));
    assert_eq!(read(&keys, 0x1055, u64::MAX, 4), Err(Denied::Range));
    assert_eq!(read(&keys, 0x1255, 10, 4), Err(Denied::Range));
    assert_eq!(read(&keys, 0x1455, 0x5000, 4), Err(Denied::Memory));
    let stranger = Reach { pd: Some(PD + 1), ..USER };
    assert_eq!(may(&keys, stranger, 0x1055, START, Access::LocalRead), Err(Denied::Domain));
    assert_eq!(may(&keys, Reach { pd: None, ..USER }, 0x1055, START, Access::LocalRead), Ok(()));
    let all = [
        Access::LocalRead,
        Access::LocalWrite,
        Access::RemoteRead,
        Access::RemoteWrite,
        Access::RemoteAtomic,
    ];
    assert!(all.iter().all(|access| may(&keys, USER, 0x1055, START, *access) == Ok(())));
    let allowed = all.map(|access| may(&keys, USER, 0x1155, START, access) == Ok(()));
    assert_eq!(allowed, [true, false, false, false, false]);
    let memory = guest();
    let segment = Segment { len: 4, key: 0x1155, address: START };
    assert_eq!(keys.write(&memory, USER, segment, &[0; 4], Access::LocalWrite), Err(Denied::Access));
    // An access of zero bytes does nothing, whatever the key is.
    assert_eq!(read(&keys, 0xdead, 1, 0), Ok(Vec::new()));
}

#[test]
fn the_drivers_own_key_is_for_who_may_use_it() {
    let keys = keys();
    let key = keys.reserved();
    assert_eq!(read(&keys, key, 0x9ffc, 4), Err(Denied::NoKey));
    assert_eq!(read_by(&keys, DRIVER, key, 0x9ffc, 4, Access::LocalRead), Ok(vec![5, 6, 7, 8]));
    assert_eq!(read_by(&keys, DRIVER, key, 0x5000, 4, Access::LocalRead), Err(Denied::Memory));
}

#[test]
fn atomics_are_of_eight_bytes_in_the_hosts_order() {
    let (keys, memory) = (keys(), guest());
    let at = START + 0x7f8;
    memory.write(0x9ff8, &7_u64.to_le_bytes()).unwrap();
    let mut number = [0; 8];
    let mut run = |address, operation| {
        let before = keys.atomic(&memory, USER, address, 0x1055, operation);
        memory.read(0x9ff8, &mut number).unwrap();
        (before, u64::from_le_bytes(number))
    };
    assert_eq!(run(at, Atomic::Add(u64::MAX)), (Ok(7), 6));
    assert_eq!(run(at, Atomic::Swap { compare: 7, swap: 9 }), (Ok(6), 6));
    assert_eq!(run(at, Atomic::Swap { compare: 6, swap: 1 << 63 }), (Ok(6), 1 << 63));
    assert_eq!(run(at + 4, Atomic::Add(1)), (Err(Denied::Alignment), 1 << 63));
    assert_eq!(run(START + 0x1000, Atomic::Add(1)), (Err(Denied::Range), 1 << 63));
    // The key is checked before the address.
    for address in [at, at + 4] {
        assert_eq!(keys.atomic(&memory, USER, address, 0x1155, Atomic::Add(1)), Err(Denied::Access));
    }
}

/// A work request after its control segment.
fn request(flags: u8, octwords: u16, mask: u64, fields: Fields<'_>, behind: &[u8]) -> Vec<u8> {
    let mut control = vec![0; 48];
    control[0] = flags;
    control[4..6].copy_from_slice(&octwords.to_be_bytes());
    control[8..16].copy_from_slice(&mask.to_be_bytes());
    [control, context(fields), behind.to_vec()].concat()
}

/// The bind of the second type of window, as libmlx5 writes it.
fn bind(key: u32, rights: Fields<'_>) -> Vec<u8> {
    let mut list = piece(16, 0x1055, START + 0x7f8);
    list.resize(64, 0);
    let fields =
        [(mkc::qpn, QPN.into()), (mkc::mkey_7_0, key.into()), (mkc::start_addr, 0x100), (mkc::len, 16)];
    request(0xb0, 4, 0x203c_6041, &[&fields[..], rights].concat(), &list)
}

#[test]
fn a_window_is_bound_used_and_taken_away() {
    let (mut keys, memory) = (keys(), guest());
    let rights = [(mkc::rr, 1), (mkc::rw, 1)];
    assert_eq!(read(&keys, 0x2055, 0x100, 8), Err(Denied::NoKey));
    assert_eq!(keys.modify(&memory, USER, 0x2056, &bind(0x56, &rights)), Ok(()));
    let window = |keys: &Mkeys, key| read_by(keys, USER, key, 0x104, 8, Access::RemoteRead);
    assert_eq!(window(&keys, 0x2056), Ok(vec![5, 6, 7, 8, 9, 10, 11, 12]));
    assert_eq!(window(&keys, 0x2055), Err(Denied::NoKey));
    assert_eq!(read_by(&keys, USER, 0x2056, 0x10c, 8, Access::RemoteRead), Err(Denied::Range));
    assert_eq!(may(&keys, USER, 0x2056, 0x100, Access::RemoteWrite), Ok(()));
    assert_eq!(may(&keys, USER, 0x2056, 0x100, Access::RemoteAtomic), Err(Denied::Access));
    let other = Reach { qpn: QPN + 1, ..USER };
    assert_eq!(may(&keys, other, 0x2056, 0x100, Access::RemoteRead), Err(Denied::QueuePair));
    // It is already bound, and only its queue pair may release it.
    assert_eq!(keys.modify(&memory, USER, 0x2056, &bind(0x57, &rights)), Err(Denied::Free));
    let free = request(0x98, 0, 0x2000_6000, &[(mkc::free, 1), (mkc::qpn, 0xff_ffff)], &[]);
    assert_eq!(keys.modify(&memory, other, 0x2056, &free), Err(Denied::QueuePair));
    assert_eq!(keys.modify(&memory, USER, 0x2056, &free), Ok(()));
    assert_eq!(window(&keys, 0x2056), Err(Denied::NoKey));
    // Bound again, and invalidated by the peer.
    assert_eq!(keys.modify(&memory, USER, 0x2057, &bind(0x57, &rights)), Ok(()));
    assert_eq!(keys.invalidate(other, 0x2057), Err(Denied::QueuePair));
    assert_eq!(keys.invalidate(USER, 0x2056), Err(Denied::NoKey));
    assert_eq!(keys.invalidate(USER, 0x1055), Err(Denied::Access));
    assert_eq!(keys.invalidate(USER, 0x2057), Ok(()));
    assert_eq!(keys.invalidate(USER, 0x2057), Err(Denied::NoKey));
    assert_eq!(window(&keys, 0x2057), Err(Denied::NoKey));
}

#[test]
fn a_window_needs_of_its_region_only_that_it_is_read_or_written() {
    let (mut keys, memory) = (keys(), guest());
    let region = request(0x80, 0, 0x003e_0000, &[(mkc::lr, 1)], &[]);
    assert_eq!(keys.modify(&memory, USER, 0x1055, &region), Ok(()));
    assert_eq!(
        keys.modify(&memory, USER, 0x2056, &bind(0x56, &[(mkc::rr, 1), (mkc::rw, 1), (mkc::a, 1)])),
        Ok(())
    );
    assert_eq!(may(&keys, USER, 0x1055, START, Access::RemoteRead), Err(Denied::Access));
    assert_eq!(may(&keys, USER, 0x2056, 0x100, Access::RemoteRead), Ok(()));
    assert_eq!(may(&keys, USER, 0x2056, 0x100, Access::RemoteWrite), Err(Denied::Access));
    assert_eq!(may(&keys, USER, 0x2056, 0x100, Access::RemoteAtomic), Err(Denied::Access));
    assert_eq!(may(&keys, USER, 0x2056, 0x100, Access::LocalWrite), Err(Denied::Access));
}

#[test]
fn a_region_is_registered_by_a_list_in_memory() {
    let (mut keys, memory) = (keys(), guest());
    memory.write(0x9100, &pages()).unwrap();
    let region =
        [(mkc::pd, PD.into()), (mkc::mkey_7_0, 0x60), (mkc::log_page_size, 12), (mkc::start_addr, START)];
    let region = [&region[..], &[(mkc::len, 0x1000), (mkc::lr, 1), (mkc::rr, 1)]].concat();
    let registration = request(0x20, 4, 0x203e_20c3, &region, &piece(64, keys.reserved(), 0x9100));
    assert_eq!(keys.modify(&memory, USER, 0x2160, &registration), Err(Denied::Domain));
    assert_eq!(keys.modify(&memory, DRIVER, 0x2160, &registration), Ok(()));
    assert_eq!(read(&keys, 0x2160, START + 0x7fc, 8), Ok(vec![5, 6, 7, 8, 9, 10, 11, 12]));
    assert_eq!(may(&keys, USER, 0x2160, START, Access::LocalWrite), Err(Denied::Access));
    assert_eq!(keys.modify(&memory, DRIVER, 0x2160, &registration), Err(Denied::Free));
    // The key has room for four entries of 16 bytes, and the list would exceed it.
    let mut more = request(0x50, 4, 0, &[], &piece(64, keys.reserved(), 0x9100));
    more[6..8].copy_from_slice(&4_u16.to_be_bytes());
    assert_eq!(keys.modify(&memory, DRIVER, 0x2160, &more), Err(Denied::Range));
    // Its second entry: the first pages stay as they are.
    let mut more = request(0xd0, 1, 0, &[], &pages());
    more[6..8].copy_from_slice(&1_u16.to_be_bytes());
    assert_eq!(keys.modify(&memory, DRIVER, 0x2160, &more), Ok(()));
    assert_eq!(read(&keys, 0x2160, START, 4), Ok(vec![1, 2, 3, 4]));
    assert_eq!(keys.keys[&0x21].list[..32], [pages(), pages()].concat());
    // Released: free, and in the driver's domain.
    let free = request(0x80, 0, 0x2000_0080, &[(mkc::free, 1), (mkc::mkey_7_0, 0x60)], &[]);
    assert_eq!(keys.modify(&memory, DRIVER, 0x2160, &free), Ok(()));
    assert_eq!(read(&keys, 0x2160, START, 4), Err(Denied::NoKey));
    assert_eq!(keys.context(0x21).map(|context| context.num(mkc::pd)), Some(0));
    assert_eq!(keys.modify(&memory, DRIVER, 0x2160, &more), Err(Denied::Free));
}

#[test]
fn a_request_that_is_not_whole_or_not_allowed_changes_nothing() {
    let (mut keys, memory) = (keys(), guest());
    let before = format!("{keys:?}");
    let change = |flags, octwords, mask, fields: Fields<'_>| request(flags, octwords, mask, fields, &[0; 16]);
    for (reach, key, request, why) in [
        (USER, 0x1055, change(0x80, 0, 1 << 1, &[(mkc::log_page_size, 11)]), Denied::Request),
        (USER, 0x1055, change(0x80, 0, 1 << 12, &[]), Denied::Request),
        (USER, 0x1055, change(0x80, 2, 0, &[]), Denied::Range),
        (USER, 0x2055, change(0x80, 4, 0, &[]), Denied::Request),
        (USER, 0x2055, change(0x00, 4, 0, &[]), Denied::Request),
        (USER, 0x1055, change(0x80, 0, 1 << 7, &[(mkc::pd, 9)]), Denied::Domain),
        (USER, 0x1155, change(0x80, 0, 1 << 20, &[(mkc::rw, 1)]), Denied::Access),
        (USER, 0x3055, change(0x80, 0, 0, &[]), Denied::NoKey),
        (USER, 0x1055, vec![0x80; 111], Denied::Request),
        (DRIVER, 0x2155, request(0, 4, 0, &[], &piece(64, 0x1055, START - 1)), Denied::Range),
    ] {
        assert_eq!(keys.modify(&memory, reach, key, &request), Err(why), "{request:x?}");
    }
    assert_eq!(format!("{keys:?}"), before);
}

#[test]
fn a_page_that_is_not_there_is_not_memory() {
    let mut keys = keys();
    let list = [[0; 8], 0x1003_u64.to_be_bytes()].concat();
    add(&mut keys, 0x30, &[(mkc::access_mode_1_0, 1), (mkc::len, 0x2000), (mkc::lr, 1)], &list).unwrap();
    assert_eq!(read(&keys, 0x3055, 0x1000, 4), Ok(vec![9, 10, 11, 12]));
    assert_eq!(read(&keys, 0x3055, 0xffe, 4), Err(Denied::Memory));
}
