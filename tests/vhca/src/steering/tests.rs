//! Tables, groups, entries: which entry decides, what is counted, and where a packet continues.

use std::ops::RangeInclusive;

use super::*;
use crate::bits::BitsMut;
use crate::counter::Counter;
use crate::ifc::steering::{fte_match_param as param, fte_match_set_lyr_2_4 as lyr};

const PORT: crate::bits::Field = lyr::udp_dport.within(param::outer_headers);
const VERSION: crate::bits::Field = lyr::ip_version.within(param::outer_headers);

fn value(port: u32, version: u32) -> Box<[u8; MATCH_SIZE]> {
    let mut value = Box::new([0; MATCH_SIZE]);
    value.set(PORT, port);
    value.set(VERSION, version);
    value
}

fn table(domain: Domain, level: u32, miss: Miss) -> Table {
    let mut table = Table::new(domain, level, 4, miss).unwrap();
    // Group 1 matches the port, group 2 the version, group 3 everything.
    for (id, range, mask) in
        [(1, 0..=3, value(0xffff, 0)), (2, 4..=7, value(0, 0xf)), (3, 8..=8, value(0, 0))]
    {
        table.check_range(&range).unwrap();
        table.groups.insert(id, Group::new(range, mask).unwrap());
    }
    table
}

fn entry(group: u32, value: Box<[u8; MATCH_SIZE]>, destinations: &[Destination], counter: u32) -> Entry {
    let forward = if destinations.is_empty() { Action::DROP } else { Action::FORWARD };
    let action = Action(forward | Action::COUNT);
    Entry { group, value, action, tag: 0, destinations: destinations.to_vec(), counters: vec![counter] }
}

fn receivers(steering: &Steering, counters: &mut Counters, port: u32, version: u32) -> Vec<(u32, u32)> {
    steering.run(Domain::Receive, &value(port, version), 100, counters).receivers
}

#[test]
fn the_lowest_index_decides_and_counts() {
    let mut table = table(Domain::Receive, 1, Miss::Default);
    table.insert(5, entry(2, value(0, 4), &[Destination::Receiver(50)], 1)).unwrap();
    table.insert(8, entry(3, value(0, 0), &[Destination::Receiver(80)], 2)).unwrap();
    table.insert(2, entry(1, value(7, 0), &[Destination::Receiver(20)], 3)).unwrap();
    table.insert(1, entry(1, value(7, 0), &[Destination::Receiver(10)], 4)).unwrap();
    let mut steering = Steering { tables: [(1, table)].into(), ..Steering::default() };
    steering.set_root(Domain::Receive, Some(1));
    let mut counters = Counters::default();
    counters.insert(1, 4);
    assert_eq!(receivers(&steering, &mut counters, 7, 4), [(10, 0)]);
    assert_eq!(receivers(&steering, &mut counters, 8, 4), [(50, 0)]);
    assert_eq!(receivers(&steering, &mut counters, 8, 6), [(80, 0)]);
    steering.table(Domain::Receive, 1).unwrap().remove(1);
    assert_eq!(receivers(&steering, &mut counters, 7, 4), [(20, 0)]);
    let counted: Vec<_> = counters.list().map(|(_, counter)| counter.packets).collect();
    assert_eq!(counted, [1, 1, 1, 1]);
    assert_eq!(counters.read(3, false), Some(Counter { packets: 1, octets: 100 }));
}

