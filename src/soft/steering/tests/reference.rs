//! Compares random tables with a slow reference, which reads each frame completely and checks each rule by itself.

use super::*;
use proptest::prelude::*;

/// Specs that overlap, for every depth of a frame.
fn specs() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = prop_oneof![
        (0..3_u8, any::<bool>())
            .prop_map(|(last, all)| eth([2, 0, 0, 0, 0, last], [if all { 0xff } else { 0 }; 6])),
        Just(eth(GROUP, [0xff; 6])),
        (0..4_u16).prop_map(|tag| vlan(tag, 0xfff)),
        (0..4_u32, 0..3_u32).prop_map(|(dst, mask)| ipv4_dst(SPEC_IPV4, dst & mask, mask)),
        Just(ipv6_any()),
        (0..4_u16, prop::sample::select(vec![0, 1, 0xffff])).prop_map(|(port, mask)| dst_port(
            SPEC_UDP,
            port & mask,
            mask
        )),
        (0..4_u16).prop_map(|port| dst_port(SPEC_TCP, port, 0xffff)),
        (0..4_u32).prop_map(|vni| word(SPEC_VXLAN_TUNNEL, vni, 0xff_ffff)),
        (0..4_u32).prop_map(|dst| ipv4_dst(SPEC_IPV4 | SPEC_INNER, dst, !0)),
        Just(drop_()),
        (0..4_u32).prop_map(|tag| with_number(SPEC_ACTION_TAG, tag)),
    ];
    prop::collection::vec(one, 0..3)
}

prop_compose! {
    fn some_flow()(
        type_ in prop::sample::select(vec![0, 0, 0, 0, 0, 1, 2, 3]),
        priority in 0..3_u16,
        flags in prop::sample::select(vec![0, 0, 0, FLAG_DONT_TRAP, FLAG_EGRESS, FLAG_ALLOW_LOOP_BACK]),
        specs in specs(),
    ) -> Flow {
        Flow { type_, priority, flags, specs }
    }
}

prop_compose! {
    fn some_frame()(
        kind in 0..6_u8, mac in prop_oneof![(0..3_u8).prop_map(|last| [2, 0, 0, 0, 0, last]), Just(GROUP)],
        dst in 0..4_u32, port in 0..4_u16, tag in prop::option::of(0..4_u16), vni in 0..4_u8, cut in prop::option::of(0..80_usize),
    ) -> Vec<u8> {
        let inner = ethernet(UNICAST, 0x0800, &ipv4(dst, 17, &udp(9, port, b"")));
        let (ether_type, packet) = match kind {
            0 => (0x0800, ipv4(dst, 17, &udp(9, port, b"12"))),
            1 => (0x0800, ipv4(dst, 6, &tcp(9, port))),
            2 => (0x86dd, ipv6(17, &udp(9, port, b"12"))),
            3 => (0x0800, ipv4(dst, 17, &udp(9, 4789, &[&[8, 0, 0, 0, 0, 0, vni, 0][..], &inner].concat()))),
            4 => (0x0800, ipv4_fragment(dst, 17, 7, b"no ports here")),
            _ => (0x0806, vec![0; 28]),
        };
        let mut frame = match tag {
            Some(tag) => {
                let tagged = [&tag.to_be_bytes()[..], &u16::to_be_bytes(ether_type), &packet].concat();
                ethernet(mac, 0x8100, &tagged)
            }
            None => ethernet(mac, ether_type, &packet),
        };
        frame.truncate(cut.unwrap_or(usize::MAX));
        frame
    }
}

/// One flow in the reference, in the order of insertion.
struct Known {
    id: u32,
    qp: u32,
    rule: Rule,
    /// The flow that created its entry.
    entry: u32,
}

/// The progress of a frame.
struct Way<'a> {
    known: &'a [Known],
    fields: Headers,
    met: Vec<u32>,
}

impl Way<'_> {
    /// The frame arrives at a table: it matches the oldest entry that fits, with all its flows that receive frames of the sender. Returns
    /// whether the entry drops the frame; `None` if nothing fits.
    fn at(&mut self, place: Place, sender: Option<u32>) -> Option<bool> {
        let hears = |flow: &&Known| flow.rule.loop_back || sender != Some(flow.qp);
        let fits = |flow: &&Known| flow.rule.place == place && flow.rule.matching.matches(&self.fields);
        let entry = self.known.iter().filter(hears).filter(fits).map(|flow| flow.entry).min()?;
        let members = || self.known.iter().filter(|flow| flow.entry == entry);
        self.met.extend(members().filter(hears).map(|flow| flow.id));
        Some(members().any(|flow| flow.rule.matching.actions.drop))
    }

    fn go(&mut self, origin: Origin) -> Fate {
        let sender = if let Origin::Sent { qp, .. } = origin { Some(qp) } else { None };
        let sent = (0..TIERS).find_map(|table| sender.and_then(|_| self.at(Place::Send(table), None)));
        if sent == Some(true) {
            return Fate::Dropped;
        }
        let of = |place| self.known.iter().filter(move |flow| flow.rule.place == place);
        self.met.extend(of(Place::Sniffer).map(|flow| flow.id));
        for table in 0..TIERS {
            match self.at(Place::Receive(table), sender) {
                Some(true) => return Fate::Dropped,
                Some(false) if table == MULTICAST || table % 2 == 1 => return Fate::Taken,
                _ => {}
            }
        }
        let all = of(Place::Leftovers { unicast: true });
        let groups = of(Place::Leftovers { unicast: false }).filter(|_| self.fields.multicast());
        let hears = |flow: &&Known| flow.rule.loop_back || sender != Some(flow.qp);
        let left: Vec<_> = all.chain(groups).filter(hears).map(|flow| flow.id).collect();
        self.met.extend(&left);
        if left.is_empty() { Fate::Missed } else { Fate::Taken }
    }
}

proptest! {
    #[test]
    fn frames_meet_the_flows_of_a_slow_reference(
        flows in prop::collection::vec((some_flow(), 100..103_u32), 0..8),
        frames in prop::collection::vec((some_frame(), prop::option::of(100..103_u32)), 1..12),
        gone in prop::collection::vec(0..8_u32, 0..4),
    ) {
        let (mut table, mut known) = (Table::new(Rules::all()), Vec::<Known>::new());
        for (id, (flow, qp)) in (0..).zip(&flows) {
            let Ok(rule) = rule(flow, &table.rules) else { continue };
            if table.insert(id, *qp, &rule).is_err() {
                continue;
            }
            let of = |rule: &Rule| (rule.place, rule.matching.value, rule.matching.mask);
            let same = known.iter().find(|flow| of(&flow.rule) == of(&rule));
            let entry = same.map_or(id, |flow| flow.entry);
            known.push(Known { id, qp: *qp, rule, entry });
        }
        // With all flows, and again after some were removed.
        for gone in std::iter::once(None).chain(gone.into_iter().map(Some)) {
            if let Some(gone) = gone {
                let before = known.len();
                known.retain(|flow| flow.id != gone);
                prop_assert_eq!(table.remove(gone), known.len() < before);
            }
            for (frame, sender) in &frames {
                let origin = sender.map_or(WIRE, |qp| Origin::Sent { port: 1, qp });
                let (all, fate) = met(&table, frame, origin);
                let mut found: Vec<_> = all.iter().map(|delivery| delivery.flow).collect();
                let mut way = Way { known: &known, fields: Headers::of(frame), met: Vec::new() };
                prop_assert_eq!(fate, way.go(origin));
                found.sort_unstable();
                way.met.sort_unstable();
                prop_assert_eq!(found, way.met);
            }
        }
    }
}
