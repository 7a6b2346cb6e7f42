//! Tests of the change between two readings: counters that grow, wrap, stop, are set back, go and come again.

use std::time::Duration;

use super::*;
use crate::device::statistics::kernel::Kernel;
use crate::device::statistics::tests::{device, tree};
use crate::device::statistics::{Reader, Statistics};
use crate::driver::Driver;

/// A value of a port that was read `second` seconds after `start`, and can count `most` per second.
struct At {
    start: Instant,
    most: Option<u64>,
    driver: Driver,
}

impl At {
    fn new(driver: Driver, most: Option<u64>) -> Self {
        Self { start: Instant::now(), most, driver }
    }

    fn row(&self, name: &str, source: Source, raw: u64, second: u64) -> Statistic {
        let meaning = Meaning::of(source, name, true, &self.driver);
        let taken = self.start + Duration::from_secs(second);
        let row = Statistic::new((Some(1), source), name.to_owned(), raw, meaning, taken);
        Statistic { most: self.most.filter(|_| row.meaning.of_packets), ..row }
    }

    /// The change from `before` to `now`, which was read so many seconds later.
    fn change(&self, name: &str, source: Source, before: u64, now: u64, seconds: u64) -> Change {
        self.row(name, source, now, seconds).change(&self.row(name, source, before, 0))
    }
}

fn card() -> Driver {
    Driver::of(uverbs_abi::types::driver_id::MLX5)
}

const PORT: Source = Source::Port;
const OWN: Source = Source::Hardware;
const TOP: u64 = u32::MAX as u64;

#[test]
fn growth_is_in_units_and_a_level_and_a_saturated_counter_have_none() {
    let other = At::new(Driver::Other, None);
    assert_eq!(other.change("port_rcv_data", PORT, 10, 15, 1), Change::Grown(20));
    assert_eq!(other.change("port_rcv_data", PORT, 10, 10, 1), Change::Grown(0));
    assert_eq!(other.change("link_downed", PORT, 3, 255, 1), Change::Unknown, "255 or more");
    assert_eq!(other.change("active_qps", OWN, 4, 7, 1), Change::Unknown, "a level");
    assert_eq!(other.change("active_qps", OWN, 7, 4, 1), Change::Unknown, "a level");
    let (one, another) = (other.row("a", OWN, 1, 0), other.row("b", OWN, 5, 1));
    assert_eq!((another.change(&one), another.growth(&one)), (Change::Unknown, None));
}

#[test]
fn a_lower_value_of_64_bits_or_of_a_counter_that_stops_is_a_reset() {
    let rows = [
        ("port_rcv_packets", PORT),
        ("port_rcv_data", PORT),
        ("link_downed", PORT),
        ("sent_pkts", OWN),
        ("np_cnp_sent", OWN),
    ];
    for driver in [Driver::Other, Driver::of(uverbs_abi::types::driver_id::RXE), card()] {
        let at = At::new(driver, Some(u64::MAX));
        for (name, source) in rows {
            for before in [9, 255] {
                assert_eq!(at.change(name, source, before, 3, 1), Change::Reset, "{name}");
            }
        }
        for before in [1 << 40, u64::MAX] {
            assert_eq!(at.change("port_rcv_packets", PORT, before, 1, 1), Change::Reset, "{before}");
        }
        let (before, now) = (at.row("sent_pkts", OWN, u64::MAX, 0), at.row("sent_pkts", OWN, 1, 1));
        assert_eq!((now.change(&before), now.growth(&before)), (Change::Reset, None));
    }
}

