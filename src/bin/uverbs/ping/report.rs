//! What a ping has measured.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::address::Address;
use super::exchange::Peer;
use super::gid::Own;
use super::meeting::Meeting;
use super::one_sided::Op;
use super::side::Side;
use super::transport::Transport;
use super::{Args, Kind};
use crate::target::Target;
use crate::units::Scaled;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    device: String,
    driver: &'static str,
    note: Option<&'static str>,
    transport: Kind,
    op: Op,
    role: &'static str,
    peer: Option<SocketAddr>,
    gid: Own,
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
struct Line {
    local: Address,
    remote: Address,
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
    pub(super) fn new<T: Transport>(
        args: &Args,
        target: &Target,
        meeting: &Meeting,
        side: &Side<T>,
        (size, gid): (u32, &Own),
        elapsed: Duration,
    ) -> Self {
        let lines = side.addresses().into_iter().zip(&meeting.remotes);
        let bytes = (side.sent + side.received).saturating_mul(size.into());
        Self {
            device: target.device.name().to_owned(),
            driver: target.device.driver(),
            note: target.soft.as_ref().map(|_| "soft device: no hardware involved"),
            transport: args.transport,
            op: args.op,
            role: meeting.role.name(),
            peer: meeting.role.peer().map(Peer::address),
            gid: gid.clone(),
            qps: args.qps,
            lines: lines.map(|(local, remote)| Line { local, remote: *remote }).collect(),
            size,
            iters: args.iters,
            counter: args.counter,
            sent: side.sent,
            received: side.received,
            bytes,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            bits_per_second: bytes as f64 * 8.0 / elapsed.as_secs_f64().max(1e-9),
            round_trips: side.trips.len(),
            round_trip_us: (!side.trips.is_empty()).then(|| RoundTrip::of(&side.trips)),
        }
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
            Some(peer) => writeln!(f, "ping      {kind}{qps}, {} of {peer}{waits}", self.role)?,
            None => writeln!(f, "ping      {kind}{qps}, both sides in this process{waits}")?,
        }
        writeln!(f, "gid       {}", self.gid)?;
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
