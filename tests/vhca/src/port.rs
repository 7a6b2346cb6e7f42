//! The port: its link, and its addresses.

use std::collections::BTreeMap;

/// The link layer of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LinkLayer {
    #[default]
    Ethernet,
    /// Ethernet, with connected transports over it.
    Roce,
    #[value(name = "infiniband")]
    InfiniBand,
}

/// An entry of the table of global addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gid {
    pub(crate) gid: [u8; 16],
    pub(crate) mac: [u8; 6],
}

/// The port.
#[derive(Debug, Default)]
pub(crate) struct Port {
    pub(crate) link: LinkLayer,
    /// The local identifier, on InfiniBand.
    pub(crate) lid: u16,
    /// Global addresses by their index.
    pub(crate) gids: BTreeMap<u16, Gid>,
    /// The driver has enabled RoCE.
    pub(crate) roce_enabled: bool,
}

impl Port {
    /// An InfiniBand port has one address, derived from its GUID.
    pub(crate) fn new(link: LinkLayer, lid: u16, guid: u64) -> Self {
        let mut gids = BTreeMap::new();
        if link == LinkLayer::InfiniBand {
            let mut gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            gid[8..].copy_from_slice(&guid.to_be_bytes());
            gids.insert(0, Gid { gid, mac: [0; 6] });
        }
        Self { link, lid, gids, roce_enabled: false }
    }

    /// The driver is unloaded, and the addresses that it gave the port are removed. Those of InfiniBand belong to the port.
    pub(crate) fn reset(&mut self) {
        self.roce_enabled = false;
        if self.link != LinkLayer::InfiniBand {
            self.gids.clear();
        }
    }

    /// Whether an address is one of its own.
    pub(crate) fn is_own_gid(&self, gid: &[u8; 16]) -> bool {
        self.gids.values().any(|entry| entry.gid == *gid)
    }
}
