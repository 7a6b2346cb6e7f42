//! What a side says of its port.

use std::fs;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use uverbs::abi::types::{node_type, port_state};
use uverbs::{Context, GidKind, Peer};

use crate::Outcome;
use crate::doctor::machine::Machine;
use crate::failure::Failure;
use crate::info::words;

/// The number of the format.
const FORMAT: u32 = 1;
/// Longest word of the other side that is kept.
const WORD: usize = 64;
/// Most addresses of the other side that are kept.
const ADDRESSES: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) format: u32,
    pub(super) driver: String,
    pub(super) link: String,
    pub(super) is_active: bool,
    /// Whether queue pairs are connected without a connection manager, and have reliable connections.
    pub(super) connects: bool,
    /// Code and bytes of the port's packets.
    pub(super) mtu: u8,
    pub(super) mtu_bytes: u32,
    pub(super) gids: Vec<Entry>,
    /// The type of service that the connection manager gives to connections which have none of their own. `None` if it cannot be seen: configfs is
    /// not mounted, or the program is an older one.
    #[serde(default)]
    pub(super) tos: Option<u8>,
}

/// An address of the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) index: u8,
    pub(super) address: Ipv6Addr,
    pub(super) kind: String,
    /// Whether it can be used from the network namespace of the program.
    pub(super) is_usable: bool,
    pub(super) interface: Option<String>,
    pub(super) vlan: Option<u16>,
    /// The interface's MTU.
    pub(super) interface_mtu: Option<u32>,
    /// The priorities of a VLAN for those of packets, as root sees them: `0:0 3:5`.
    #[serde(default)]
    pub(super) priorities: Option<String>,
}

impl Facts {
    pub(super) fn of(context: &Context, port: u8) -> Outcome<Self> {
        let answer = context.query_port(port)?.legacy_resp;
        let (device, machine) = (context.device(), Machine::here());
        let entries = context.gid_candidates(port, Peer::Unknown)?.into_iter().filter_map(|candidate| {
            let interface = candidate.interface;
            let mtu =
                interface.as_ref().and_then(|name| machine.number(&format!("sys/class/net/{name}/mtu")));
            Some(Entry {
                index: u8::try_from(candidate.gid.index).ok()?,
                address: Ipv6Addr::from(candidate.gid.raw),
                kind: match candidate.gid.kind {
                    GidKind::InfiniBand => "InfiniBand".to_owned(),
                    kind => kind.to_string(),
                },
                is_usable: candidate.rating.is_ok(),
                vlan: interface.as_deref().and_then(vlan),
                priorities: interface.as_deref().and_then(|name| priorities(&machine, name)),
                interface,
                interface_mtu: mtu.and_then(|mtu| u32::try_from(mtu).ok()),
            })
        });
        let mut gids: Vec<_> = entries.take(ADDRESSES).collect();
        gids.sort_by_key(|entry| entry.index);
        let (mtu, mtu_bytes) =
            words::mtu(answer.active_mtu).map_or((1, 256), |bytes| (answer.active_mtu, bytes));
        Ok(Self {
            format: FORMAT,
            driver: device.driver().to_owned(),
            link: words::link(answer.link_layer).to_owned(),
            is_active: answer.state == port_state::ACTIVE,
            connects: device.node_type() != node_type::RNIC && device.driver() != "efa",
            mtu,
            mtu_bytes,
            gids,
            tos: tos(&machine, device.name(), port),
        })
    }

    pub(super) fn written(&self) -> Outcome<String> {
        serde_json::to_string(self).map_err(|error| Failure::Other(error.to_string()))
    }

    /// What the other side has said, shortened to what can be shown.
    pub(super) fn read(text: &str) -> Outcome<Self> {
        let wrong = |what: String| Failure::Other(format!("the peer is no `uverbs doctor --peer`: {what}"));
        let mut facts: Self = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if facts.format != FORMAT {
            return Err(wrong(format!("format {}; this program knows {FORMAT}", facts.format)));
        }
        let bytes = words::mtu(facts.mtu);
        facts.mtu_bytes = bytes.ok_or_else(|| wrong(format!("packets of the code {}", facts.mtu)))?;
        facts.gids.truncate(ADDRESSES);
        for word in [&mut facts.driver, &mut facts.link] {
            *word = shown(word);
        }
        for entry in &mut facts.gids {
            entry.kind = shown(&entry.kind);
            entry.interface = entry.interface.as_deref().map(shown);
            entry.priorities = entry.priorities.as_deref().map(shown);
        }
        Ok(facts)
    }
}

impl Entry {
    pub(super) fn is_ipv4(&self) -> bool {
        self.address.to_ipv4_mapped().is_some()
    }

    /// An address without an interface.
    #[cfg(test)]
    pub(super) fn at(index: u8, address: Ipv6Addr, kind: &str) -> Self {
        let (interface, vlan, interface_mtu, priorities) = (None, None, None, None);
        Self {
            index,
            address,
            kind: kind.to_owned(),
            is_usable: true,
            interface,
            vlan,
            interface_mtu,
            priorities,
        }
    }

