//! What can be seen of a port. Its state and its speed are in sysfs, which everybody can read. The MTU is not, nor does RDMA netlink report
//! it (Linux 6.1 to 7.3), so the device is opened for it.

use std::fs;
use std::path::Path;

use serde::Serialize;
use uverbs::abi::types::link_layer;
use uverbs::abi::write::QueryPortRespEx;
use uverbs::{Context, Device};

use crate::info::words;

/// A port, as `--json` shows it. What could not be seen is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Port {
    pub(super) port: u32,
    /// `ACTIVE`, `DOWN`, ...
    pub(super) state: Option<String>,
    pub(super) link_layer: Option<String>,
    /// All lanes together.
    pub(super) gigabits_per_second: Option<f64>,
    /// The largest packets, in bytes of payload.
    pub(super) mtu: Option<u32>,
    /// The local identifier, which only ports of InfiniBand have.
    pub(super) lid: Option<u16>,
}

/// The ports of a device, and the reason if something could not be seen.
pub(super) fn all(device: &Device) -> (Vec<Port>, Option<uverbs::Error>) {
    let mut ports: Vec<_> = (1..=device.ports()).map(|port| Port { port, ..Port::default() }).collect();
    if let Some(sysfs) = device.sysfs() {
        ports.iter_mut().for_each(|port| port.see(&sysfs.join(format!("ports/{}", port.port))));
    }
    let asked = device.open().and_then(|context| ports.iter_mut().try_for_each(|port| port.ask(&context)));
    (ports, asked.err())
}

impl Port {
    /// Reads the folder of the port in sysfs.
    fn see(&mut self, folder: &Path) {
        let line = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
        // `4: ACTIVE`, `100 Gb/sec (4X EDR)`.
        self.state = line("state").and_then(|text| Some(text.split_once(": ")?.1.to_owned()));
        self.link_layer = line("link_layer");
        self.gigabits_per_second = line("rate").and_then(|text| text.split_once(" Gb/sec")?.0.parse().ok());
    }

    /// Asks the device for what is missing.
    fn ask(&mut self, context: &Context) -> uverbs::Result<()> {
        let Ok(number) = u8::try_from(self.port) else { return Ok(()) };
        let answer = context.query_port(number)?;
        let attr = answer.legacy_resp;
        self.mtu = words::mtu(attr.active_mtu);
        let state = || words::state(attr.state).trim_start_matches("PORT_").to_owned();
        self.state.get_or_insert_with(state);
        self.link_layer.get_or_insert_with(|| words::link(attr.link_layer).to_owned());
        self.gigabits_per_second = self.gigabits_per_second.or_else(|| speed(&answer));
        self.lid = (attr.link_layer == link_layer::INFINIBAND).then_some(attr.lid);
        Ok(())
    }

    pub(super) fn speed(&self) -> String {
        self.gigabits_per_second.map_or_else(|| "-".to_owned(), |speed| format!("{speed} Gb/s"))
    }
}

/// The speed of a lane, times the number of lanes.
fn speed(answer: &QueryPortRespEx) -> Option<f64> {
    let attr = answer.legacy_resp;
    // The wider field is zero on kernels that do not have it.
    let lane = match answer.active_speed_ex {
        0 => u32::from(attr.active_speed),
        speed => speed,
    };
    let lane = words::speed(lane).strip_suffix(" Gbps")?.parse::<f64>().ok()?;
    Some(lane * words::width(attr.active_width).parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use uverbs::SoftDevice;

    use super::*;

    #[test]
    fn a_port_is_seen_in_sysfs_or_told_by_the_device() {
        let folder = std::env::temp_dir().join(format!("uverbs-port-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in
            [("state", "4: ACTIVE\n"), ("link_layer", "InfiniBand\n"), ("rate", "100 Gb/sec (4X EDR)\n")]
        {
            fs::write(folder.join(name), text).expect("a file");
        }
        let mut port = Port { port: 1, ..Port::default() };
        port.see(&folder);
        fs::write(folder.join("state"), "nonsense\n").expect("a file");
        fs::write(folder.join("rate"), "2.5 Gb/sec (1X SDR)\n").expect("a file");
        let mut odd = Port { port: 1, ..Port::default() };
        odd.see(&folder);
        fs::remove_dir_all(&folder).expect("it is there");
        let (state, link_layer) = (Some("ACTIVE".to_owned()), Some("InfiniBand".to_owned()));
        let seen =
            Port { port: 1, state, link_layer, gigabits_per_second: Some(100.0), mtu: None, lid: None };
        assert_eq!((port.speed().as_str(), &port), ("100 Gb/s", &seen));
        assert_eq!((odd.state.clone(), odd.speed().as_str()), (None, "2.5 Gb/s"));

        // The device adds what sysfs does not have, and changes nothing else.
        let context = SoftDevice::default().open().expect("it opens");
        port.ask(&context).expect("it answers");
        assert_eq!(port, Port { mtu: port.mtu, ..seen });
        assert!(port.mtu >= Some(256));
        odd.ask(&context).expect("it answers");
        assert_eq!(odd.state.as_deref(), Some("ACTIVE"));
    }

    #[test]
    fn a_port_of_which_nothing_can_be_seen_has_dashes() {
        let mut port = Port { port: 1, ..Port::default() };
        port.see(Path::new("/nonexistent"));
        assert_eq!((port.state.as_deref(), port.speed().as_str(), port.mtu), (None, "-", None));
    }
}
