//! `uverbs devices --gids`: the addresses of ports, as `show_gids` prints them.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use serde::Serialize;
use uverbs::{Device, GidKind, Peer};

use crate::table::{Cell, Table};

/// An address, as `--json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    device: String,
    port: u32,
    index: u32,
    gid: String,
    ipv4: Option<Ipv4Addr>,
    /// `v1` or `v2` of RoCE, or `IB`.
    version: Option<&'static str>,
    net_device: Option<String>,
    /// Whether programs can use it in this network namespace; none if the device could not be asked.
    usable: Option<bool>,
    /// Why it cannot be used, or why it would be chosen.
    reason: Option<String>,
}

/// The addresses of a device, with what it says of their use, if it can be opened.
pub(super) fn all(device: &Device) -> uverbs::Result<Vec<Row>> {
    let mut rows = listed(device)?;
    if let Ok(context) = device.open() {
        for port in 1..=u8::try_from(device.ports()).unwrap_or(u8::MAX) {
            for candidate in context.gid_candidates(port, Peer::Unknown).into_iter().flatten() {
                let is_it =
                    |row: &&mut Row| row.port == candidate.gid.port && row.index == candidate.gid.index;
                for row in rows.iter_mut().filter(is_it) {
                    row.usable = Some(candidate.rating.is_ok());
                    row.reason = Some(match &candidate.rating {
                        Ok(reason) => reason.to_string(),
                        Err(fault) => fault.to_string(),
                    });
                }
            }
        }
    }
    Ok(rows)
}

/// The addresses of a device: from sysfs, or, without it, from the device itself.
fn listed(device: &Device) -> uverbs::Result<Vec<Row>> {
    let name = device.name();
    if let Some(sysfs) = device.sysfs().filter(|path| path.join("ports").exists()) {
        let ports = 1..=device.ports();
        return Ok(ports
            .flat_map(|port| of_port(name, port, &sysfs.join(format!("ports/{port}"))))
            .collect());
    }
    let gids = device.open()?.gid_table()?;
    let row = |gid: &uverbs::Gid| {
        let address = Ipv6Addr::from(gid.raw);
        let version = match gid.kind {
            GidKind::InfiniBand => Some("IB"),
            GidKind::RoceV1 => Some("v1"),
            GidKind::RoceV2 => Some("v2"),
            _ => None,
        };
        Row::new(name, gid.port, gid.index, address, version, None)
    };
    Ok(gids.iter().map(row).collect())
}

/// The addresses in the folder of a port. An entry that is empty has no file with its type (`_show_port_gid_attr`, sysfs.c, Linux 6.1).
fn of_port(device: &str, port: u32, folder: &Path) -> Vec<Row> {
    let line = |name: String| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
    let is_infiniband = line("link_layer".to_owned()).as_deref() == Some("InfiniBand");
    let entries = fs::read_dir(folder.join("gids")).into_iter().flatten().flatten();
    let mut indexes: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    indexes.sort_unstable();
    let row = |index: u32| {
        let address: Ipv6Addr = line(format!("gids/{index}"))?.parse().ok()?;
        let version = match line(format!("gid_attrs/types/{index}")).as_deref() {
            _ if is_infiniband => Some("IB"),
            Some("RoCE v2") => Some("v2"),
            Some("IB/RoCE v1") => Some("v1"),
            _ => None,
        };
        let net = line(format!("gid_attrs/ndevs/{index}")).filter(|name| !name.is_empty());
        // The second half of an address is zero only in an entry that is not used.
        (address.octets()[8..] != [0; 8]).then(|| Row::new(device, port, index, address, version, net))
    };
    indexes.into_iter().filter_map(row).collect()
}

impl Row {
    fn new(
        device: &str,
        port: u32,
        index: u32,
        address: Ipv6Addr,
        version: Option<&'static str>,
        net_device: Option<String>,
    ) -> Self {
        // In full, as in sysfs.
        let gid = address.segments().map(|word| format!("{word:04x}")).join(":");
        let ipv4 = address.to_ipv4_mapped();
        let (usable, reason) = (None, None);
        Self { device: device.to_owned(), port, index, gid, ipv4, version, net_device, usable, reason }
    }

    fn line(&self) -> Vec<Cell> {
        let or_dash = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "-".to_owned()));
        vec![
            self.device.escape_debug().to_string().into(),
            Cell::number(self.port),
            Cell::number(self.index),
            self.gid.clone().into(),
            or_dash(self.ipv4.map(|address| address.to_string())),
            or_dash(self.version.map(str::to_owned)),
            or_dash(self.net_device.as_ref().map(|name| name.escape_debug().to_string())),
            match (self.usable, &self.reason) {
                (Some(true), _) => "yes".into(),
                (Some(false), Some(reason)) => format!("no: {reason}").into(),
                _ => "-".into(),
            },
        ]
    }
}

pub(super) fn table(rows: &[Row]) -> Table {
    let mut table =
        Table::with_head(&["DEVICE", "PORT", "INDEX", "GID", "IPV4", "VERSION", "NET DEVICE", "USABLE"]);
    rows.iter().for_each(|row| table.push(row.line()));
    table
}

#[cfg(test)]
mod tests {
    use uverbs::SoftDevice;

    use super::*;

    #[test]
    fn entries_that_are_used_are_listed_in_order() {
        let folder = std::env::temp_dir().join(format!("uverbs-gids-{}", std::process::id()));
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        file("link_layer", "Ethernet\n");
        for (index, gid, kind, net) in [
            (10, "0000:0000:0000:0000:0000:ffff:c000:0201", "RoCE v2", "eth0"),
            (2, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "IB/RoCE v1", "eth0"),
            (3, "0000:0000:0000:0000:0000:0000:0000:0000", "", ""),
            (4, "fe80:0000:0000:0000:0000:0000:0000:0000", "", ""),
            (5, "nonsense", "RoCE v2", "eth0"),
        ] {
            file(&format!("gids/{index}"), &format!("{gid}\n"));
            if !kind.is_empty() {
                file(&format!("gid_attrs/types/{index}"), &format!("{kind}\n"));
                file(&format!("gid_attrs/ndevs/{index}"), &format!("{net}\n"));
            }
        }
        let rows = of_port("rxe0", 1, &folder);
        file("link_layer", "InfiniBand\n");
        let infiniband = of_port("rxe0", 1, &folder);
        fs::remove_dir_all(&folder).expect("it is there");
        let shown: Vec<_> =
            rows.iter().map(|row| (row.index, row.version, row.ipv4, row.net_device.as_deref())).collect();
        let address = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(
            shown,
            [(2, Some("v1"), None, Some("eth0")), (10, Some("v2"), Some(address), Some("eth0"))]
        );
        assert_eq!(rows[0].gid, "fe80:0000:0000:0000:5054:00ff:fe12:3456");
        assert!(infiniband.iter().all(|row| row.version == Some("IB")));
    }

    #[test]
    fn without_sysfs_the_device_is_asked() {
        let rows = all(&SoftDevice::default().device()).expect("it answers");
        assert!(
            !rows.is_empty() && rows.iter().all(|row| row.port == 1 && row.version == Some("v2")),
            "{rows:?}"
        );
    }
}
