//! `--generate`: the properties of generated traffic.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::str::FromStr;

use uverbs::AnyRule;
use uverbs::abi::flow::{
    FlowSpecEth, FlowSpecHdr, FlowSpecIpv4, FlowSpecTcpUdp, SPEC_ETH, SPEC_IPV4, SPEC_UDP,
};
use uverbs::soft::{Traffic, Vary};
use zerocopy::FromBytes;

use crate::units;

/// Packets per second by default.
const RATE: u64 = 10_000;

/// The given properties of generated traffic. The others are chosen so that the rule matches it.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    rate: Option<NonZeroU64>,
    size: usize,
    flows: u32,
    vary: Vary,
    dst_mac: Option<[u8; 6]>,
    src_mac: Option<[u8; 6]>,
    dst_ip: Option<Ipv4Addr>,
    src_ip: Option<Ipv4Addr>,
    dst_port: Option<u16>,
    src_port: Option<u16>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            rate: NonZeroU64::new(RATE),
            size: 60,
            flows: 1,
            vary: Vary::SourcePort,
            dst_mac: None,
            src_mac: None,
            dst_ip: None,
            src_ip: None,
            dst_port: None,
            src_port: None,
        }
    }
}

impl FromStr for Spec {
    type Err = String;

    /// `rate=1000,size=64,flows=4`, in any order.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not KEY=VALUE"))?;
            let told = |why: String| format!("{key}: {why}");
            match key {
                "rate" => spec.rate = units::rate(value).map_err(told)?,
                "size" => spec.size = parsed(key, value)?,
                "flows" => spec.flows = parsed(key, value)?,
                "vary" => {
                    spec.vary = match value {
                        "src-port" => Vary::SourcePort,
                        "dst-ip" => Vary::DestinationAddress,
                        _ => return Err("vary: it is src-port or dst-ip".to_owned()),
                    }
                }
                "dst-mac" => spec.dst_mac = Some(units::mac(value).map_err(told)?),
                "src-mac" => spec.src_mac = Some(units::mac(value).map_err(told)?),
                "dst-ip" => spec.dst_ip = Some(parsed(key, value)?),
                "src-ip" => spec.src_ip = Some(parsed(key, value)?),
                "dst-port" => spec.dst_port = Some(parsed(key, value)?),
                "src-port" => spec.src_port = Some(parsed(key, value)?),
                _ => {
                    let keys =
                        "rate, size, flows, vary, dst-mac, src-mac, dst-ip, src-ip, dst-port, src-port";
                    return Err(format!("`{key}` is not one of {keys}"));
                }
            }
        }
        // The generator checks size and flows.
        spec.traffic(None)?;
        Ok(spec)
    }
}

fn parsed<T: FromStr<Err: Display>>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|error| format!("{key}: {error}"))
}

impl Spec {
    /// The generator. Fields without a given value are taken from the rule, if it matches them.
    pub(crate) fn traffic(&self, rule: Option<&AnyRule>) -> Result<Traffic, String> {
        let said = |error: uverbs::soft::TrafficError| error.to_string();
        let traffic = Traffic::new().size(self.size).map_err(said)?.vary(self.vary);
        let mut traffic = traffic.flows(self.flows).map_err(said)?.rate(self.rate);
        if let Some(rule) = rule {
            traffic = aimed(traffic, rule);
        }
        macro_rules! chosen {
            ($($field:ident)*) => {
                $(if let Some(value) = self.$field {
                    traffic = traffic.$field(value);
                })*
            };
        }
        chosen!(dst_mac src_mac dst_ip src_ip dst_port src_port);
        Ok(traffic)
    }
}

/// Traffic with the values that the rule's outer headers match.
fn aimed(mut traffic: Traffic, rule: &AnyRule) -> Traffic {
    let mut specs = rule.specs();
    while let Ok((hdr, _)) = FlowSpecHdr::read_from_prefix(specs) {
        let Some((spec, rest)) = specs.split_at_checked(usize::from(hdr.size).max(size_of::<FlowSpecHdr>()))
        else {
            break;
        };
        specs = rest;
        match hdr.type_ {
            SPEC_ETH => {
                let Ok(eth) = FlowSpecEth::read_from_bytes(spec) else { continue };
                if eth.mask.dst_mac != [0; 6] {
                    traffic = traffic.dst_mac(eth.val.dst_mac);
                }
                if eth.mask.src_mac != [0; 6] {
                    traffic = traffic.src_mac(eth.val.src_mac);
                }
            }
            SPEC_IPV4 => {
                let Ok(ip) = FlowSpecIpv4::read_from_bytes(spec) else { continue };
                if ip.mask.dst_ip.get() != 0 {
                    traffic = traffic.dst_ip(ip.val.dst_ip.get().into());
                }
                if ip.mask.src_ip.get() != 0 {
                    traffic = traffic.src_ip(ip.val.src_ip.get().into());
                }
            }
            SPEC_UDP => {
                let Ok(udp) = FlowSpecTcpUdp::read_from_bytes(spec) else { continue };
                if udp.mask.dst_port.get() != 0 {
                    traffic = traffic.dst_port(udp.val.dst_port.get());
                }
                if udp.mask.src_port.get() != 0 {
                    traffic = traffic.src_port(udp.val.src_port.get());
                }
            }
            _ => {}
        }
    }
    traffic
}