#[test]
fn a_wrap_is_what_the_port_can_have_transported() {
    // 100 Gbit/s in packets of 26 bytes.
    let at = At::new(card(), Some(480_769_230));
    for name in ["out_of_buffer", "rx_write_requests", "vport_out_of_sequence"] {
        assert_eq!(at.change(name, OWN, TOP, 4, 1), Change::Grown(5), "{name}: behind 32 bits");
        assert_eq!(at.change(name, OWN, TOP - 480_769_229, 0, 1), Change::Grown(480_769_230), "{name}");
        assert_eq!(at.change(name, OWN, TOP - 480_769_230, 0, 1), Change::Reset, "{name}: too fast");
        assert_eq!(at.change(name, OWN, 1000, 4, 1), Change::Reset, "{name}");
        assert_eq!(at.change(name, OWN, 4, 4, 1), Change::Grown(0), "{name}");
        assert_eq!(at.change(name, OWN, TOP, 4, 8), Change::Grown(5), "{name}");
        assert_eq!(at.change(name, OWN, TOP, 4, 9), Change::Reset, "{name}: more than one wrap is possible");
        // Wider than known.
        assert_eq!(at.change(name, OWN, TOP + 5, 4, 1), Change::Reset, "{name}");
        assert_eq!(at.change(name, OWN, TOP, TOP + 5, 1), Change::Grown(5), "{name}");
        // The older reading is the later argument.
        assert_eq!(at.row(name, OWN, 4, 0).change(&at.row(name, OWN, TOP, 1)), Change::Reset, "{name}");
    }
    // Completions need no packet, and without the port's speed nothing is known.
    assert_eq!(at.change("req_cqe_flush_error", OWN, TOP, 4, 1), Change::Reset);
    assert_eq!(At::new(card(), None).change("out_of_buffer", OWN, TOP, 4, 1), Change::Reset);
}

#[test]
fn values_above_the_range_have_another_one() {
    let at = At::new(card(), None);
    // By its names a plain set, but with wider values.
    let wide = Statistic {
        meaning: Meaning::of(PORT, "port_rcv_data", false, &card()),
        ..at.row("port_rcv_data", PORT, 1 << 32, 0)
    };
    assert_eq!((wide.width(), wide.is_saturated()), (None, false));
    let full = Statistic { raw: TOP, ..wide.clone() };
    assert_eq!((full.is_saturated(), full.value()), (true, 4 * TOP));
    assert_eq!(wide.change(&full), Change::Grown(4));
    assert_eq!(Statistic { raw: 7, ..wide.clone() }.change(&wide), Change::Reset);
}

#[test]
fn a_reader_takes_the_speed_of_the_port_when_a_counter_may_have_wrapped() {
    let tree = tree("changes");
    let file = |name: &str, value: &str| tree.file(&format!("class/infiniband/rxe0/ports/1/{name}"), value);
    let open = || {
        let mut kernel = Kernel::with(&device(&tree), None, &[1], false).expect("counters");
        kernel.set_driver(card());
        Statistics::of(Reader::Kernel(Box::new(kernel)))
    };
    let change = |statistics: &mut Statistics, name: &str| {
        let find = |rows: &[Statistic]| rows.iter().find(|row| row.name() == name).cloned();
        let before = find(statistics.latest());
        let now = find(statistics.read().expect("values"));
        before.zip(now).map(|(before, now)| now.change(&before))
    };
    let name = "out_of_buffer";
    for (rate, wanted) in [
        ("100 Gb/sec (4X EDR)\n", Change::Grown(5)),
        ("", Change::Reset),
        ("nan Gb/sec", Change::Reset),
        ("-5 Gb/sec", Change::Reset),
        ("0.0000001 Gb/sec", Change::Reset),
    ] {
        file("rate", rate);
        file("hw_counters/out_of_buffer", "4294967295\n");
        let mut statistics = open();
        assert_eq!(change(&mut statistics, name), None);
        assert_eq!(change(&mut statistics, name), Some(Change::Grown(0)));
        file("hw_counters/out_of_buffer", "4\n");
        assert_eq!(change(&mut statistics, name), Some(wanted), "{rate}");
        assert_eq!(change(&mut statistics, name), Some(Change::Grown(0)));
    }
    // Set back by another tool; gone, and there again.
    let mut statistics = open();
    let data = "port_rcv_data";
    statistics.read().expect("values");
    file("counters/port_rcv_data", "0\n");
    assert_eq!(change(&mut statistics, data), Some(Change::Reset));
    file("counters/port_rcv_data", "7\n");
    assert_eq!(change(&mut statistics, data), Some(Change::Grown(28)));
    file("counters/port_rcv_data", "N/A (no PMA)\n");
    assert_eq!(change(&mut statistics, data), None, "it cannot be read");
    file("counters/port_rcv_data", "9\n");
    assert_eq!(change(&mut statistics, data), None, "it is there again");
    assert_eq!(change(&mut statistics, data), Some(Change::Grown(0)));
}
