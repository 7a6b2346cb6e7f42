//! `uverbs stat`: shows the counters of devices and their existing objects.

mod counters;
mod queue_pairs;
mod resources;
mod words;

use std::time::{Duration, Instant};
use std::{fmt, thread};

use serde_json::{Map, Value, json};
use uverbs::Device;

use self::counters::Counters;
use self::queue_pairs::QueuePairs;
use self::resources::Objects;
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::output::Output;
use crate::stop::Stop;
use crate::table::{Colours, Style};
use crate::target::Target;
use crate::units;

/// Maximum time between two checks for signals.
const NAP: Duration = Duration::from_millis(10);

/// Options of `uverbs stat`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A device, or one port of it: mlx5_0, mlx5_0/1, /dev/infiniband/uverbs0, soft0. Default: all devices of the machine.
    #[arg(value_name = "DEV[/PORT]", conflicts_with = "device")]
    word: Option<String>,
    /// The device, or one port of it, as DEV.
    #[arg(short, long, value_name = "DEV[/PORT]")]
    device: Option<String>,
    /// Only the driver's own counters, and which optional counters are off.
    #[arg(long)]
    hw: bool,
    /// Counters to which queue pairs are bound.
    #[arg(long)]
    qp: bool,
    /// Existing objects, and the processes that own them.
    #[arg(long)]
    resources: bool,
    /// Also show counters that are zero.
    #[arg(long)]
    all: bool,
    /// Show values as the kernel reports them: data of a port in words of 4 bytes.
    #[arg(long)]
    raw: bool,
    /// Read again after each interval, and show rates: 1s, 500ms, 2m.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    watch: Option<Duration>,
    /// End after this number of readings.
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one JSON object per reading.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Counters are shown by default.
    fn shows_counters(&self) -> bool {
        self.hw || !(self.qp || self.resources)
    }
}

pub(crate) fn run(args: &Args, trace: bool) -> Outcome {
    let stop = args.watch.map(|_| Stop::on_signals()).transpose()?;
    let (devices, port) = wanted(args, trace)?;
    let (mut views, mut refused) = (Vec::new(), Vec::new());
    for device in devices {
        match View::new(device, port, args) {
            Ok(view) => views.push(view),
            Err(failure) => refused.push(Err(failure)),
        }
    }
    if views.is_empty() {
        return failure::first(refused);
    }
    let mut output = Output::new();
    let shown = readings(args, stop.as_ref(), &mut views, &mut refused, &mut output);
    failure::first([shown].into_iter().chain(refused))
}

/// The requested devices, and the port.
fn wanted(args: &Args, trace: bool) -> Outcome<(Vec<Device>, Option<u32>)> {
    let Some(text) = args.word.as_ref().or(args.device.as_ref()) else {
        let devices: Vec<_> = uverbs::devices()?.into_iter().collect();
        if devices.is_empty() {
            let text = "there is no RDMA device on this machine; soft0 is in the program";
            return Err(Failure::NotFound(text.to_owned()));
        }
        return Ok((devices, None));
    };
    let (name, port) = split(text);
    let target = Target::find(name, trace)?;
    port.map_or(Ok(()), |port| target.check_port(port))?;
    Ok((vec![target.device], port))
}

/// `mlx5_0/1` is a port: a number follows the last slash, which is not the case for a device file.
fn split(text: &str) -> (&str, Option<u32>) {
    match text.rsplit_once('/') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            // A number that is too large is not a port of any device.
            (name, Some(port.parse().unwrap_or(u32::MAX)))
        }
        _ => (text, None),
    }
}

/// One device, and what is shown of it.
struct View {
    device: Device,
    counters: Option<Counters>,
    queue_pairs: Vec<QueuePairs>,
    objects: Option<Objects>,
}

impl View {
    fn new(device: Device, port: Option<u32>, args: &Args) -> Outcome<Self> {
        let counters = args.shows_counters().then(|| Counters::new(&device, port, args.hw)).transpose()?;
        let mut queue_pairs = Vec::new();
        if args.qp {
            for port in port.map_or(1..=device.ports(), |port| port..=port) {
                queue_pairs.push(QueuePairs::new(&device, port)?);
            }
        }
        let objects = args.resources.then(|| Objects::new(&device, port)).transpose()?;
        Ok(Self { device, counters, queue_pairs, objects })
    }

