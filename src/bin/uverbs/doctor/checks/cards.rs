//! Cards on the PCI bus that could have an RDMA device and have none.
//!
//! Source: the tables of PCI numbers of the kernel's drivers, Linux 6.1 to 7.3 (mlx5_core, mlx4_core, efa, mana, erdma, ionic, bnxt_en, ice,
//! i40e, qede, cxgb4), and the names of their RDMA modules in drivers/infiniband/hw.

use crate::doctor::finding::{Finding, Severity};
use crate::doctor::seen::Seen;

/// A kind of cards.
struct Kind {
    name: &'static str,
    /// The driver of the card, and the module that makes its RDMA device.
    driver: &'static str,
    module: &'static str,
}

/// Cards that all have RDMA: vendor, range of device numbers.
const CARDS: &[(u32, u32, u32, Kind)] = &[
    (0x15b3, 0x1002, 0x1010, Kind { name: "ConnectX-3", driver: "mlx4_core", module: "mlx4_ib" }),
    (0x15b3, 0x1011, 0x10ff, Kind { name: "ConnectX-4 or later", driver: "mlx5_core", module: "mlx5_ib" }),
    (0x15b3, 0xa2d2, 0xa2df, Kind { name: "BlueField", driver: "mlx5_core", module: "mlx5_ib" }),
    (0x1d0f, 0xefa0, 0xefaf, Kind { name: "Elastic Fabric Adapter", driver: "efa", module: "efa" }),
    (0x1414, 0x00ba, 0x00ba, Kind { name: "MANA", driver: "mana", module: "mana_ib" }),
    (0x1ded, 0x107f, 0x107f, Kind { name: "eRDMA", driver: "erdma", module: "erdma" }),
];

/// Drivers of network cards of which some have RDMA.
const DRIVERS: &[Kind] = &[
    Kind { name: "Pensando", driver: "ionic", module: "ionic_rdma" },
    Kind { name: "NetXtreme-E", driver: "bnxt_en", module: "bnxt_re" },
    Kind { name: "E800", driver: "ice", module: "irdma" },
    Kind { name: "X722", driver: "i40e", module: "irdma" },
    Kind { name: "FastLinQ", driver: "qede", module: "qedr" },
    Kind { name: "T5 or T6", driver: "cxgb4", module: "iw_cxgb4" },
];

/// Drivers that hand a card to a program or to a virtual machine.
const HANDED_OVER: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let machine = &seen.machine;
    let mut found = Vec::new();
    for address in machine.names("sys/bus/pci/devices") {
        let folder = format!("sys/bus/pci/devices/{address}");
        if !machine.names(&format!("{folder}/infiniband")).is_empty() {
            continue;
        }
        let driver = machine.link(&format!("{folder}/driver"));
        let number = |name: &str| {
            let text = machine.text(&format!("{folder}/{name}"))?;
            u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
        };
        let Some((vendor, device)) = number("vendor").zip(number("device")) else { continue };
        let is_it = |(of, first, last, _): &&(u32, u32, u32, Kind)| {
            *of == vendor && (*first..=*last).contains(&device)
        };
        let by_number = CARDS.iter().find(is_it).map(|(.., kind)| kind);
        let by_driver = || DRIVERS.iter().find(|kind| driver.as_deref() == Some(kind.driver));
        if let Some(kind) = by_number.or_else(by_driver) {
            found.push(without_device(seen, &address, kind, driver.as_deref(), by_number.is_some()));
        }
    }
    if seen.devices.is_empty() && found.iter().all(|finding| finding.severity == Severity::Note) {
        found.push(none(seen));
    }
    found
}

/// A card without an RDMA device.
fn without_device(seen: &Seen, address: &str, kind: &Kind, driver: Option<&str>, is_sure: bool) -> Finding {
    let Kind { name, driver: wanted, module } = kind;
    let card = format!("{address} is a card ({name})");
    if let Some(other) = driver.filter(|driver| HANDED_OVER.contains(driver)) {
        return Finding::note(
            "card-handed-over",
            format!("{card}, used by {other}"),
            "another program or a virtual machine has the card, so it has no RDMA device here",
        )
        .mend(format!("to have it back: driverctl unset-override {address}, or bind it to {wanted}"));
    }
    let is_loaded = seen.machine.has_module(module);
    let (seen_there, mend) = match driver {
        None => (
            format!("{card}, and no driver uses it"),
            format!("modprobe {wanted}; if it is loaded: dmesg says why it refuses the card"),
        ),
        Some(_) if !is_loaded => (
            format!("{card}, and the module {module} is not loaded"),
            format!("modprobe {module}; a kernel for clouds may lack it: install the full kernel package"),
        ),
        Some(_) => (
            format!("{card}, and {module} has made no RDMA device of it"),
            format!(
                "devlink dev param show pci/{address} (enable_rdma, enable_roce); dmesg; in a container also: rdma system show"
            ),
        ),
    };
    let why = "a card has an RDMA device when both of its modules are loaded and RDMA is not switched off";
    match is_sure && seen.devices.is_empty() {
        true => Finding::problem("card-without-device", seen_there, why),
        false if is_sure => Finding::warning("card-without-device", seen_there, why),
        false => Finding::note("card-without-device", seen_there, why),
    }
    .mend(mend)
}

/// A machine without any device or card.
fn none(seen: &Seen) -> Finding {
    let is_hidden = !seen.machine.exists("sys/bus");
    let (what, why) = match is_hidden {
        true => (
            "no RDMA device, and sysfs is not mounted or not shown here",
            "without sysfs it cannot be seen whether there is a card",
        ),
        false => (
            "no RDMA device, and no card that is known to have one",
            "programs that need RDMA find nothing here",
        ),
    };
    Finding::problem("no-device", what, why)
        .mend("software RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE; without any module: uverbs ping --device soft@ADDRESS")
}
