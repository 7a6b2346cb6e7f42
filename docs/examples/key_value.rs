//! A table of values that clients read without the server's processor, by RDMA reads with a deadline.
//!
//! `cargo run --features tokio --example key_value`: both sides on the soft network. `... key_value serve ADDRESS:PORT` and
//! `... key_value get ADDRESS:PORT KEY...`: one side, on the device that has the address or reaches it. The server serves one client.

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::timeout;
use uverbs::cm::{Listener, Manager, SoftNetwork};
use uverbs::{AccessFlags, MemoryRegion, Rc, Remote, Requests, SoftDevice};

/// Number of rows, and bytes of each: the length of the key, the key, the length of the value, the value.
const ROWS: usize = 64;
const ROW: usize = 64;
const PART: usize = ROW / 2;
/// Longest wait for one read, and for the other side.
const DEADLINE: Duration = Duration::from_secs(5);

const TABLE: [(&str, &str); 4] =
    [("red", "ff0000"), ("green", "00ff00"), ("blue", "0000ff"), ("orange", "ffa500")];

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The row where a key is, unless another key has it: then it is the next.
fn first_row(key: &str) -> usize {
    key.bytes().fold(5381, |sum: usize, byte| ((sum * 33) ^ usize::from(byte)) % 65_521) % ROWS
}

fn put(row: &mut [u8], part: usize, text: &str) {
    row[part * PART] = text.len() as u8;
    row[part * PART + 1..][..text.len()].copy_from_slice(text.as_bytes());
}

fn part(row: &[u8; ROW], part: usize) -> String {
    let bytes = &row[part * PART..(part + 1) * PART];
    let len = usize::from(bytes[0]).min(PART - 1);
    String::from_utf8_lossy(&bytes[1..=len]).into_owned()
}

fn table() -> Vec<u8> {
    let mut table = vec![0; ROWS * ROW];
    for (key, value) in TABLE {
        let mut row = first_row(key);
        while table[row * ROW] > 0 {
            row = (row + 1) % ROWS;
        }
        put(&mut table[row * ROW..][..ROW], 0, key);
        put(&mut table[row * ROW..][..ROW], 1, value);
    }
    table
}

/// Lends the table to one client until it leaves.
async fn serve(listener: Listener) -> Result<()> {
    let incoming = listener.next().await?;
    let context = incoming.device()?.0.open()?;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(4)?);
    let memory = pd.register(ROWS * ROW, AccessFlags::REMOTE_READ)?;
    memory.write(0, &table())?;
    let remote = memory.remote();
    let where_it_is = [&remote.address.to_be_bytes()[..], &remote.rkey.to_be_bytes()].concat();
    let accept = incoming.accept(pd.rc(&cq).create()?)?.private_data(&where_it_is)?;
    let connection = accept.access(AccessFlags::REMOTE_READ).establish().await?;
    println!("the client has left: {:?}", connection.closed().await?);
    Ok(())
}

/// A client's place for one row, and the table at the other side.
struct Reader {
    requests: Requests<Rc>,
    memory: MemoryRegion,
    table: Remote,
}

impl Reader {
    /// The value of a key, if there is one.
    async fn get(&self, key: &str) -> Result<Option<String>> {
        for step in 0..ROWS {
            let at = (first_row(key) + step) % ROWS * ROW;
            let far = Remote { address: self.table.address + at as u64, ..self.table };
            timeout(DEADLINE, self.requests.read(self.memory.segment(..)?, far)).await??;
            let mut row = [0; ROW];
            self.memory.read(0, &mut row)?;
            match part(&row, 0) {
                found if found == key => return Ok(Some(part(&row, 1))),
                found if found.is_empty() => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }
}

/// Looks all keys up at the same time.
async fn get(manager: &Manager, address: SocketAddr, keys: &[String]) -> Result<()> {
    let target = timeout(DEADLINE, manager.resolve(address).run()).await??;
    let context = target.device()?.0.open()?;
    let (pd, channel) = (context.alloc_pd()?, context.create_comp_channel()?);
    let cq = context.cq(64).channel(&channel).create()?;
    let qp = pd.rc(&cq).create()?;
    let connection = timeout(DEADLINE, target.connect(qp)?.establish()).await??;
    let (begin, rest) = connection.private_data().split_first_chunk().ok_or("the other side is no table")?;
    let rkey = rest.first_chunk().ok_or("the other side is no table")?;
    let table = Remote { address: u64::from_be_bytes(*begin), rkey: u32::from_be_bytes(*rkey) };

    let (qp, link) = connection.into_parts();
    let requests = Requests::new(qp, [cq])?;
    let mut gets = Vec::new();
    for key in keys.iter().cloned() {
        let memory = pd.register(ROW, AccessFlags::LOCAL_WRITE)?;
        let reader = Reader { requests: requests.clone(), memory, table };
        gets.push(tokio::spawn(async move { (reader.get(&key).await, key) }));
    }
    for get in gets {
        let (value, key) = get.await?;
        println!("{key}: {}", value?.as_deref().unwrap_or("no such key"));
    }
    timeout(DEADLINE, requests.drain()).await??;
    timeout(DEADLINE, link.disconnect()).await??;
    Ok(())
}

async fn on_soft_network() -> Result<()> {
    let (network, address) = (SoftNetwork::default(), "10.0.0.1:7174".parse()?);
    network.join(&SoftDevice::default(), SocketAddr::ip(&address))?;
    let manager = network.manager()?;
    let server = tokio::spawn(serve(manager.listen(address)?));
    let keys = ["red", "orange", "mauve"].map(str::to_owned);
    get(&manager, address, &keys).await?;
    timeout(DEADLINE, server).await??
}

async fn run() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => on_soft_network().await,
        ["serve", address] => serve(Manager::open()?.listen(address.parse()?)?).await,
        ["get", address, _, ..] => get(&Manager::open()?, address.parse()?, &arguments[2..]).await,
        _ => Err("usage: key_value [serve ADDRESS:PORT|get ADDRESS:PORT KEY...]".into()),
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("key_value: {error}");
            ExitCode::FAILURE
        }
    }
}