    /// `index 1, 192.0.2.1 (RoCE v2)`.
    pub(super) fn named(&self) -> String {
        format!("index {}, {} ({})", self.index, self.address.to_canonical(), self.kind)
    }
}

/// A word as it can be printed.
pub(super) fn shown(word: &str) -> String {
    word.chars().take(WORD).collect::<String>().escape_debug().to_string()
}

/// The VLAN of an interface that stands on another one and has its number in its name, as is usual: `eth0.5`, `vlan5`. The kernel tells the
/// number itself to root alone (/proc/net/vlan).
fn vlan(interface: &str) -> Option<u16> {
    let folder = fs::read_dir(format!("/sys/class/net/{interface}")).ok()?;
    let mut names = folder.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    if !names.any(|name| name.starts_with("lower_")) {
        return None;
    }
    let digits = interface.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|number| (1..4095).contains(number))
}

/// What the connection manager's folder says (core/cma_configfs.c, Linux 7.3). A device has a folder there once somebody has made it, which
/// is what setting the value begins with. A namespace, or a container, may have no configfs.
fn tos(machine: &Machine, device: &str, port: u8) -> Option<u8> {
    let folder = format!("sys/kernel/config/rdma_cm/{device}");
    match machine.exists(&folder) {
        true => u8::try_from(machine.number(&format!("{folder}/ports/{port}/default_roce_tos"))?).ok(),
        false => machine.exists("sys/kernel/config/rdma_cm").then_some(0),
    }
}

/// The line `EGRESS priority mappings: 0:0 3:5` of a VLAN (net/8021q/vlanproc.c, Linux 7.3), which root alone may read.
fn priorities(machine: &Machine, interface: &str) -> Option<String> {
    let text = machine.text(&format!("proc/net/vlan/{interface}"))?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("EGRESS priority mappings:"))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use uverbs::SoftDevice;

    use super::*;

    #[test]
    fn facts_are_read_as_they_were_written() {
        let context = SoftDevice::default().open().expect("it opens");
        let facts = Facts::of(&context, 1).expect("a port");
        assert!(!facts.gids.is_empty() && facts.connects && facts.is_active);
        assert_eq!(Facts::read(&facts.written().expect("text")).expect("facts"), facts);
    }

    #[test]
    fn the_managers_type_of_service_is_read_where_configfs_is() {
        let root = std::env::temp_dir().join(format!("uverbs-doctor-facts-{}", std::process::id()));
        let machine = Machine::at(&root);
        let mut found = vec![tos(&machine, "mlx5_0", 1)];
        let folder = root.join("sys/kernel/config/rdma_cm");
        fs::create_dir_all(&folder).expect("a folder");
        found.push(tos(&machine, "mlx5_0", 1));
        fs::create_dir_all(folder.join("mlx5_0/ports/1")).expect("a folder");
        found.push(tos(&machine, "mlx5_0", 1));
        fs::write(folder.join("mlx5_0/ports/1/default_roce_tos"), "104\n").expect("a file");
        found.push(tos(&machine, "mlx5_0", 1));
        let vlan = "eth0.5  VID: 5\nINGRESS priority mappings: 0:0\n EGRESS priority mappings: 0:0 4:3 \nDevice: eth0\n";
        fs::create_dir_all(root.join("proc/net/vlan")).expect("a folder");
        fs::write(root.join("proc/net/vlan/eth0.5"), vlan).expect("a file");
        let maps = [priorities(&machine, "eth0.5"), priorities(&machine, "eth0")];
        fs::remove_dir_all(&root).expect("it was there");
        assert_eq!(found, [None, Some(0), None, Some(104)]);
        assert_eq!(maps, [Some("0:0 4:3".to_owned()), None]);
    }

    #[test]
    fn what_another_program_says_is_refused_or_cannot_do_harm() {
        let context = SoftDevice::default().open().expect("it opens");
        let facts = Facts::of(&context, 1).expect("a port");
        for text in ["", "{}", "hello", "[1]"] {
            assert!(Facts::read(text).is_err(), "{text}");
        }
        for wrong in [Facts { format: 2, ..facts.clone() }, Facts { mtu: 60, ..facts.clone() }] {
            assert!(Facts::read(&wrong.written().expect("text")).is_err());
        }
        let mut strange = Facts { driver: format!("\x1b[2J{}", "x".repeat(1000)), ..facts };
        strange.gids = vec![strange.gids[0].clone(); 1000];
        let read = Facts::read(&strange.written().expect("text")).expect("facts");
        assert!(read.driver.starts_with("\\u{1b}[2Jx") && read.driver.len() < 100, "{}", read.driver);
        assert_eq!(read.gids.len(), ADDRESSES);
    }
}
