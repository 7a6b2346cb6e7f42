//! Counters of a device and its ports.

use std::time::Instant;

use serde_json::{Map, Value, json};
use uverbs::statistics::{Change, Missing, OptionalStatistic, Source, Statistic, Statistics, Unit};
use uverbs::{Device, ErrorKind};

use super::{Page, section};
use crate::Outcome;
use crate::table::{Cell, Style, Table};
use crate::units::Scaled;

/// A reader, and the last two readings.
pub(super) struct Counters {
    reader: Statistics,
    only_hardware: bool,
    rows: Vec<Statistic>,
    earlier: Vec<Statistic>,
    read_at: Option<Instant>,
    /// Seconds between the last two readings.
    seconds: Option<f64>,
    /// By port, for ports with optional counters: those of the driver. They are read each time, since others can switch them on and off.
    optional: Vec<(u32, Vec<OptionalStatistic>)>,
}

impl Counters {
    pub(super) fn new(device: &Device, port: Option<u32>, only_hardware: bool) -> Outcome<Self> {
        let mut reader = match port {
            Some(port) => device.port_statistics(port)?,
            None => device.statistics()?,
        };
        let mut optional = Vec::new();
        if only_hardware {
            for port in port.map_or(1..=device.ports(), |port| port..=port) {
                match reader.optional(port) {
                    Ok(found) => optional.push((port, found)),
                    // Most devices have none.
                    Err(error) if error.kind() == ErrorKind::Unsupported => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let (rows, earlier) = (Vec::new(), Vec::new());
        Ok(Self { reader, only_hardware, rows, earlier, read_at: None, seconds: None, optional })
    }

    pub(super) fn read(&mut self) -> Outcome {
        for (port, found) in &mut self.optional {
            *found = self.reader.optional(*port)?;
        }
        let wanted = |row: &&Statistic| !self.only_hardware || row.source() == Source::Hardware;
        let rows: Vec<_> = self.reader.read()?.iter().filter(wanted).cloned().collect();
        self.earlier = std::mem::replace(&mut self.rows, rows);
        let before = self.read_at.replace(Instant::now());
        self.seconds = before.zip(self.read_at).map(|(before, now)| (now - before).as_secs_f64());
        Ok(())
    }

    /// The change of a counter since the previous reading.
    fn change(&self, row: &Statistic) -> Change {
        let earlier = self.earlier.iter().find(|earlier| {
            earlier.port() == row.port() && earlier.source() == row.source() && earlier.name() == row.name()
        });
        earlier.map_or(Change::Unknown, |earlier| row.change(earlier))
    }

    /// The growth of a counter per second since the previous reading.
    fn rate(&self, row: &Statistic) -> Option<f64> {
        let Change::Grown(grown) = self.change(row) else { return None };
        let seconds = self.seconds.filter(|seconds| *seconds > 0.0)?;
        Some(grown as f64 / seconds)
    }

    fn is_reset(&self, row: &Statistic) -> bool {
        self.change(row) == Change::Reset
    }

    /// What was requested but could not be read.
    fn missing(&self) -> impl Iterator<Item = &Missing> {
        self.reader
            .missing()
            .iter()
            .filter(|missing| !self.only_hardware || missing.source == Source::Hardware)
    }

    pub(super) fn write(&self, text: &mut String, page: &Page) {
        let mut places: Vec<_> = self.rows.iter().map(|row| (row.port(), row.source())).collect();
        places.extend(self.missing().map(|missing| (missing.port, missing.source)));
        places.sort_by_key(|(port, source)| (port.is_none(), *port, *source));
        places.dedup();
        if places.is_empty() {
            section(text, "no counters: the driver counts nothing that the kernel shows");
        }
        for (port, source) in places {
            section(text, title(port, source));
            let is_here = |row: &&Statistic| (row.port(), row.source()) == (port, source);
            let (mut table, mut zero) = (Table::default(), 0);
            for row in self.rows.iter().filter(is_here) {
                if row.raw() == 0 && !page.all && !self.is_reset(row) {
                    zero += 1;
                } else {
                    table.push(self.line(row, page));
                }
            }
            for missing in self.missing().filter(|missing| (missing.port, missing.source) == (port, source)) {
                let name = missing.name.as_deref().unwrap_or("all of them").escape_debug().to_string();
                let why = Cell::from(missing.error.to_string()).styled(Style::Warning);
                table.push(vec![name.into(), Cell::or_dash::<u64>(None), Cell::default(), why]);
            }
            table.write(text, "    ", page.colours);
            let are = match zero {
                0 => continue,
                1 => "1 counter is zero (--all shows it)".to_owned(),
                _ => format!("{zero} counters are zero (--all shows them)"),
            };
            text.push_str(&format!("    {}\n", page.colours.paint(&are, Style::Faint)));
        }
        for (port, found) in &self.optional {
            let off: Vec<_> =
                found.iter().filter(|found| !found.is_on).map(|found| found.name.as_str()).collect();
            if !off.is_empty() {
                section(
                    text,
                    format_args!(
                        "port {port}, optional counters that are off: {}",
                        off.join(", ").escape_debug()
                    ),
                );
            }
        }
    }

    fn line(&self, row: &Statistic, page: &Page) -> Vec<Cell> {
        let (value, unit) = match page.raw {
            true if row.scale() != 1 => {
                (row.raw(), format!("words of {} {}", row.scale(), row.unit().as_str()))
            }
            _ => (row.value(), row.unit().as_str().to_owned()),
        };
        let mut line = vec![row.name().escape_debug().to_string().into(), Cell::number(value), unit.into()];
        if page.rates {
            let shown = self.rate(row).map(|rate| Scaled(rate, per_second(row.unit())).to_string());
            line.push(Cell::number(shown.unwrap_or_default()));
        }
        if self.is_reset(row) {
            line.push(Cell::from("reset since the previous reading").styled(Style::Warning));
        } else if row.is_saturated() {
            let bits = row.width().map_or(0, |width| width.bits);
            let full = format!("at its maximum ({bits} bits): this many or more");
            line.push(Cell::from(full).styled(Style::Warning));
        } else if row.is_gauge() {
            line.push("a level".into());
        } else if row.is_optional() {
            line.push("optional".into());
        }
        line
    }

    pub(super) fn add_json(&self, value: &mut Map<String, Value>) {
        let counters: Vec<_> =
            self.rows.iter().map(|row| counter(row, self.rate(row), self.is_reset(row))).collect();
        value.insert("counters".to_owned(), counters.into());
        let missing: Vec<_> = self.missing().map(absent).collect();
        value.insert("missing".to_owned(), missing.into());
        if self.only_hardware {
            let optional = self.optional.iter().flat_map(|(port, found)| {
                found.iter().map(move |found| json!({ "port": port, "name": found.name, "on": found.is_on }))
            });
            value.insert("optional".to_owned(), optional.collect());
        }
    }
}

fn title(port: Option<u32>, source: Source) -> String {
    match (port, source) {
        (Some(port), Source::Port) => format!("port {port}, InfiniBand's counters"),
        (Some(port), _) => format!("port {port}, the driver's counters"),
        (None, _) => "the device, the driver's counters".to_owned(),
    }
}

fn per_second(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes/s",
        Unit::Packets => "packets/s",
        Unit::Ticks => "ticks/s",
        _ => "events/s",
    }
}

/// A counter as JSON shows it.
pub(super) fn counter(row: &Statistic, rate: Option<f64>, is_reset: bool) -> Value {
    json!({
        "port": row.port(),
        "source": row.source().as_str(),
        "name": row.name(),
        "unit": row.unit().as_str(),
        "value": row.value(),
        "raw": row.raw(),
        "bits": row.width().map(|width| width.bits),
        "saturated": row.is_saturated(),
        "gauge": row.is_gauge(),
        "optional": row.is_optional(),
        "per_second": rate,
        "reset": is_reset,
    })
}

fn absent(missing: &Missing) -> Value {
    json!({
        "port": missing.port,
        "source": missing.source.as_str(),
        "name": missing.name,
        "error": missing.error.to_string(),
    })
}
