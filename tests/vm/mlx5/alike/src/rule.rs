//! Rules as the steps write them. A word with `=` sets a field; any other word begins a header or an action. A value is hexadecimal, with
//! a mask after `/` unless all bits count.

use uverbs::{
    Counters, Esp, Eth, FlowLabel, FlowRule, FlowTag, Gre, Ipv4, Ipv6, Mpls, Normal, Tcp, Udp, Vni, Vxlan,
};

type Counted<'a> = &'a dyn Fn(&str) -> Result<&'a Counters, String>;

fn number(word: &str) -> Result<u128, String> {
    u128::from_str_radix(word, 16).map_err(|error| format!("{word}: {error}"))
}

/// Sets each field of a header by its own method: name, value and mask.
fn header<T>(
    mut spec: T,
    words: &[&str],
    set: impl Fn(T, &str, u128, u128) -> Option<T>,
) -> Result<T, String> {
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}: no value"))?;
        let (value, mask) = match value.split_once('/') {
            Some((value, mask)) => (number(value)?, number(mask)?),
            None => (number(value)?, u128::MAX),
        };
        spec = set(spec, name, value, mask).ok_or_else(|| format!("{word}: no such field"))?;
    }
    Ok(spec)
}

fn mac(number: u128) -> [u8; 6] {
    let bytes = number.to_be_bytes();
    std::array::from_fn(|i| bytes[10 + i])
}

fn eth(spec: Eth, name: &str, value: u128, mask: u128) -> Option<Eth> {
    Some(match name {
        "dst" => spec.dst_masked(mac(value), mac(mask)),
        "src" => spec.src_masked(mac(value), mac(mask)),
        "type" => spec.ether_type_masked(value as u16, mask as u16),
        "vlan" => spec.vlan_tci_masked(value as u16, mask as u16),
        _ => return None,
    })
}

fn ipv4(spec: Ipv4, name: &str, value: u128, mask: u128) -> Option<Ipv4> {
    Some(match name {
        "src" => spec.src_masked((value as u32).into(), (mask as u32).into()),
        "dst" => spec.dst_masked((value as u32).into(), (mask as u32).into()),
        "proto" => spec.protocol_masked(value as u8, mask as u8),
        "tos" => spec.tos_masked(value as u8, mask as u8),
        "ttl" => spec.ttl_masked(value as u8, mask as u8),
        "flags" => spec.flags_masked(value as u8, mask as u8),
        _ => return None,
    })
}

fn ipv6(spec: Ipv6, name: &str, value: u128, mask: u128) -> Option<Ipv6> {
    let label = |number: u128| FlowLabel::new(number as u32 & FlowLabel::MAX.get());
    Some(match name {
        "src" => spec.src_masked(value.into(), mask.into()),
        "dst" => spec.dst_masked(value.into(), mask.into()),
        "label" => spec.flow_label_masked(label(value)?, label(mask)?),
        "next" => spec.next_header_masked(value as u8, mask as u8),
        "class" => spec.traffic_class_masked(value as u8, mask as u8),
        "hops" => spec.hop_limit_masked(value as u8, mask as u8),
        _ => return None,
    })
}

fn tcp(spec: Tcp, name: &str, value: u128, mask: u128) -> Option<Tcp> {
    Some(match name {
        "dst" => spec.dst_port_masked(value as u16, mask as u16),
        "src" => spec.src_port_masked(value as u16, mask as u16),
        _ => return None,
    })
}

fn udp(spec: Udp, name: &str, value: u128, mask: u128) -> Option<Udp> {
    Some(match name {
        "dst" => spec.dst_port_masked(value as u16, mask as u16),
        "src" => spec.src_port_masked(value as u16, mask as u16),
        _ => return None,
    })
}

fn esp(spec: Esp, name: &str, value: u128, mask: u128) -> Option<Esp> {
    Some(match name {
        "spi" => spec.spi_masked(value as u32, mask as u32),
        "seq" => spec.sequence_masked(value as u32, mask as u32),
        _ => return None,
    })
}

