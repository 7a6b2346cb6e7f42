//! Sends a message back and forth over a reliable connection, and prints how long a round trip takes.
//!
//! `cargo run --release --example rc_pingpong [DEVICE [ROUNDS]]`: on the soft device, or on the named one. Both ends are in this process; between two hosts
//! each end sends its `Endpoint` as text to the other, as `uverbs ping` does over TCP.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, Context, Operation, Peer, ProtectionDomain,
    QueuePair, Rc, ReceiveRequest, SendRequest, SoftDevice,
};

const MESSAGE: usize = 64;
/// Longest wait for a message.
const LIMIT: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One end of the connection: its queues and its memory.
struct End {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    memory: uverbs::MemoryRegion,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rc_pingpong: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let context = match args.next().filter(|name| name != "soft0") {
        Some(name) => uverbs::devices()?.named(&name)?.open()?,
        None => SoftDevice::default().open()?,
    };
    let rounds: u32 = args.next().and_then(|word| word.parse().ok()).unwrap_or(1000);
    let pd = context.alloc_pd()?;
    let (mut one, mut two) = (End::new(&context, &pd)?, End::new(&context, &pd)?);

    // Each end sends this to the other: the number of its queue pair, its address, and its first sequence number.
    let own = context.gid_for(1, Peer::Unknown)?;
    println!("{own}");
    let options = ConnectionOptions::new(1, own.index);
    let (here, there) = (one.qp.endpoint(&options, 0)?, two.qp.endpoint(&options, 0)?);
    one.qp.connect(&options, &here, &there)?;
    two.qp.connect(&options, &there, &here)?;

    let begun = Instant::now();
    for _ in 0..rounds {
        one.send(b"ping")?;
        assert_eq!(&two.receive()?[..4], b"ping");
        two.send(b"pong")?;
        assert_eq!(&one.receive()?[..4], b"pong");
    }
    println!("{rounds} round trips, {:?} each", begun.elapsed() / rounds.max(1));

    // Posted requests complete before the memory is released.
    let End { qp, cq, .. } = &mut one;
    Ok(qp.drain(&mut [cq], LIMIT, |_| {})?)
}

impl End {
    fn new(context: &Context, pd: &ProtectionDomain) -> Result<Self> {
        let cq = context.create_cq(16)?;
        let mut qp = pd.rc(&cq).inline(MESSAGE as u32).create()?;
        let memory = pd.register(MESSAGE, AccessFlags::LOCAL_WRITE)?;
        qp.post_receive(&[ReceiveRequest::new(0, &[memory.segment(..)?])])?;
        Ok(Self { qp, cq, memory })
    }

    /// Sends bytes, which are copied into the request.
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.qp.post_send(&[SendRequest::inline(1, Operation::Send, bytes).signaled()])?)
    }

    /// Waits for a message, and posts the next receive.
    fn receive(&mut self) -> Result<[u8; MESSAGE]> {
        let (mut batch, start) = (Completion::batch::<1>(), Instant::now());
        loop {
            while self.cq.poll(&mut batch) == 0 {
                if start.elapsed() > LIMIT {
                    return Err(format!("no message came in {LIMIT:?}").into());
                }
                std::thread::yield_now();
            }
            let completion = batch[0].ok().map_err(|status| status.to_string())?;
            if completion.is_receive() {
                break; // otherwise it is the completion of a send
            }
        }
        let mut bytes = [0; MESSAGE];
        self.memory.read(0, &mut bytes)?;
        self.qp.post_receive(&[ReceiveRequest::new(0, &[self.memory.segment(..)?])])?;
        Ok(bytes)
    }
}
