//! Several flows in one entry, sniffers, and frames that are sent.

use super::*;

#[test]
fn one_match_is_one_entry_for_all_its_flows() {
    let counted = |counters| flow(&[udp_port(5), with_number(SPEC_ACTION_COUNT, counters)]);
    let mut table = table([counted(1), counted(2)]);
    assert_eq!(add(&mut table, 2, 101, counted(3)), Ok(()));
    let delivery =
        |flow, qp, counters| Delivery { flow, qp, counters: Some(counters), tag: None, drop: false };
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
    // The entry keeps the tag after the flow that set it was destroyed.
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
    // The new flow receives frames of its own queue pair, so it is now the one of the two that delivers.
    assert_eq!(add(&mut table, 2, 100, looped()), Ok(()));
    for (origin, expected) in [(WIRE, vec![2, 1]), (Origin::Sent { port: 1, qp: 100 }, vec![2, 1])] {
        let (all, _) = met(&table, &udp_frame(UNICAST, 5), origin);
        let delivered = all.iter().filter(|d| d.qp.is_some()).map(|d| d.flow);
        assert_eq!(delivered.collect::<Vec<_>>(), expected);
    }
    // A rule that does not receive frames of the sender has no effect on them.
    let mut alone = Table::new(Rules::all());
    assert_eq!(add(&mut alone, 0, 7, flow(&[])), Ok(()));
    assert_eq!(add(&mut alone, 1, 8, Flow { priority: 3, ..flow(&[]) }), Ok(()));
    let (all, _) = met(&alone, &[], Origin::Sent { port: 1, qp: 7 });
    assert_eq!(all.iter().map(|d| d.flow).collect::<Vec<_>>(), [1]);
}

#[test]
#[cfg_attr(miri, ignore = "65,536 rules take hours there")]
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

#[test]
fn leftovers_take_what_is_left() {
    let table = table([of_type(ATTR_ALL_DEFAULT), of_type(ATTR_MC_DEFAULT), flow(&[udp_port(5)])]);
    assert_eq!(flows(&table, &udp_frame(UNICAST, 5)), [2]);
    assert_eq!(flows(&table, &udp_frame(UNICAST, 6)), [0]);
    assert_eq!(flows(&table, &udp_frame(GROUP, 6)), [0, 1]);
    assert_eq!(met(&table, &udp_frame(UNICAST, 6), Origin::Wire { port: 2 }).1, Fate::Missed);
}
