//! Sends datagrams to a queue pair and to a multicast group, and answers the sender, whose address is in the received data.
//!
//! `cargo run --example datagrams [DEVICE]`: on the soft device, or on the named one. Both ends are one queue pair of this process.

use uverbs::{
    AccessFlags, Completion, CompletionQueue, ConnectionOptions, Context, Datagram, MULTICAST_QP,
    ReceiveRequest, Result, Route, SendRequest, SoftDevice,
};

/// A datagram is delivered only if it carries this key.
const KEY: u32 = 0x1234_5678;
/// Bytes before the data of each receive: the routing header, which has the sender's address.
const HEADER: usize = 40;
const ROOM: usize = HEADER + 256;
/// A group of this link alone (ff12::/16).
const GROUP: [u8; 16] = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];

fn main() -> Result<()> {
    let context = match std::env::args().nth(1).filter(|name| name != "soft0") {
        Some(name) => uverbs::devices()?.named(&name)?.open()?,
        None => SoftDevice::default().open()?,
    };
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(16)?);
    let mut qp = pd.ud(&cq).inline(64).create()?;
    let index = gid_index(&context)?;
    qp.activate(&ConnectionOptions::new(1, index), KEY, 0)?;
    let memory = pd.register(3 * ROOM, AccessFlags::LOCAL_WRITE)?;
    for slot in 0..3 {
        qp.post_receive(&[ReceiveRequest::new(
            slot as u64,
            &[memory.segment(slot * ROOM..(slot + 1) * ROOM)?],
        )])?;
    }

    // To a queue pair: its address, its number and its key.
    let ah = pd.create_ah(&Route::new(1, index, context.gid(1, index.into())?.raw))?;
    let to = Datagram { to: &ah, qp_num: qp.number(), qkey: KEY, immediate: None };
    qp.post_send(&[SendRequest::inline(10, to, b"a question").signaled()])?;
    let question = receive(&mut cq);
    println!("{:?} from queue pair {}", text(&memory, &question)?, question.source_qp);

    // Back to the sender.
    let mut header = [0; HEADER];
    memory.read(question.wr_id as usize * ROOM, &mut header)?;
    let back = pd.create_ah(&Route::back(1, &context.gid_table()?, &header)?)?;
    let to = Datagram { to: &back, qp_num: question.source_qp, qkey: KEY, immediate: Some(7) };
    qp.post_send(&[SendRequest::inline(11, to, b"an answer").signaled()])?;
    let answer = receive(&mut cq);
    println!("{:?} with the number {}", text(&memory, &answer)?, u32::from_be(answer.immediate));

    // To all members of a group.
    let membership = qp.join_multicast(&GROUP, 0)?;
    let everybody = pd.create_ah(&Route::new(1, index, GROUP))?;
    let to = Datagram { to: &everybody, qp_num: MULTICAST_QP, qkey: KEY, immediate: None };
    qp.post_send(&[SendRequest::inline(12, to, b"to everybody").signaled()])?;
    let news = receive(&mut cq);
    println!("{:?}", text(&memory, &news)?);
    membership.leave().map_err(|(_, error)| error)
}

/// Waits for a datagram; what is sent completes as well.
fn receive(cq: &mut CompletionQueue) -> Completion {
    let mut batch = Completion::batch::<1>();
    loop {
        while cq.poll(&mut batch) == 0 {
            std::thread::yield_now();
        }
        let completion = batch[0].ok().unwrap_or_else(|status| panic!("{status}"));
        if completion.is_receive() {
            return *completion;
        }
    }
}

/// The received data, without the routing header, which the completion's length includes.
fn text(memory: &uverbs::MemoryRegion, completion: &Completion) -> Result<String> {
    let mut bytes = vec![0; (completion.len as usize).saturating_sub(HEADER)];
    memory.read(completion.wr_id as usize * ROOM + HEADER, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The index of the port's first address that contains an IPv4 address, otherwise 0.
fn gid_index(context: &Context) -> Result<u8> {
    let of_ipv4 = |raw: &[u8; 16]| raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    Ok(context.gid_table()?.iter().find(|gid| of_ipv4(&gid.raw)).map_or(0, |gid| gid.index as u8))
}
