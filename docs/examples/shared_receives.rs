//! Several connections share one receive queue, which is refilled when it runs low.
//!
//! `cargo run --example shared_receives [DEVICE]`: on the soft device, or on the named one.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, EventKind, MemoryRegion, Operation, Peer,
    QueuePair, Rc, ReceiveRequest, SendRequest, SharedReceiveQueue, SoftDevice, Subject,
};

const CLIENTS: usize = 3;
const MESSAGES: usize = 20;
/// Bytes of each receive, and how many there are.
const SLOT: usize = 64;
const SLOTS: usize = 16;
/// Below this many the queue is filled up.
const LOW: u32 = 8;
const COOKIE: u64 = 1;
/// Longest wait for the messages of a round.
const LIMIT: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shared_receives: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let context = match std::env::args().nth(1).filter(|name| name != "soft0") {
        Some(name) => uverbs::devices()?.named(&name)?.open()?,
        None => SoftDevice::default().open()?,
    };
    let pd = context.alloc_pd()?;
    let memory = pd.register(SLOTS * SLOT, AccessFlags::LOCAL_WRITE)?;
    let mut srq = pd.srq(SLOTS as u32).limit(LOW).cookie(COOKIE).create()?;
    let mut free: Vec<u64> = (0..SLOTS as u64).collect();
    fill(&mut srq, &memory, &mut free)?;

    let options = ConnectionOptions::new(1, context.gid_for(1, Peer::Unknown)?.index);
    let mut cq = context.create_cq(64)?;
    let mut sent = context.create_cq(64)?;
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..CLIENTS {
        let mut server = pd.rc(&cq).srq(&srq).create()?;
        let mut client = pd.rc(&sent).inline(SLOT as u32).create()?;
        connect(&options, &mut client, &mut server)?;
        clients.push(client);
        servers.push(server);
    }

    let (mut got, mut refills) = (0, 0);
    for round in 0..MESSAGES {
        for (number, client) in clients.iter_mut().enumerate() {
            let text = format!("message {round} of client {number}");
            let request = SendRequest::inline(round as u64, Operation::Send, text.as_bytes()).signaled();
            client.post_send(&[request])?;
        }
        // The event may come at any time, even when nothing is left in the queue: nothing more completes then until the queue is filled up.
        let (mut sends, mut receives, start) = (0, 0, Instant::now());
        while sends < CLIENTS || receives < CLIENTS {
            sends += usize::from(next(&mut sent)?.is_some());
            if let Some(completion) = next(&mut cq)? {
                free.push(completion.wr_id);
                receives += 1;
            }
            while let Some(event) = context.next_event()? {
                if (event.kind, event.subject())
                    == (EventKind::SrqLimitReached, Subject::SharedReceiveQueue(COOKIE))
                {
                    fill(&mut srq, &memory, &mut free)?;
                    srq.arm(LOW)?;
                    refills += 1;
                }
            }
            if start.elapsed() > LIMIT {
                return Err(format!("round {round} took longer than {LIMIT:?}").into());
            }
            std::thread::yield_now();
        }
        got += receives;
    }
    println!("{got} messages of {CLIENTS} clients; the queue was filled up {refills} times");

    for server in &mut servers {
        server.drain(&mut [&mut cq], LIMIT, |_| {})?;
    }
    drop(servers);
    Ok(srq.destroy().map_err(|(_, error)| error)?)
}

/// Posts every free slot.
fn fill(srq: &mut SharedReceiveQueue, memory: &MemoryRegion, free: &mut Vec<u64>) -> Result<()> {
    for slot in free.drain(..) {
        let start = slot as usize * SLOT;
        srq.post_receive(&[ReceiveRequest::new(slot, &[memory.segment(start..start + SLOT)?])])?;
    }
    Ok(())
}

fn connect(
    options: &ConnectionOptions,
    client: &mut QueuePair<Rc>,
    server: &mut QueuePair<Rc>,
) -> uverbs::Result<()> {
    let (one, two) = (client.endpoint(options, 0)?, server.endpoint(options, 0)?);
    client.connect(options, &one, &two)?;
    server.connect(options, &two, &one)
}

/// The next completion, if there is one. It must be a success.
fn next(cq: &mut CompletionQueue) -> Result<Option<Completion>> {
    let mut batch = Completion::batch::<1>();
    if cq.poll(&mut batch) == 0 {
        return Ok(None);
    }
    batch[0].ok().map_err(|status| status.to_string())?;
    Ok(Some(batch[0]))
}