#[test]
fn misses_and_forwards_lead_through_tables() {
    let mut first = table(Domain::Receive, 1, Miss::Forward(2));
    let to = [Destination::Receiver(10), Destination::Table(2)];
    first.insert(0, Entry { tag: 5, ..entry(1, value(7, 0), &to, 1) }).unwrap();
    let mut second = table(Domain::Receive, 2, Miss::Default);
    second.insert(4, entry(2, value(0, 4), &[Destination::Receiver(20)], 2)).unwrap();
    second.insert(5, entry(2, value(0, 6), &[], 3)).unwrap();
    let mut steering = Steering { tables: [(1, first), (2, second)].into(), ..Steering::default() };
    let mut counters = Counters::default();
    counters.insert(1, 3);
    assert_eq!(receivers(&steering, &mut counters, 7, 4), [], "no root");
    steering.set_root(Domain::Receive, Some(1));
    // Forwarded twice, with the tag of the first entry; missed; dropped; missed by both.
    assert_eq!(receivers(&steering, &mut counters, 7, 4), [(10, 5), (20, 5)]);
    assert_eq!(receivers(&steering, &mut counters, 8, 4), [(20, 0)]);
    assert_eq!(receivers(&steering, &mut counters, 8, 6), []);
    assert_eq!(receivers(&steering, &mut counters, 8, 0), []);
    let counted: Vec<_> = counters.list().map(|(_, counter)| counter.packets).collect();
    assert_eq!(counted, [1, 2, 1]);
}

#[test]
fn what_is_sent_passes_unless_an_entry_drops_it() {
    let mut counters = Counters::default();
    counters.insert(1, 2);
    let mut steering = Steering::default();
    let passes = |steering: &Steering, counters: &mut Counters, port| {
        steering.run(Domain::Transmit, &value(port, 4), 60, counters).passes
    };
    assert!(passes(&steering, &mut counters, 1));
    let mut only = table(Domain::Transmit, 1, Miss::Default);
    only.insert(0, entry(1, value(1, 0), &[], 1)).unwrap();
    let allow = Action(Action::ALLOW | Action::COUNT);
    only.insert(1, Entry { action: allow, ..entry(1, value(2, 0), &[], 2) }).unwrap();
    steering.tables.insert(1, only);
    steering.set_root(Domain::Transmit, Some(1));
    assert_eq!([1, 2, 3].map(|port| passes(&steering, &mut counters, port)), [false, true, true]);
    let counted: Vec<_> = counters.list().map(|(_, counter)| counter.octets).collect();
    assert_eq!(counted, [60, 60]);
}

#[test]
fn a_circle_of_tables_ends() {
    let mut circle = table(Domain::Receive, 1, Miss::Forward(1));
    circle.insert(0, entry(1, value(7, 0), &[Destination::Table(1)], 1)).unwrap();
    let mut steering = Steering { tables: [(1, circle)].into(), ..Steering::default() };
    steering.set_root(Domain::Receive, Some(1));
    let mut counters = Counters::default();
    assert_eq!(receivers(&steering, &mut counters, 7, 4), []);
    assert_eq!(receivers(&steering, &mut counters, 8, 4), []);
}

#[test]
fn groups_have_ranges_of_their_own_and_match_what_can_be() {
    let mut table = table(Domain::Receive, 1, Miss::Default);
    for range in [8..=8, 0..=0, 3..=4, 9..=16, RangeInclusive::new(10, 9)] {
        assert_eq!(table.check_range(&range), Err(Status::BadParameter), "{range:?}");
    }
    assert_eq!(table.check_range(&(9..=15)), Ok(()));
    let mut mask = Box::new([0; MATCH_SIZE]);
    mask[MATCH_SIZE - 1] = 1;
    assert_eq!(Group::new(0..=1, mask).unwrap_err(), Status::BadParameter);
    let entry = entry(1, value(1, 0), &[], 1);
    assert_eq!(table.insert(4, entry.clone()), Err(Status::BadIndex));
    assert_eq!(table.insert(0, Entry { group: 9, ..entry }), Err(Status::BadResource));
    assert!(Table::new(Domain::Receive, 1, 17, Miss::Default).is_err());
}

#[test]
fn an_entry_has_one_way_for_a_packet() {
    for (action, good) in
        [(0x4, true), (0xa, true), (0x9, true), (0x8, false), (0x6, false), (0x14, false), (0, false)]
    {
        assert_eq!(Action(action).check().is_ok(), good, "{action:#x}");
    }
}
