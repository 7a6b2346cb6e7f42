//! Several connections share one receive queue, which is refilled when it runs low.
//!
//! `cargo run --example shared_receives [DEVICE]`: on the soft device, or on the named one.

use std::time::Duration;

use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, Context, EventKind, MemoryRegion, Operation,
    QueuePair, Rc, ReceiveRequest, Result, SendRequest, SharedReceiveQueue, SoftDevice, Subject,
};

const CLIENTS: usize = 3;
const MESSAGES: usize = 20;
/// Bytes of each receive, and how many there are.
const SLOT: usize = 64;
const SLOTS: usize = 16;
/// Below this many the queue is filled up.
const LOW: u32 = 8;
const COOKIE: u64 = 1;

fn main() -> Result<()> {
    let context = match std::env::args().nth(1).filter(|name| name != "soft0") {
        Some(name) => uverbs::devices()?.named(&name)?.open()?,
        None => SoftDevice::default().open()?,
    };
    let pd = context.alloc_pd()?;
    let memory = pd.register(SLOTS * SLOT, AccessFlags::LOCAL_WRITE)?;
    let mut srq = pd.srq(SLOTS as u32).limit(LOW).cookie(COOKIE).create()?;
    let mut free: Vec<u64> = (0..SLOTS as u64).collect();
    fill(&mut srq, &memory, &mut free)?;

    let mut cq = context.create_cq(64)?;
    let mut sent = context.create_cq(64)?;
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..CLIENTS {
        let mut server = pd.rc(&cq).srq(&srq).create()?;
        let mut client = pd.rc(&sent).inline(SLOT as u32).create()?;
        connect(&context, &mut client, &mut server)?;
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
        for _ in 0..CLIENTS {
            next(&mut sent).ok().expect("the send succeeds");
            let completion = next(&mut cq);
            completion.ok().expect("the receive succeeds");
            free.push(completion.wr_id);
            got += 1;
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
    }
    println!("{got} messages of {CLIENTS} clients; the queue was filled up {refills} times");

    for server in &mut servers {
        server.drain(&mut [&mut cq], Duration::from_secs(10), |_| {})?;
    }
    drop(servers);
    srq.destroy().map_err(|(_, error)| error)
}

/// Posts every free slot.
fn fill(srq: &mut SharedReceiveQueue, memory: &MemoryRegion, free: &mut Vec<u64>) -> Result<()> {
    for slot in free.drain(..) {
        let start = slot as usize * SLOT;
        srq.post_receive(&[ReceiveRequest::new(slot, &[memory.segment(start..start + SLOT)?])])?;
    }
    Ok(())
}

fn connect(context: &Context, client: &mut QueuePair<Rc>, server: &mut QueuePair<Rc>) -> Result<()> {
    let of_ipv4 = |raw: &[u8; 16]| raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let gids = context.gid_table()?;
    let index = gids.iter().find(|gid| of_ipv4(&gid.raw)).map_or(0, |gid| gid.index);
    let options = ConnectionOptions::new(1, index as u8);
    let (one, two) = (client.endpoint(&options, 0)?, server.endpoint(&options, 0)?);
    client.connect(&options, &one, &two)?;
    server.connect(&options, &two, &one)
}

/// The next completion.
fn next(cq: &mut CompletionQueue) -> Completion {
    let mut batch = Completion::batch::<1>();
    while cq.poll(&mut batch) == 0 {
        std::thread::yield_now();
    }
    batch[0]
}
