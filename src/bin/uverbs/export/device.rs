//! What is exported of one device.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use uverbs::resources::Resources;
use uverbs::statistics::{Statistic, Statistics};
use uverbs::{Device, ErrorKind};

use super::collect::Source;
use super::exposition::{Families, Metric};
use super::names::Counter;

const SATURATED: Metric<'static> = Metric::gauge(
    "uverbs_saturated",
    "A counter that stands at its end: the true number is this one or any higher one.",
);
const UNREADABLE: Metric<'static> =
    Metric::gauge("uverbs_unreadable", "Counters, or folders of them, that are there and could not be read.");
const RESOURCES: Metric<'static> = Metric::gauge(
    "uverbs_resources",
    "Objects that are alive on the device, by kind, those of the kernel too.",
);
const LIMITS: Metric<'static> = Metric::gauge("uverbs_resources_limit", "How many of these there may be.");
const INFO: Metric<'static> =
    Metric::gauge("node_infiniband_info", "What sysfs tells of a device in words; the value is always 1.");
const DEVICE: Metric<'static> =
    Metric::gauge("uverbs_device_info", "What else is known of a device; the value is always 1.");
const STATE: Metric<'static> = Metric::gauge(
    "node_infiniband_state_id",
    "State of the port (0: no change, 1: down, 2: init, 3: armed, 4: active, 5: act defer).",
);
const PHYSICAL_STATE: Metric<'static> = Metric::gauge(
    "node_infiniband_physical_state_id",
    "Physical state of the port (0: no change, 1: sleep, 2: polling, 3: disabled, 4: training, 5: link up, 6: error recovery, 7: test).",
);
const RATE: Metric<'static> =
    Metric::gauge("node_infiniband_rate_bytes_per_second", "Speed of the port.").in_unit("bytes_per_second");
/// The name of the counter in the kernel, for all devices.
pub(super) const KERNEL_NAME: Metric<'static> = Metric::gauge(
    "uverbs_kernel_name_info",
    "The kernel's name and folder of the counters of a metric with another name; the value is always 1.",
);

/// Reads one device. The device is opened again after a failure.
pub(super) struct Reader {
    device: Device,
    statistics: Statistics,
    resources: Option<Resources>,
    /// Whether each counter gets a label with its name in the kernel.
    kernel_names: bool,
    ports: Vec<Port>,
}

/// The values of a port in sysfs. For each file, the kernel queries the whole port (`ib_query_port`), on some drivers with
/// several firmware commands, and for a network interface without a speed it logs a complaint each time. Of a port that stays
/// active, the state is therefore read each time, and the rest only once in a while.
#[derive(Debug, Default)]
struct Port {
    state: Option<u64>,
    physical_state: Option<u64>,
    rate: Option<f64>,
    /// When the rest was read.
    read: Option<Instant>,
}

/// A port that sends and receives (`enum ib_port_state`, ib_verbs.h).
const ACTIVE: u64 = 4;
/// How long the rest of an active port is not read again.
const WHILE: Duration = Duration::from_secs(60);

impl Port {
    fn read(&mut self, folder: &Path) {
        let before_colon = |name: &str| trimmed(&folder.join(name))?.split(':').next()?.parse::<u64>().ok();
        let before = std::mem::replace(&mut self.state, before_colon("state"));
        let is_quiet = self.state == Some(ACTIVE) && before == self.state;
        if is_quiet && self.read.is_some_and(|read| read.elapsed() < WHILE) {
            return;
        }
        self.physical_state = before_colon("phys_state");
        self.rate = trimmed(&folder.join("rate")).and_then(|rate| bytes_per_second(&rate));
        self.read = Some(Instant::now());
    }
}

impl Reader {
    pub(super) fn new(device: &Device, kernel_names: bool) -> uverbs::Result<Self> {
        let statistics = device.statistics()?;
        let resources = match device.resources() {
            Ok(resources) => Some(resources),
            // Without RDMA netlink there are no such rows.
            Err(error) if error.kind() == ErrorKind::Unsupported => None,
            Err(error) => return Err(error),
        };
        let ports = (1..=device.ports()).map(|_| Port::default()).collect();
        Ok(Self { device: device.clone(), statistics, resources, kernel_names, ports })
    }
}