    fn read(&mut self) -> Outcome {
        if let Some(counters) = &mut self.counters {
            counters.read()?;
        }
        for queue_pairs in &mut self.queue_pairs {
            queue_pairs.read()?;
        }
        if let Some(objects) = &mut self.objects {
            objects.read()?;
        }
        Ok(())
    }

    /// For people: a head, and a section for each kind of data.
    fn write(&self, text: &mut String, page: &Page) {
        let name = self.device.name().escape_debug().to_string();
        let head = format!("{} ({})", page.colours.paint(&name, Style::Head), self.device.driver());
        text.push_str(&head);
        text.push('\n');
        if let Some(counters) = &self.counters {
            counters.write(text, page);
        }
        self.queue_pairs.iter().for_each(|queue_pairs| queue_pairs.write(text, page));
        if let Some(objects) = &self.objects {
            objects.write(text, page);
        }
    }

    fn json(&self) -> Value {
        let mut value = Map::new();
        value.insert("name".to_owned(), self.device.name().into());
        value.insert("driver".to_owned(), self.device.driver().into());
        if let Some(counters) = &self.counters {
            counters.add_json(&mut value);
        }
        if !self.queue_pairs.is_empty() {
            let ports: Vec<_> = self.queue_pairs.iter().map(QueuePairs::json).collect();
            value.insert("queue_pair_counters".to_owned(), ports.into());
        }
        if let Some(objects) = &self.objects {
            value.insert("resources".to_owned(), objects.json());
        }
        value.into()
    }
}

/// How a page is written.
struct Page {
    colours: Colours,
    /// Also rows that are zero.
    all: bool,
    raw: bool,
    /// The rate after each value.
    rates: bool,
}

fn readings(
    args: &Args,
    stop: Option<&Stop>,
    views: &mut Vec<View>,
    refused: &mut Vec<Outcome>,
    output: &mut Output,
) -> Outcome {
    let page = Page { colours: Colours::new(), all: args.all, raw: args.raw, rates: args.watch.is_some() };
    let (start, mut due) = (Instant::now(), Instant::now());
    for number in 1_u64.. {
        views.retain_mut(|view| match view.read() {
            Ok(()) => true,
            Err(failure) => {
                let name = view.device.name().escape_debug();
                refused.push(Err(failure.said_of(name)));
                false
            }
        });
        if views.is_empty() {
            break;
        }
        if args.json {
            let devices: Vec<_> = views.iter().map(View::json).collect();
            let elapsed = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            output.json(&json!({ "elapsed_ns": elapsed, "devices": devices }))?;
        } else {
            let mut text = String::new();
            views.iter().for_each(|view| view.write(&mut text, &page));
            output.page(text, number > 1)?;
        }
        let (Some(interval), Some(stop)) = (args.watch, stop) else { break };
        if args.count == Some(number) {
            break;
        }
        // A reading that was missed (because the process was stopped) is not repeated.
        due = (due + interval).max(Instant::now());
        while !stop.is_set() && Instant::now() < due {
            thread::sleep(due.saturating_duration_since(Instant::now()).min(NAP));
        }
        if stop.is_set() {
            break;
        }
    }
    Ok(())
}

/// A line that begins a section.
fn section(text: &mut String, title: impl fmt::Display) {
    text.push_str(&format!("  {title}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_number_behind_the_last_slash() {
        assert_eq!(split("mlx5_0"), ("mlx5_0", None));
        assert_eq!(split("mlx5_0/1"), ("mlx5_0", Some(1)));
        assert_eq!(split("/dev/infiniband/uverbs0"), ("/dev/infiniband/uverbs0", None));
        assert_eq!(split("/dev/infiniband/uverbs0/2"), ("/dev/infiniband/uverbs0", Some(2)));
        assert_eq!(split("rxe0/99999999999"), ("rxe0", Some(u32::MAX)));
        assert_eq!(split("rxe0/x"), ("rxe0/x", None));
        assert_eq!(split("/1"), ("/1", None));
    }
}
