//! The queue pairs that receive a frame.

use super::super::testing::*;
use super::*;
use crate::soft::matcher::Rules;
use uverbs_abi::flow::*;

mod members;
mod reference;

const WIRE: Origin = Origin::Wire { port: 1 };

/// One flow to insert: the differences from a NORMAL rule of priority 0 without flags on port 1.
#[derive(Debug, Default)]
struct Flow {
    type_: u32,
    priority: u16,
    flags: u32,
    specs: Vec<Vec<u8>>,
}

fn flow(specs: &[Vec<u8>]) -> Flow {
    Flow { specs: specs.to_vec(), ..Flow::default() }
}

fn of_type(type_: u32) -> Flow {
    Flow { type_, ..Flow::default() }
}

fn rule(flow: &Flow, rules: &Rules) -> Result<Rule, Errno> {
    let (type_, priority, flags) = (flow.type_, flow.priority, flow.flags);
    let attr = FlowAttr { type_, priority, flags, ..attr(&flow.specs) };
    Rule::compile(&attr, &parsed(&flow.specs)?, rules)
}

fn add(table: &mut Table, id: u32, qp: u32, flow: Flow) -> Result<(), Errno> {
    let rule = rule(&flow, &table.rules)?;
    table.insert(id, qp, &rule)
}

/// A table of these flows: ids count from 0, queue pairs from 100.
fn table(flows: impl IntoIterator<Item = Flow>) -> Table {
    let mut table = Table::new(Rules::all());
    for (id, flow) in (0..).zip(flows) {
        add(&mut table, id, 100 + id, flow).expect("valid");
    }
    table
}

fn met(table: &Table, frame: &[u8], origin: Origin) -> (Vec<Delivery>, Fate) {
    let mut all = Vec::new();
    let fate = table.steer(frame, origin, |delivery| all.push(delivery));
    (all, fate)
}

/// The flows that a frame from the wire matches.
fn flows(table: &Table, frame: &[u8]) -> Vec<u32> {
    met(table, frame, WIRE).0.iter().map(|delivery| delivery.flow).collect()
}

fn udp_port(port: u16) -> Vec<u8> {
    dst_port(SPEC_UDP, port, 0xffff)
}

#[test]
fn attributes_get_the_errno_of_mlx5() {
    let bad = || flow(&[with_number(SPEC_ACTION_TAG, 1 << 24)]);
    let cases: [(&str, Flow, Result<(), Errno>); 12] = [
        ("priority 15", Flow { priority: 15, ..bad() }, Err(Errno::EINVAL)),
        ("priority 16", Flow { priority: 16, flags: 1, ..bad() }, Err(Errno::ENOMEM)),
        ("bit 0 before type", Flow { flags: 1, ..of_type(4) }, Err(Errno::EINVAL)),
        ("EGRESS ALL_DEFAULT", Flow { flags: 4, ..of_type(1) }, Err(Errno::EINVAL)),
        ("EGRESS MC_DEFAULT", Flow { flags: 4, ..of_type(2) }, Err(Errno::EINVAL)),
        ("EGRESS SNIFFER", Flow { flags: 4, ..of_type(3) }, Err(Errno::EINVAL)),
        ("type 4 before specs", Flow { type_: 4, ..bad() }, Err(Errno::EOPNOTSUPP)),
        ("specs of ALL_DEFAULT", Flow { type_: 1, ..bad() }, Ok(())),
        ("specs of SNIFFER", Flow { type_: 3, flags: 2, ..bad() }, Ok(())),
        ("EGRESS", Flow { flags: 4, ..Flow::default() }, Ok(())),
        ("EGRESS DONT_TRAP", Flow { flags: 6, ..Flow::default() }, Err(Errno::EOPNOTSUPP)),
        ("the same with DROP", Flow { flags: 6, ..flow(&[drop_()]) }, Ok(())),
    ];
    for (what, flow, expected) in cases {
        let mut table = Table::new(Rules::default());
        assert_eq!(add(&mut table, 0, 100, flow), expected, "{what}");
    }
    let poor = Rules { sniffer: false, dont_trap: false, ..Rules::default() };
    let mut table = Table::new(poor);
    assert_eq!(add(&mut table, 0, 1, of_type(3)), Err(Errno::EOPNOTSUPP));
    let dont_trap = Flow { flags: FLAG_DONT_TRAP, ..Flow::default() };
    assert_eq!(add(&mut table, 0, 1, dont_trap), Err(Errno::EOPNOTSUPP));
}