impl Source for Reader {
    fn read(&mut self) -> Result<Families, String> {
        let mut families = Families::default();
        let device = self.device.name();
        let said = |error: uverbs::Error| error.to_string();
        let rows = self.statistics.read().map_err(said)?;
        for row in rows {
            let (source, name, unit) = (row.source(), row.name(), row.unit());
            let counter =
                Counter { source, name, unit, is_gauge: row.is_gauge(), is_of_port: row.port().is_some() };
            let (metric, label) = counter.metric();
            let port = row.port().map(|port| port.to_string());
            let mut labels = vec![("device", device)];
            labels.extend(port.as_deref().map(|port| ("port", port)));
            let of_port = labels.len();
            let is_beside = |other: &Statistic| (other.port(), other.source()) == (row.port(), source);
            let has_twin = || rows.iter().any(|other| is_beside(other) && counter.is_twin_of(other.name()));
            // If two counters would have the same name, the renamed one gets a label with its own name.
            let label = if self.kernel_names || has_twin() { Some(name) } else { label };
            labels.extend(label.map(|name| ("counter", name)));
            families.add(&metric, &labels, row.value());
            labels.truncate(of_port);
            if row.is_saturated() {
                labels.extend([("counter", name), ("source", source.as_str())]);
                families.add(&SATURATED, &labels, true);
            }
            if counter.is_renamed() {
                let (metric, folder) = (metric.full_name(), source.as_str());
                families.add(
                    &KERNEL_NAME,
                    &[("metric", &metric), ("counter", name), ("source", folder)],
                    true,
                );
            }
        }
        families.unite(&KERNEL_NAME);
        let mut unreadable = self.statistics.missing().len() as u64;
        if let Some(resources) = &mut self.resources {
            match resources.summary() {
                Ok(counts) => {
                    for count in counts {
                        let labels = [("device", device), ("kind", &*count.kind)];
                        families.add(&RESOURCES, &labels, count.number);
                        if let Some(limit) = count.limit {
                            families.add(&LIMITS, &labels, limit);
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::Disassociated => return Err(said(error)),
                Err(_) => unreadable += 1,
            }
        }
        families.add(&UNREADABLE, &[("device", device)], unreadable);
        self.words(&mut families);
        Ok(families)
    }
}

impl Reader {
    /// Values that are not counters: the description of the device, and the states of its ports.
    fn words(&mut self, families: &mut Families) {
        let (device, root) = (self.device.name(), self.device.sysfs());
        let guid = self.device.node_guid().to_string();
        let of_device = [
            ("device", device),
            ("driver", self.device.driver()),
            ("protocol", self.device.protocol().unwrap_or_default()),
            ("node_guid", &guid),
        ];
        families.add(&DEVICE, &of_device, true);
        let Some(root) = root else { return };
        let text = |name: &str| trimmed(&root.join(name)).unwrap_or_default();
        let (board, firmware, kind) = (text("board_id"), text("fw_ver"), text("hca_type"));
        let labels =
            [("device", device), ("board_id", &board), ("firmware_version", &firmware), ("hca_type", &kind)];
        families.add(&INFO, &labels, true);
        for (number, port) in (1..).zip(&mut self.ports) {
            let number: u32 = number;
            port.read(&root.join(format!("ports/{number}")));
            let number = number.to_string();
            let labels = [("device", device), ("port", &*number)];
            for (metric, state) in [(&STATE, port.state), (&PHYSICAL_STATE, port.physical_state)] {
                if let Some(state) = state {
                    families.add(metric, &labels, state);
                }
            }
            if let Some(rate) = port.rate {
                families.add(&RATE, &labels, rate);
            }
        }
    }
}

fn trimmed(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// `100 Gb/sec (4X EDR)` (`rate_show`, core/sysfs.c, Linux 6.1).
fn bytes_per_second(rate: &str) -> Option<f64> {
    let gigabits: f64 = rate.split_once(" Gb/sec")?.0.parse().ok()?;
    Some(gigabits * 1e9 / 8.0)
}

#[cfg(test)]
mod tests {
    use uverbs::SoftDevice;

    use super::super::exposition::Form;
    use super::*;

    #[test]
    fn rates_are_bytes() {
        assert_eq!(bytes_per_second("100 Gb/sec (4X EDR)"), Some(1.25e10));
        assert_eq!(bytes_per_second("2.5 Gb/sec (1X SDR)"), Some(3.125e8));
        for text in ["", "fast", " Gb/sec", "x Gb/sec"] {
            assert_eq!(bytes_per_second(text), None);
        }
    }

    #[test]
    fn an_active_port_is_asked_for_little() {
        let folder = std::env::temp_dir().join(format!("uverbs-port-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a directory");
        let file = |name: &str, text: &str| fs::write(folder.join(name), text).expect("it is ours");
        let mut port = Port::default();
        let mut told = |state: &str, rate: &str| {
            file("state", state);
            file("phys_state", "5: LinkUp\n");
            file("rate", rate);
            port.read(&folder);
            (port.state, port.physical_state, port.rate)
        };
        assert_eq!(told("4: ACTIVE\n", "8 Gb/sec\n"), (Some(4), Some(5), Some(1e9)));
        assert_eq!(told("4: ACTIVE\n", "16 Gb/sec\n").2, Some(1e9), "not asked again so soon");
        assert_eq!(told("1: DOWN\n", "16 Gb/sec\n"), (Some(1), Some(5), Some(2e9)));
        assert_eq!(told("1: DOWN\n", "24 Gb/sec\n").2, Some(3e9));
        assert_eq!(told("4: ACTIVE\n", "32 Gb/sec\n").2, Some(4e9));
        fs::remove_dir_all(&folder).expect("it is ours");
        port.read(&folder);
        assert_eq!((port.state, port.physical_state, port.rate), (None, None, None));
    }

    #[test]
    fn the_soft_device_is_told_whole() {
        let soft = SoftDevice::default();
        let context = soft.open().expect("it opens");
        let _domain = context.alloc_pd().expect("a domain");
        soft.inject(&[0; 60]);
        let device = soft.device();
        for kernel_names in [false, true] {
            let mut reader = Reader::new(&device, kernel_names).expect("it is there");
            let text = reader.read().expect("it is read").text(Form::Text);
            let label = if kernel_names { ",counter=\"rcvd_bytes\"" } else { "" };
            for line in [
                &*format!("uverbs_hw_rcvd_bytes_total{{device=\"soft0\",port=\"1\"{label}}} 60"),
                "# TYPE uverbs_hw_rcvd_bytes_total counter",
                "uverbs_resources{device=\"soft0\",kind=\"pd\"} 1",
                "uverbs_unreadable{device=\"soft0\"} 0",
            ] {
                assert!(text.lines().any(|there| there == line), "{line}: {text}");
            }
        }
    }
}