fn gre(spec: Gre, name: &str, value: u128, mask: u128) -> Option<Gre> {
    Some(match name {
        "flags" => spec.flags_masked(value as u16, mask as u16),
        "protocol" => spec.protocol_masked(value as u16, mask as u16),
        "key" => spec.key_masked(value as u32, mask as u32),
        _ => return None,
    })
}

fn vxlan(spec: Vxlan, name: &str, value: u128, mask: u128) -> Option<Vxlan> {
    let vni = |number: u128| Vni::new(number as u32 & Vni::MAX.get());
    (name == "vni").then_some(spec.vni_masked(vni(value)?, vni(mask)?))
}

fn mpls(spec: Mpls, name: &str, value: u128, mask: u128) -> Option<Mpls> {
    (name == "word").then_some(spec.word_masked(value as u32, mask as u32))
}

/// A rule with the headers and actions that the words describe.
pub(crate) fn normal(
    priority: u16,
    words: &[&str],
    counters: Counted<'_>,
) -> Result<FlowRule<Normal>, String> {
    let mut rule = FlowRule::normal(1).priority(priority);
    let mut rest = words;
    while let Some((name, after)) = rest.split_first() {
        let count = after.iter().take_while(|word| word.contains('=')).count();
        let (fields, next) = after.split_at(count);
        rest = next;
        let value = || fields.first().and_then(|word| word.split('=').nth(1)).unwrap_or_default();
        rule = match *name {
            "eth" => rule.eth(header(Eth::any(), fields, eth)?),
            "ipv4" => rule.ipv4(header(Ipv4::any(), fields, ipv4)?),
            "ipv6" => rule.ipv6(header(Ipv6::any(), fields, ipv6)?),
            "tcp" => rule.tcp(header(Tcp::any(), fields, tcp)?),
            "udp" => rule.udp(header(Udp::any(), fields, udp)?),
            "esp" => rule.esp(header(Esp::any(), fields, esp)?),
            "gre" => rule.gre(header(Gre::any(), fields, gre)?),
            "vxlan" => rule.vxlan(header(Vxlan::any(), fields, vxlan)?),
            "mpls" => rule.mpls(header(Mpls::any(), fields, mpls)?),
            "inner.eth" => rule.inner(header(Eth::any(), fields, eth)?),
            "inner.ipv4" => rule.inner(header(Ipv4::any(), fields, ipv4)?),
            "inner.ipv6" => rule.inner(header(Ipv6::any(), fields, ipv6)?),
            "inner.tcp" => rule.inner(header(Tcp::any(), fields, tcp)?),
            "inner.udp" => rule.inner(header(Udp::any(), fields, udp)?),
            "drop" => rule.drop(),
            "tag" => {
                let tag = value().parse().ok().and_then(FlowTag::new);
                rule.tag(tag.ok_or_else(|| format!("tag {}", value()))?)
            }
            "count" => rule.count(counters(value())?),
            _ => return Err(format!("{name}: no such header")),
        };
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use uverbs::SoftDevice;

    use super::*;

    #[test]
    fn every_rule_of_the_steps_is_understood() {
        let counters = SoftDevice::default().open().unwrap().create_counters().unwrap();
        let rules = include_str!("../steps.txt").lines().filter(|line| line.starts_with("flow "));
        let mut seen = 0;
        for words in rules.map(|line| line.split_whitespace().collect::<Vec<_>>()) {
            let rule = normal(0, &words[6..], &|_| Ok(&counters));
            assert!(rule.is_ok(), "{words:?}");
            seen += 1;
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn a_field_that_is_not_there_is_an_error() {
        let none = |_: &str| Err("no counters".to_owned());
        for words in
            [["eth", "ttl=40"], ["eht", "dst=00"], ["ipv4", "ttl=x"], ["count", "id=0"], ["tag", "id="]]
        {
            assert!(normal(0, &words, &none).is_err(), "{words:?}");
        }
    }
}
