//! What a ping has measured.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::address::Address;
use super::gid::Own;
use super::one_sided::Op;
use super::{Args, Kind};
use crate::target::Target;
use crate::units::Scaled;

/// What the sides have agreed on, and how far they came.
#[derive(Debug)]
pub(super) struct Figures<'a> {
    pub(super) exchange: Option<Exchange>,
    pub(super) role: &'static str,
    /// The addresses of both sides, if they are two processes.
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    /// The own GID, if this program has chosen one.
    pub(super) gid: Option<Own>,
    pub(super) lines: Vec<Line>,
    pub(super) size: u32,
    pub(super) iters: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) trips: &'a Histogram<u64>,
    pub(super) elapsed: Duration,
}

/// How the sides have found each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Exchange {
    /// By messages over TCP.
    Tcp,
    /// By the connection manager.
    Cm,
    /// By the connection manager, with the messages of rping.
    Rping,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    device: String,
    driver: &'static str,
    note: Option<&'static str>,
    transport: Kind,
    op: Op,
    role: &'static str,
    exchange: Option<Exchange>,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    gid: Option<Own>,
    qps: Option<u32>,
    lines: Vec<Line>,
    size: u32,
    iters: u64,
    counter: bool,
    sent: u64,
    received: u64,
    bytes: u64,
    elapsed_ns: u64,
    bits_per_second: f64,
    round_trips: u64,
    round_trip_us: Option<RoundTrip>,
}

/// Both ends of a connection, or of what serves as one.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) local: Address,
    pub(super) remote: Address,
}

/// Times in µs from sending a message to receiving the answer.
#[derive(Debug, Serialize)]
struct RoundTrip {
    min: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    #[serde(rename = "p99.9")]
    p999: f64,
    max: f64,
    mean: f64,
}

impl Report {
    pub(super) fn new(args: &Args, target: &Target, figures: Figures<'_>) -> Self {
        let Figures { exchange, role, local, peer, gid, lines, .. } = figures;
        let Figures { size, iters, sent, received, trips, elapsed, .. } = figures;
        let bytes = (sent + received).saturating_mul(size.into());
        Self {
            device: target.device.name().to_owned(),
            driver: target.device.driver(),
            note: target.soft.as_ref().map(|_| "soft device: no hardware involved"),
            transport: args.transport,
            op: args.op,
            role,
            exchange,
            local,
            peer,
            gid,
            qps: args.qps,
            lines,
            size,
            iters,
            counter: args.counter,
            sent,
            received,
            bytes,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            bits_per_second: bytes as f64 * 8.0 / elapsed.as_secs_f64().max(1e-9),
            round_trips: trips.len(),
            round_trip_us: (!trips.is_empty()).then(|| RoundTrip::of(trips)),
        }
    }
}

impl Report {
    /// The report of a client whose server is in this process.
    pub(super) fn of_both_sides(self) -> Self {
        Self { role: "loopback", ..self }
    }
}

impl RoundTrip {
    fn of(trips: &Histogram<u64>) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let quantile = |quantile| us(trips.value_at_quantile(quantile));
        Self {
            min: us(trips.min()),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: us(trips.max()),
            mean: trips.mean() / 1e3,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = self.note.map(|note| format!("; {note}")).unwrap_or_default();
        writeln!(f, "device    {}, driver {}{note}", self.device, self.driver)?;
        let kind = self.transport.name();
        let qps = self.qps.map(|qps| format!(", queue pairs that share their receives: {qps}"));
        let qps = qps.unwrap_or_default();
        let waits = if self.counter { ", waiting for counters" } else { "" };
        match self.peer {
            Some(peer) if self.role != "loopback" => {
                writeln!(f, "ping      {kind}{qps}, {} of {peer}{waits}", self.role)?
            }
            _ => writeln!(f, "ping      {kind}{qps}, both sides in this process{waits}")?,
        }
        if let Some(gid) = &self.gid {
            writeln!(f, "gid       {gid}")?;
        }
        if let (Some(exchange @ (Exchange::Cm | Exchange::Rping)), Some(local)) = (self.exchange, self.local)
        {
            let with = if exchange == Exchange::Rping { ", with rping's messages" } else { "" };
            writeln!(f, "address   {local}, connected by the connection manager{with}")?;
        }
        if let [Line { local, remote }, more @ ..] = &*self.lines {
            writeln!(f, "local     {local}")?;
            writeln!(f, "remote    {remote}")?;
            if !more.is_empty() {
                writeln!(f, "          and {} more of each", more.len())?;
            }
        }
        let Self { size, iters, sent, received, bytes, .. } = self;
        match self.op {
            Op::Send => {
                writeln!(
                    f,
                    "messages  {sent} sent and {received} received of {iters} each way, {size} bytes each"
                )
            }
            op => writeln!(
                f,
                "{}s{}{sent} of {iters}, {size} bytes each",
                op.name(),
                " ".repeat(9 - op.name().len())
            ),
        }?;
        let seconds = self.elapsed_ns as f64 / 1e9;
        writeln!(f, "bytes     {bytes} in {seconds:.6} s: {}", Scaled(self.bits_per_second, "bit/s"))?;
        let Some(RoundTrip { min, p50, p90, p99, p999, max, mean }) = &self.round_trip_us else {
            return writeln!(f, "nothing was measured");
        };
        let what = match self.op {
            Op::Send => "round trip, there and back",
            _ => "from posting to completion",
        };
        writeln!(f, "{what}, in µs, of {}:", self.round_trips)?;
        for (name, value) in [
            ("min", min),
            ("p50", p50),
            ("p90", p90),
            ("p99", p99),
            ("p99.9", p999),
            ("max", max),
            ("mean", mean),
        ] {
            writeln!(f, "  {name:6} {value:.3}")?;
        }
        Ok(())
    }
}
