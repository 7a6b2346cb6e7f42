//! Who gets a frame.

use super::super::testing::*;
use super::*;
use uverbs_abi::flow::*;

const WIRE: Origin = Origin::Wire { port: 1 };

/// One flow to insert: what differs from a NORMAL rule of priority 0 without flags on port 1.
#[derive(Default)]
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

/// The flows that a frame from the wire meets.
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

#[test]
fn leftovers_take_what_is_left() {
    let table = table([of_type(ATTR_ALL_DEFAULT), of_type(ATTR_MC_DEFAULT), flow(&[udp_port(5)])]);
    assert_eq!(flows(&table, &udp_frame(UNICAST, 5)), [2]);
    assert_eq!(flows(&table, &udp_frame(UNICAST, 6)), [0]);
    assert_eq!(flows(&table, &udp_frame(GROUP, 6)), [0, 1]);
    assert_eq!(met(&table, &udp_frame(UNICAST, 6), Origin::Wire { port: 2 }).1, Fate::Missed);
}

#[test]
fn one_match_is_one_entry_for_all_its_flows() {
    let counted = |counters| flow(&[udp_port(5), with_number(SPEC_ACTION_COUNT, counters)]);
    let mut table = table([counted(1), counted(2)]);
    assert_eq!(add(&mut table, 2, 101, counted(3)), Ok(()));
    let delivery = |flow, qp, counters| Delivery {
        flow,
        qp,
        counters: Some(counters),
        tag: None,
        drop: false,
    };
    let (all, fate) = met(&table, &udp_frame(UNICAST, 5), WIRE);
    let expected = [(0, Some(100), 1), (1, Some(101), 2), (2, None, 3)];
    assert_eq!(all, expected.map(|(flow, qp, counters)| delivery(flow, qp, counters)));
    assert_eq!(fate, Fate::Taken);
    assert!(table.remove(1));
    let (all, _) = met(&table, &udp_frame(UNICAST, 5), WIRE);
    assert_eq!(all[1], delivery(2, Some(101), 3));
}

#[test]
fn an_entry_has_one_tag_and_one_fate() {
    let tagged = |tag| flow(&[udp_port(5), with_number(SPEC_ACTION_TAG, tag)]);
    let plain = || flow(&[udp_port(5)]);
    let dropped = || flow(&[udp_port(5), drop_()]);
    let exists = Err(Errno::EEXIST);
    let mut first_tagged = table([tagged(7)]);
    assert_eq!(add(&mut first_tagged, 1, 1, tagged(8)), exists);
    assert_eq!(add(&mut first_tagged, 1, 1, dropped()), exists);
    assert_eq!(add(&mut first_tagged, 1, 1, plain()), Ok(()));
    // The tag stays with the entry when the flow that brought it is gone.
    assert!(first_tagged.remove(0));
    assert_eq!(met(&first_tagged, &udp_frame(UNICAST, 5), WIRE).0[0].tag, Some(7));
    let mut untagged = table([plain()]);
    assert_eq!(add(&mut untagged, 1, 1, tagged(8)), exists);
    assert_eq!(add(&mut untagged, 1, 1, tagged(0)), Ok(()));
    // Another priority, another port, DONT_TRAP: other entries.
    assert_eq!(add(&mut untagged, 2, 1, Flow { priority: 1, ..dropped() }), Ok(()));
    assert_eq!(add(&mut untagged, 3, 1, Flow { flags: 2, ..tagged(9) }), Ok(()));
    assert_eq!(add(&mut untagged, 3, 1, Flow { priority: 2, ..plain() }), Err(Errno::EINVAL));
}

#[test]
fn dropped_frames_are_counted() {
    let drop = flow(&[udp_port(5), drop_(), with_number(SPEC_ACTION_COUNT, 4)]);
    let table = table([drop, of_type(ATTR_ALL_DEFAULT)]);
    let (all, fate) = met(&table, &udp_frame(UNICAST, 5), WIRE);
    assert_eq!((all.len(), fate), (1, Fate::Dropped));
    assert_eq!((all[0].qp, all[0].counters, all[0].drop), (None, Some(4), true));
}

