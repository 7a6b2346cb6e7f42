//! Counts messages when they complete: by the device if it has completion counters, otherwise by the process.
//!
//! `cargo run --example completion_counters [DEVICE]`: on the soft device, or on the named one.

use std::process::ExitCode;
use std::time::Duration;

use uverbs::soft::{Profile, SoftDevice};
use uverbs::{
    AccessFlags, CompletionCounter, ConnectionOptions, Context, Counted, CounterSource, Datagram, ErrorKind,
    Peer, ReceiveRequest, Result, Route, SendRequest,
};

const MESSAGES: u64 = 16;
const SIZE: usize = 32;
/// A datagram comes in behind a routing header.
const HEADER: usize = 40;
const KEY: u32 = 0x11;
const LIMIT: Option<Duration> = Some(Duration::from_secs(10));

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("completion_counters: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let context = match std::env::args().nth(1).filter(|name| name != "soft0") {
        Some(name) => uverbs::devices()?.named(&name)?.open()?,
        None => SoftDevice::new(Profile::default().with_completion_counters(2)).open()?,
    };
    let (sent, received) = (counter(&context)?, counter(&context)?);

    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(2 * MESSAGES as u32)?;
    let depth = MESSAGES as u32;
    let mut qp = pd.ud(&cq).send_depth(depth).receive_depth(depth).create()?;
    qp.bind_counter(&sent, Counted::SEND)?;
    qp.bind_counter(&received, Counted::RECEIVE)?;

    // To itself. On InfiniBand, the port is found by its local identifier.
    let own = context.gid_for(1, Peer::Unknown)?;
    qp.activate(&ConnectionOptions::new(1, own.index), KEY, 0)?;
    let lid = context.query_port(1)?.legacy_resp.lid;
    let ah = pd.create_ah(&Route { lid, ..Route::new(1, own.index, own.gid.raw) })?;

    let memory = pd.register(SIZE + (HEADER + SIZE) * MESSAGES as usize, AccessFlags::LOCAL_WRITE)?;
    for number in 0..MESSAGES as usize {
        let start = SIZE + (HEADER + SIZE) * number;
        let segment = memory.segment(start..start + HEADER + SIZE)?;
        qp.post_receive(&[ReceiveRequest::new(number as u64, &[segment])])?;
    }
    let message = Datagram { to: &ah, qp_num: qp.number(), qkey: KEY, immediate: None };
    let segments = [memory.segment(0..SIZE)?];
    for number in 0..MESSAGES {
        // Software counts completions as they are taken, so each send has one.
        qp.post_send(&[SendRequest::new(MESSAGES + number, message, &segments).signaled()])?;
    }
    // The same for either kind of counter.
    cq.progress_until(&sent, MESSAGES, LIMIT)?;
    cq.progress_until(&received, MESSAGES, LIMIT)?;

    let source = match sent.source() {
        CounterSource::DeviceInMemory => "hardware, read from memory",
        CounterSource::DeviceByCommand => "hardware, read by a command",
        _ => "software",
    };
    println!("counted by {source}: {} sent, {} received", sent.read(), received.read());
    println!("failed: {} sent, {} received", sent.read_err(), received.read_err());
    Ok(())
}

/// A counter of the device's, or of the process's where the device has none.
fn counter(context: &Context) -> Result<CompletionCounter> {
    match CompletionCounter::builder().create_on(context) {
        Err(error) if error.kind() == ErrorKind::Unsupported => CompletionCounter::builder().create(),
        made => made,
    }
}
