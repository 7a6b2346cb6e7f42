//! Connections by the kernel's connection manager, through its device file, for queue pairs that cannot be connected otherwise.
//!
//! Both sides are in this process and share the file. Commands and their layouts: include/uapi/rdma/rdma_user_cm.h and
//! drivers/infiniband/core/ucma.c, Linux 6.1.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use uverbs::{QueuePair, Rc};

const CREATE_ID: u32 = 0;
const RESOLVE_ROUTE: u32 = 4;
const CONNECT: u32 = 6;
const LISTEN: u32 = 7;
const ACCEPT: u32 = 8;
const GET_EVENT: u32 = 12;
const BIND: u32 = 20;
const RESOLVE_ADDRESS: u32 = 21;

/// Numbers of events.
const ADDRESS_RESOLVED: u32 = 0;
const ROUTE_RESOLVED: u32 = 2;
const CONNECT_REQUEST: u32 = 4;
const ESTABLISHED: u32 = 9;
pub const DISCONNECTED: u32 = 10;

/// The port space of TCP, and the type of a connected queue pair.
const TCP: u16 = 0x106;
const CONNECTED: u8 = 2;

/// This side's number for an identifier. It must not be zero: the kernel reports no events for an identifier with zero
/// (`ucma_event_handler`, ucma.c).
const OWN: u64 = 1;

/// Timeout in milliseconds for an address or a route.
const TIMEOUT: u32 = 5000;

/// Maximum number of reads in flight.
const DEPTH: u8 = 8;

/// The next port to listen on.
static PORT: AtomicU16 = AtomicU16::new(18_515);

/// The memory to which the kernel writes an answer while a command is written: words whose address is part of the command.
struct Answer<const WORDS: usize>(Box<[AtomicU32; WORDS]>);

impl<const WORDS: usize> Answer<WORDS> {
    fn new() -> Self {
        Self(Box::new([const { AtomicU32::new(0) }; WORDS]))
    }

    fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    fn word(&self, at: usize) -> u32 {
        self.0[at].load(Ordering::Relaxed)
    }
}

/// The connection manager's file with two identifiers. The connection ends when it is dropped.
#[derive(Debug)]
pub struct Manager(File);

/// The address of the device's interface, which the lane sets.
pub fn address() -> Option<Ipv4Addr> {
    std::env::var("UVERBS_TEST_ADDRESS").ok().map(|address| address.parse().expect("an address"))
}

impl Manager {
    /// Connects one queue pair to another over this address.
    pub fn connect(address: Ipv4Addr, one: &QueuePair<Rc>, two: &QueuePair<Rc>) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(O_NONBLOCK);
        let this = Self(options.open("/dev/infiniband/rdma_cm").expect("the connection manager's file"));
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        let place = socket_address(address, port);

        let server = this.create_id();
        this.command(BIND, &[&words(&[server]), &16_u16.to_ne_bytes(), &[0; 2], &place]);
        this.command(LISTEN, &[&words(&[server, 4])]);
        let client = this.create_id();
        let sizes = [0_u16, 16].map(u16::to_ne_bytes).concat();
        this.command(RESOLVE_ADDRESS, &[&words(&[client, TIMEOUT]), &sizes, &[0; 4], &[0; 128], &place]);
        this.expect(ADDRESS_RESOLVED);
        this.command(RESOLVE_ROUTE, &[&words(&[client, TIMEOUT])]);
        this.expect(ROUTE_RESOLVED);
        this.command(CONNECT, &[&parameters(one.number()), &words(&[client, 0]), &[0; 8]]);
        let request = this.expect(CONNECT_REQUEST);
        this.command(
            ACCEPT,
            &[&OWN.to_ne_bytes(), &parameters(two.number()), &words(&[request, 0]), &[0; 8]],
        );
        let both = [this.expect(ESTABLISHED), this.expect(ESTABLISHED)];
        assert!(both.contains(&client) && both.contains(&request), "{both:?} of {client} and {request}");
        this
    }

    /// Waits for an event with this number, and returns the identifier to which it belongs.
    #[track_caller]
    pub fn expect(&self, wanted: u32) -> u32 {
        let start = Instant::now();
        let answer = Answer::<84>::new();
        let body = answer.address().to_ne_bytes();
        loop {
            match self.write(GET_EVENT, &[&body]) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no event {wanted}");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (id, event, status) = (answer.word(2), answer.word(3), answer.word(4) as i32);
        assert!(
            event == wanted && (status == 0 || wanted == DISCONNECTED),
            "event {event}, status {status}, not {wanted}"
        );
        id
    }

    fn create_id(&self) -> u32 {
        let answer = Answer::<1>::new();
        let place = [OWN, answer.address()].map(u64::to_ne_bytes).concat();
        self.command(CREATE_ID, &[&place, &TCP.to_ne_bytes(), &[CONNECTED], &[0; 5]]);
        answer.word(0)
    }

    #[track_caller]
    fn command(&self, number: u32, body: &[&[u8]]) {
        self.write(number, body).unwrap_or_else(|error| panic!("command {number}: {error}"));
    }

    /// Sends one command: its number, the length of its body, and the maximum length of its answer.
    fn write(&self, number: u32, body: &[&[u8]]) -> std::io::Result<()> {
        let body = body.concat();
        let lengths = [body.len() as u16, 1024].map(u16::to_ne_bytes).concat();
        let whole = [&number.to_ne_bytes()[..], &lengths, &body].concat();
        let written = (&self.0).write(&whole)?;
        assert_eq!(written, whole.len());
        Ok(())
    }
}

#[cfg(any(target_arch = "mips", target_arch = "mips64", target_arch = "sparc64"))]
compile_error!("another number of O_NONBLOCK");
const O_NONBLOCK: i32 = 0o4000;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A socket address, with the size that the kernel uses for all addresses.
fn socket_address(address: Ipv4Addr, port: u16) -> [u8; 128] {
    const AF_INET: u16 = 2;
    let mut place = [0; 128];
    place[..2].copy_from_slice(&AF_INET.to_ne_bytes());
    place[2..4].copy_from_slice(&port.to_be_bytes());
    place[4..8].copy_from_slice(&address.octets());
    place
}

/// The parameters of a connection: the queue pair, and the maximum number of reads in each direction.
fn parameters(qp_num: u32) -> [u8; 272] {
    let mut place = [0; 272];
    place[..4].copy_from_slice(&qp_num.to_ne_bytes());
    (place[266], place[267], place[271]) = (DEPTH, DEPTH, 1);
    place
}
