//! The crate's own instructions of a request as a future, beside a post and a poll: `cargo bench --features tokio --bench requests`. The
//! count does not depend on the load of the machine.
//!
//! The program runs itself under `valgrind --tool=callgrind` twice for each way, with few and with many writes of eight bytes on the soft
//! device. The difference, divided by the number of writes, is the cost of one, with what the soft device does for it; the difference of
//! the two ways is what a future costs more.

use std::process::Command;

use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, MemoryRegion, Operation, QueuePair, Rc,
    Requests, SendRequest, SoftDevice, Status,
};

const FEW: u64 = 1_000;
const MANY: u64 = 6_000;

fn pair() -> uverbs::Result<(QueuePair<Rc>, CompletionQueue, MemoryRegion)> {
    let context = SoftDevice::default().open()?;
    let (pd, channel) = (context.alloc_pd()?, context.create_comp_channel()?);
    let cq = context.cq(64).channel(&channel).create()?;
    let memory = pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    let mut qp = pd.rc(&cq).create()?;
    let options = ConnectionOptions::new(1, 0).access(AccessFlags::REMOTE_WRITE);
    let itself = qp.endpoint(&options, 0)?;
    qp.connect(&options, &itself, &itself)?;
    Ok((qp, cq, memory))
}

fn plain(count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let (mut qp, mut cq, memory) = pair()?;
    let (mut batch, write) = (Completion::batch::<16>(), Operation::Write(memory.remote()));
    for wr_id in 0..count {
        let piece = [memory.segment(64..72)?];
        qp.post_send(&[SendRequest::new(wr_id, write, &piece).signaled()])?;
        while cq.poll(&mut batch) == 0 {
            std::thread::yield_now();
        }
        assert_eq!((batch[0].wr_id, batch[0].status), (wr_id, Status::Success));
    }
    Ok(())
}

fn futures(count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let (qp, cq, memory) = pair()?;
        let requests = Requests::new(qp, [cq])?;
        for _ in 0..count {
            let completion = requests.write(memory.segment(64..72)?, memory.remote()).await?;
            assert_eq!(completion.status, Status::Success);
        }
        Ok(())
    })
}

/// Instructions of the whole program for so many writes.
fn counted(way: &str, count: u64) -> u64 {
    let this = std::env::current_exe().expect("this program");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(this);
    let output = valgrind.args([way, &count.to_string()]).output().expect("valgrind");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let line = said.lines().find_map(|line| line.split("Collected :").nth(1)).expect("a count");
    line.trim().parse().expect("a number")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["plain", count] => return plain(count.parse()?),
        ["futures", count] => return futures(count.parse()?),
        _ => {}
    }
    let each = |way| (counted(way, MANY) - counted(way, FEW)) as f64 / (MANY - FEW) as f64;
    let (plain, futures) = (each("plain"), each("futures"));
    println!("a post and a poll: {plain:.0} instructions with the soft device");
    println!("a future: {futures:.0}, {:.0} more", futures - plain);
    Ok(())
}
