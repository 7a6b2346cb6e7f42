//! Sends datagrams to a queue pair and to a multicast group, and answers the sender, whose address is in the received data.
//!
//! `cargo run --example datagrams [DEVICE]`: on the soft device, or on the named one. Both ends are one queue pair of this process.

use std::error::Error;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, Datagram, ErrorKind, MULTICAST_QP,
    MemoryRegion, Peer, ReceiveRequest, Route, SendRequest, SoftDevice, WcFlags,
};

/// A datagram is delivered only if it carries this key.
const KEY: u32 = 0x1234_5678;
/// Bytes before the data of each receive: the routing header, which has the sender's address.
const HEADER: usize = 40;
const ROOM: usize = HEADER + 256;
/// Groups of this link alone: ff12::5, and 239.1.2.3 for a port with an IPv4 address.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0, 5);
const GROUP_IPV4: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
/// Longest wait for a datagram, which may be lost.
const LIMIT: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("datagrams: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let context = match std::env::args().nth(1).filter(|name| name != "soft0") {
        Some(name) => uverbs::devices()?.named(&name)?.open()?,
        None => SoftDevice::default().open()?,
    };
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(16)?);
    let mut qp = pd.ud(&cq).inline(16).create()?;
    let own = context.gid_for(1, Peer::Unknown)?;
    println!("{own}");
    qp.activate(&ConnectionOptions::new(1, own.index), KEY, 0)?;
    let memory = pd.register(3 * ROOM, AccessFlags::LOCAL_WRITE)?;
    for slot in 0..3 {
        qp.post_receive(&[ReceiveRequest::new(
            slot as u64,
            &[memory.segment(slot * ROOM..(slot + 1) * ROOM)?],
        )])?;
    }

    // To a queue pair: its address, its number and its key. On InfiniBand, the port is found by its local identifier.
    let lid = context.query_port(1)?.legacy_resp.lid;
    let route = Route { lid, ..Route::new(1, own.index, own.gid.raw) };
    let ah = pd.create_ah(&route)?;
    let to = Datagram { to: &ah, qp_num: qp.number(), qkey: KEY, immediate: None };
    qp.post_send(&[SendRequest::inline(10, to, b"a question").signaled()])?;
    let question = receive(&mut cq)?;
    println!("{:?} from queue pair {}", text(&memory, &question)?, question.source_qp);

    // Back to the sender.
    let back = if question.flags.contains(WcFlags::GRH) {
        let mut header = [0; HEADER];
        memory.read(question.wr_id as usize * ROOM, &mut header)?;
        let lid = if lid == 0 { 0 } else { question.source_lid() };
        Route { lid, ..Route::back(1, &context.gid_table()?, &header)? }
    } else {
        println!("this device writes no routing header: the sender's address must be known");
        route
    };
    let back = pd.create_ah(&back)?;
    let to = Datagram { to: &back, qp_num: question.source_qp, qkey: KEY, immediate: Some(7) };
    qp.post_send(&[SendRequest::inline(11, to, b"an answer").signaled()])?;
    let answer = receive(&mut cq)?;
    println!("{:?} with the number {}", text(&memory, &answer)?, u32::from_be(answer.immediate));

    // To all members of a group.
    if lid != 0 {
        println!(
            "not sent to a group: on InfiniBand a subnet manager makes them, and gives each a local identifier"
        );
        return Ok(());
    }
    let ipv4 = Ipv6Addr::from(own.gid.raw).to_ipv4_mapped();
    let group = ipv4.map_or(GROUP, |_| GROUP_IPV4.to_ipv6_mapped()).octets();
    let membership = match qp.join_multicast(&group, 0) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            println!("not sent to a group: {error}");
            return Ok(());
        }
        joined => joined?,
    };
    // The kernel's software device hears itself only if a socket of this host is in the group too.
    let socket = match own.gid.interface {
        0 => None, // a soft device
        interface => Some(listen(ipv4, interface)?),
    };
    let everybody = pd.create_ah(&Route::new(1, own.index, group))?;
    let to = Datagram { to: &everybody, qp_num: MULTICAST_QP, qkey: KEY, immediate: None };
    qp.post_send(&[SendRequest::inline(12, to, b"to everybody").signaled()])?;
    let news = receive(&mut cq)?;
    println!("{:?}", text(&memory, &news)?);
    drop(socket);
    Ok(membership.leave().map_err(|(_, error)| error)?)
}

/// A socket in the group, on the interface of this side's address.
fn listen(ipv4: Option<Ipv4Addr>, interface: u32) -> std::io::Result<UdpSocket> {
    match ipv4 {
        Some(own) => {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.join_multicast_v4(&GROUP_IPV4, &own)?;
            Ok(socket)
        }
        None => {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
            socket.join_multicast_v6(&GROUP, interface)?;
            Ok(socket)
        }
    }
}

/// Waits for a datagram; what is sent completes as well.
fn receive(cq: &mut CompletionQueue) -> Result<Completion> {
    let (mut batch, start) = (Completion::batch::<1>(), Instant::now());
    loop {
        while cq.poll(&mut batch) == 0 {
            if start.elapsed() > LIMIT {
                return Err(format!("no datagram came in {LIMIT:?}").into());
            }
            std::thread::yield_now();
        }
        let completion = batch[0].ok().map_err(|status| status.to_string())?;
        if completion.is_receive() {
            return Ok(*completion);
        }
    }
}

/// The received data, without the routing header, which the completion's length includes.
fn text(memory: &MemoryRegion, completion: &Completion) -> Result<String> {
    let mut bytes = vec![0; (completion.len as usize).saturating_sub(HEADER)];
    memory.read(completion.wr_id as usize * ROOM + HEADER, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