#[test]
fn sniffers_copy_both_directions_once() {
    let table = table([of_type(ATTR_SNIFFER), of_type(ATTR_SNIFFER), flow(&[udp_port(5)])]);
    assert_eq!(flows(&table, &udp_frame(UNICAST, 5)), [0, 1, 2]);
    let sent = Origin::Sent { port: 1, qp: 100 };
    let (all, fate) = met(&table, &udp_frame(UNICAST, 6), sent);
    assert_eq!(all.iter().map(|d| d.qp).collect::<Vec<_>>(), [Some(100), Some(101)]);
    assert_eq!(fate, Fate::Missed);
}

#[test]
fn egress_rules_see_only_what_is_sent() {
    let egress = |specs: &[Vec<u8>]| Flow { flags: FLAG_EGRESS, ..flow(specs) };
    let count = with_number(SPEC_ACTION_COUNT, 4);
    let table = table([
        egress(&[udp_port(5), count]),
        egress(&[udp_port(6), drop_()]),
        of_type(ATTR_SNIFFER),
        flow(&[]),
    ]);
    assert_eq!(flows(&table, &udp_frame(UNICAST, 5)), [2, 3]);
    let sent = Origin::Sent { port: 1, qp: 9 };
    let (all, fate) = met(&table, &udp_frame(UNICAST, 5), sent);
    assert_eq!((all[0].flow, all[0].qp, all[0].counters), (0, None, Some(4)));
    assert_eq!((all[1].flow, all[2].flow, fate), (2, 3, Fate::Taken));
    let (all, fate) = met(&table, &udp_frame(UNICAST, 6), sent);
    assert_eq!((all.len(), all[0].drop, fate), (1, true, Fate::Dropped));
}

#[test]
fn own_frames_are_heard_only_on_request() {
    let looped = || Flow { flags: FLAG_ALLOW_LOOP_BACK, ..flow(&[udp_port(5)]) };
    let mut table = table([flow(&[udp_port(5)]), flow(&[udp_port(5)])]);
    let own = |origin| met(&table, &udp_frame(UNICAST, 5), origin).0.len();
    assert_eq!((own(WIRE), own(Origin::Sent { port: 1, qp: 100 })), (2, 1));
    // The new flow hears its own queue pair, so it is now the one of the two that delivers.
    assert_eq!(add(&mut table, 2, 100, looped()), Ok(()));
    for (origin, expected) in [(WIRE, vec![2, 1]), (Origin::Sent { port: 1, qp: 100 }, vec![2, 1])] {
        let (all, _) = met(&table, &udp_frame(UNICAST, 5), origin);
        let delivered = all.iter().filter(|d| d.qp.is_some()).map(|d| d.flow);
        assert_eq!(delivered.collect::<Vec<_>>(), expected);
    }
    // A rule that does not hear the sender is as if it were not there.
    let mut alone = Table::new(Rules::all());
    assert_eq!(add(&mut alone, 0, 7, flow(&[])), Ok(()));
    assert_eq!(add(&mut alone, 1, 8, Flow { priority: 3, ..flow(&[]) }), Ok(()));
    let (all, _) = met(&alone, &[], Origin::Sent { port: 1, qp: 7 });
    assert_eq!(all.iter().map(|d| d.flow).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_table_is_full_some_day() {
    let mut table = Table::new(Rules::default());
    for id in 0..=1 << 16 {
        let specs = [ipv4_dst(SPEC_IPV4, id, !0)];
        let expected = if id < 1 << 16 { Ok(()) } else { Err(Errno::ENOSPC) };
        assert_eq!(add(&mut table, id, 1, flow(&specs)), expected);
    }
    let frame = ethernet(UNICAST, 0x0800, &ipv4(0xabcd, 17, &udp(1, 2, b"")));
    assert_eq!(flows(&table, &frame), [0xabcd]);
}