#[test]
fn counters_of_other_types_are_not_the_drivers() {
    let counted = || flow(&[with_number(SPEC_ACTION_COUNT, 7)]);
    assert_eq!(rule(&counted(), &Rules::default()).map(|r| r.counters()), Ok(Some(7)));
    let sniffer = Flow { type_: ATTR_SNIFFER, ..counted() };
    assert_eq!(rule(&sniffer, &Rules::default()).map(|r| r.counters()), Ok(None));
}

#[test]
fn lower_numbers_come_first_and_the_oldest_of_one_priority() {
    let frame = udp_frame(UNICAST, 5);
    let late = Flow { priority: 1, ..flow(&[udp_port(5)]) };
    assert_eq!(flows(&table([late, flow(&[eth(UNICAST, [0xff; 6])])]), &frame), [1]);
    let mut table = table([flow(&[eth(UNICAST, [0xff; 6])]), flow(&[udp_port(5)]), flow(&[])]);
    assert_eq!(flows(&table, &frame), [0]);
    assert!(table.remove(0) && !table.remove(0));
    assert_eq!(flows(&table, &frame), [1]);
    assert_eq!(flows(&table, &udp_frame(UNICAST, 6)), [2]);
    assert!(table.remove(1) && table.remove(2));
    assert_eq!(met(&table, &frame, WIRE), (vec![], Fate::Missed));
    assert!(table.receive.iter().all(|tier| format!("{tier:?}") == format!("{:?}", Tier::default())));
}

#[test]
fn dont_trap_goes_on_at_the_next_table() {
    let dont_trap = |priority, port| Flow { priority, flags: 2, ..flow(&[udp_port(port)]) };
    let trap = |priority, port| Flow { priority, ..flow(&[udp_port(port)]) };
    let table = table([trap(1, 5), dont_trap(1, 5), dont_trap(0, 5), dont_trap(2, 5), dont_trap(0, 6)]);
    assert_eq!(flows(&table, &udp_frame(UNICAST, 5)), [2, 1, 0]);
    let (met, fate) = met(&table, &udp_frame(UNICAST, 6), WIRE);
    assert_eq!((met.len(), fate), (1, Fate::Missed));
}

#[test]
fn multicast_rules_come_behind_all_priorities() {
    let group = eth(GROUP, [0xff; 6]);
    let all = || Flow { priority: 15, ..flow(&[udp_port(5)]) };
    let frame = udp_frame(GROUP, 5);
    assert_eq!(flows(&table([flow(std::slice::from_ref(&group)), all()]), &frame), [1]);
    let dont_trap = Flow { flags: 2, ..flow(std::slice::from_ref(&group)) };
    assert_eq!(flows(&table([dont_trap, all()]), &frame), [0, 1]);
    // Not the first spec: an ordinary rule of priority 0.
    assert_eq!(flows(&table([all(), flow(&[udp_port(5), group.clone()])]), &frame), [1]);
    let group_ip = ipv4_dst(SPEC_IPV4, 0xe000_0001, !0);
    assert_eq!(rule(&flow(&[group_ip]), &Rules::default()).map(|r| r.place), Ok(Place::Receive(32)));
    let leftovers = table([of_type(ATTR_ALL_DEFAULT), flow(&[group])]);
    assert_eq!(flows(&leftovers, &frame), [1]);
}
