//! Devices on a wire, used as a program in C uses them, without Debian's programs: in one process and in two.

use std::ffi::c_int;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::BorrowedFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::libc;
use uverbs::abi::types::{
    AccessFlags, QpAttrMask, SendFlags, mtu, qp_state, qp_type, wc_opcode, wc_status, wr_opcode,
};
use uverbs::abi::write::{AhAttr, GidEntry, Wc};
use uverbs::raw::Sge;
use uverbs::raw::provider::Rxe;
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::abi::{QpAttr, QpInitAttr, RecvWr, SendWr};
use crate::boundary::{Given, Handed, Places, Pointer};
use crate::channel::{ack_cq_events, create_comp_channel, destroy_comp_channel, get_cq_event};
use crate::context::{Context, close_device, open_device};
use crate::cq::{Cq, create_cq, destroy_cq, poll_cq, req_notify_cq};
use crate::device::{free_device_list, get_device_guid, get_device_list, get_device_name};
use crate::mr::{Mr, dereg_mr, reg_mr};
use crate::pd::{Pd, alloc_pd, dealloc_pd};
use crate::post::post_send;
use crate::qp::{Qp, create_qp, destroy_qp, modify_qp};
use crate::query::{query_gid_ex, query_gid_type};
use crate::receive::post_recv;

const ALL: AccessFlags =
    AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn errno() -> c_int {
    nix::errno::Errno::last_raw()
}

#[test]
fn an_entry_is_an_address_or_is_reported() {
    assert_eq!(parsed(""), (Vec::new(), Vec::new()));
    let (addresses, wrong) = parsed(" 127.0.0.2, ::1 ,nonsense,,127.0.0.2,0.0.0.0,239.1.2.3,10.0.0.1");
    assert_eq!(addresses, [(0, address("127.0.0.2")), (1, address("::1")), (7, address("10.0.0.1"))]);
    let texts: Vec<_> = wrong.iter().map(Wrong::to_string).collect();
    assert_eq!(
        texts,
        [
            "`nonsense` is not an IP address",
            "127.0.0.2 is there twice",
            "0.0.0.0 is not the address of one interface",
            "239.1.2.3 is not the address of one interface"
        ]
    );
    let (_, wrong) = parsed("127.0.0.2\n127.0.0.3");
    assert_eq!(wrong[0].to_string(), "`127.0.0.2\\n127.0.0.3` is not an IP address");
}

/// An open device, and the objects that a program creates on it: a queue pair that sends to another one, with events, and memory of the
/// program.
struct World {
    context: Pointer,
    pd: Box<Pd>,
    channel: Box<crate::channel::Channel>,
    cq: Box<Cq>,
    qp: Box<Qp>,
    mr: Box<Mr>,
    memory: Vec<u64>,
}

impl World {
    fn on(device: Pointer) -> Self {
        let context = open_device(device);
        let open = context.get::<Context>();
        let pd = alloc_pd(open).expect("a domain");
        let channel = create_comp_channel(open).expect("a channel");
        let cq = create_cq(open, 16, Pointer::NULL, Pointer::to(&*channel), 0).expect("a completion queue");
        let mut init = QpInitAttr::new_zeroed();
        (init.send_cq, init.recv_cq) = (Pointer::to(&*cq), Pointer::to(&*cq));
        (init.qp_type, init.sq_sig_all) = (qp_type::RC.into(), 1);
        (init.cap.max_send_wr, init.cap.max_send_sge) = (8, 1);
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (8, 1);
        let qp = create_qp(Some(&pd), Some(&mut init)).expect("a queue pair");
        let memory = vec![0; 4096];
        let at = Pointer::to_first(&memory);
        let mr = reg_mr(Some(&pd), at, size_of_val(&memory[..]), ALL.bits() as c_int).expect("a region");
        Self { context, pd, channel, cq, qp, mr, memory }
    }

    fn gid(&self) -> [u8; 16] {
        let mut entry = [GidEntry::new_zeroed()];
        let place = Places::of(entry[0].as_mut_bytes());
        let context = self.context.get::<Context>();
        assert_eq!(query_gid_ex(context, 1, 0, place, 0, size_of::<GidEntry>()), 0);
        let mut kind = std::mem::MaybeUninit::new(9);
        assert_eq!(query_gid_type(context, 1, 0, Some(&mut kind)), 0);
        assert_eq!(entry[0].gid_type, uverbs::abi::types::gid_type::ROCE_V2);
        entry[0].gid
    }

    /// What the other side has to know: the queue pair, the GID, and where the memory is.
    fn told(&self) -> String {
        let gid = u128::from_be_bytes(self.gid());
        format!("{:x} {gid:x} {:x} {:x}", self.qp.c.qp_base.qp_num, self.at(0), self.mr.c.rkey.get())
    }

    fn at(&self, word: usize) -> u64 {
        Pointer::to(&self.memory[word]).word()
    }

    fn connect(&self, peer: u32, gid: [u8; 16]) {
        use QpAttrMask as A;
        let mut attr = QpAttr::new_zeroed();
        (attr.qp_state, attr.port_num, attr.qp_access_flags) = (qp_state::INIT.into(), 1, ALL.bits());
        let modify = |attr: &QpAttr, mask: A| modify_qp(Some(&self.qp), Some(attr), mask.bits() as c_int);
        assert_eq!(modify(&attr, A::STATE | A::PORT | A::PKEY_INDEX | A::ACCESS_FLAGS), 0);
        (attr.qp_state, attr.path_mtu) = (qp_state::RTR.into(), mtu::MTU_1024.into());
        (attr.dest_qp_num, attr.max_dest_rd_atomic, attr.min_rnr_timer) = (peer, 1, 1);
        attr.ah_attr = AhAttr { is_global: 1, port_num: 1, ..AhAttr::new_zeroed() };
        attr.ah_attr.grh.dgid = gid;
        let more = A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER;
        assert_eq!(modify(&attr, A::STATE | A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN | more), 0);
        (attr.qp_state, attr.timeout, attr.retry_cnt) = (qp_state::RTS.into(), 14, 7);
        (attr.rnr_retry, attr.max_rd_atomic) = (7, 1);
        let more = A::RNR_RETRY | A::SQ_PSN | A::MAX_QP_RD_ATOMIC;
        assert_eq!(modify(&attr, A::STATE | A::TIMEOUT | A::RETRY_CNT | more), 0);
    }

    fn piece(&self, words: std::ops::Range<usize>) -> [Sge; 1] {
        let length = words.len() as u32 * 8;
        [Sge { addr: self.at(words.start), length, lkey: self.mr.c.lkey.get() }]
    }

    fn receive(&self, words: std::ops::Range<usize>) {
        let sge = self.piece(words);
        let mut wr = RecvWr::new_zeroed();
        (wr.sg_list, wr.num_sge) = (Pointer::to_first(&sge), 1);
        assert_eq!(post_recv::<Rxe>(&self.qp, Pointer::to(&wr), None), 0);
    }

    fn send(&self, opcode: u32, words: std::ops::Range<usize>, (remote, rkey): (u64, u32)) {
        let sge = self.piece(words);
        let mut wr = SendWr::new_zeroed();
        (wr.sg_list, wr.num_sge) = (Pointer::to_first(&sge), 1);
        (wr.opcode, wr.send_flags) = (opcode, SendFlags::SIGNALED.bits());
        (wr.wr[0], wr.wr[1]) = (remote, rkey.into());
        assert_eq!(post_send::<Rxe>(&self.qp, Pointer::to(&wr), None), 0);
    }

    /// The next completion, which an event announces.
    fn completion(&self) -> Wc {
        let mut wc = [Wc::new_zeroed()];
        loop {
            assert_eq!(req_notify_cq(&self.cq, 0), 0);
            if poll_cq::<Rxe>(&self.cq, 1, Places::of(&mut wc)) == 1 {
                assert_eq!(wc[0].status, wc_status::SUCCESS);
                return wc[0];
            }
            let fd = nix::poll::PollFd::new(self.fd(), nix::poll::PollFlags::POLLIN);
            assert_eq!(nix::poll::poll(&mut [fd], 20_000_u16), Ok(1), "no event");
            let (mut cq, mut cookie) = (0, Pointer::NULL);
            assert_eq!(get_cq_event(Some(&self.channel), Some(&mut cq), Some(&mut cookie)), 0);
            assert_eq!(cq, Pointer::to(&*self.cq).word());
            ack_cq_events(Some(&self.cq), 1);
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.channel.channel.as_fd()
    }

    fn end(self) {
        assert_eq!(destroy_qp(Given::of(self.qp)), 0);
        assert_eq!(dereg_mr(Some(self.mr)), 0);
        assert_eq!(destroy_cq(Given::of(self.cq)), 0);
        assert_eq!(destroy_comp_channel(Some(self.channel)), 0);
        assert_eq!(dealloc_pd(Some(self.pd)), 0);
        assert_eq!(close_device(Handed(self.context)), 0);
    }
}

fn device(text: &str, place: usize) -> Arc<Device> {
    Arc::new(Device::on_wire(DeviceOnWire::new(address(text), profile(place, Faults::default()))))
}

#[test]
fn an_address_is_taken_while_the_device_is_open() {
    let [one, other] = ["127.43.1.1", "127.43.1.1"].map(|address| device(address, 0));
    let open = |device: &Arc<Device>| open_device(Pointer::to(&**device));
    let first = open(&one);
    assert!(!first.is_null());
    assert!(open(&other).is_null() && errno() == libc::EADDRINUSE);
    let second = open(&one);
    assert!(!second.is_null(), "the device itself can be opened again");
    assert_eq!(close_device(Handed(first)), 0);
    assert!(open(&other).is_null());
    assert_eq!(close_device(Handed(second)), 0);
    let third = open(&other);
    assert!(!third.is_null(), "it is free");
    assert_eq!(close_device(Handed(third)), 0);
    let elsewhere = device("192.0.2.77", 1);
    assert!(open(&elsewhere).is_null() && errno() == libc::EADDRNOTAVAIL);
    assert_ne!(get_device_guid(Some(&one)), get_device_guid(Some(&elsewhere)));
}

/// Memory that a program does not have is refused, as the kernel does.
#[test]
fn memory_that_is_not_there_is_not_registered() {
    let device = device("127.43.2.1", 0);
    let world = World::on(Pointer::to(&*device));
    let write = AccessFlags::LOCAL_WRITE.bits() as c_int;
    let refused = |at: Pointer, len: usize, access: c_int| {
        assert!(reg_mr(Some(&world.pd), at, len, access).is_none());
        errno()
    };
    let start = Pointer::to_first(&world.memory);
    assert_eq!(refused(Pointer::from_word(64), 8, write), libc::EFAULT);
    assert_eq!(refused(start, 1 << 46, write), libc::EFAULT);
    assert_eq!(refused(start, 0, write), libc::EINVAL);
    assert_eq!(refused(start, usize::MAX, write), libc::EINVAL);
    static CONSTANT: [u64; 2] = [7, 8];
    assert_eq!(refused(Pointer::to(&CONSTANT), 16, write), libc::EFAULT, "it cannot be written");
    let constant = reg_mr(Some(&world.pd), Pointer::to(&CONSTANT), 16, 0);
    assert_eq!(dereg_mr(constant), 0);
    world.end();
}

/// Runs this test program again, as the other process of a test.
struct Other {
    process: Child,
    input: ChildStdin,
    output: std::io::Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(value: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "--ignored", "--nocapture", "on_wire::tests::the_other_process"])
            .env(VARIABLE, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let (input, output) = (process.stdin.take().expect("it"), process.stdout.take().expect("it"));
        Self { process, input, output: BufReader::new(output).lines() }
    }

    /// What it says, as numbers.
    fn says(&mut self) -> Vec<u128> {
        let line =
            self.output.find_map(|line| line.ok()?.split_once("numbers: ").map(|(_, rest)| rest.to_owned()));
        let line = line.expect("it says something");
        line.split(' ').map(|word| u128::from_str_radix(word, 16).expect("a number")).collect()
    }
}

#[test]
fn programs_of_two_processes_reach_each_other() {
    let mut other = Other::start("127.43.3.9,nonsense,127.43.3.2");
    let device = device("127.43.3.1", 0);
    let world = World::on(Pointer::to(&*device));
    let theirs = other.says();
    let [qp, gid, at, rkey] = theirs[..] else { panic!("{theirs:?}") };
    world.connect(qp as u32, gid.to_be_bytes());
    world.receive(0..8);
    writeln!(other.input, "{}", world.told()).expect("it listens");
    // It sends 1, 2, ... as a message, and then waits to be told that its memory was changed.
    assert_eq!((world.completion().opcode, world.memory[7]), (wc_opcode::RECV, 8));
    let there = (at as u64, rkey as u32);
    world.send(wr_opcode::RDMA_READ, 16..16 + 2048, there);
    assert_eq!(world.completion().opcode, wc_opcode::RDMA_READ);
    assert_eq!((world.memory[16], world.memory[16 + 2047]), (1, 2048));
    world.send(wr_opcode::RDMA_WRITE, 20..24, there);
    assert_eq!(world.completion().opcode, wc_opcode::RDMA_WRITE);
    writeln!(other.input, "written").expect("it listens");
    let output = other.process.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("libibverbs: Warning: UVERBS_SOFT: `nonsense` is not an IP address"), "{said}");
    world.end();
}

#[test]
#[ignore = "the other process of a test"]
fn the_other_process() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let mut count = 0;
    let list = get_device_list(Some(&mut count));
    let again = get_device_list(None);
    let soft: Vec<_> = (0..count as usize).filter_map(|place| list.item::<Pointer>(place)).copied().collect();
    let same: Vec<_> =
        (0..count as usize).filter_map(|place| again.item::<Pointer>(place)).map(|p| p.word()).collect();
    assert_eq!(soft.iter().map(|p| p.word()).collect::<Vec<_>>(), same, "the same objects");
    free_device_list(Handed(again));
    // The kernel's devices come first.
    let [first, second] = soft[soft.len() - 2..] else { panic!("two devices") };
    let name = |device: Pointer| *get_device_name(device.get()).get::<[u8; 6]>().expect("a name");
    assert_eq!([name(first), name(second)], [*b"soft0\0", *b"soft2\0"]);
    let world = World::on(second);
    free_device_list(Handed(list));
    println!("numbers: {}", world.told());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the numbers");
    let theirs: Vec<_> =
        line.split_whitespace().map(|word| u128::from_str_radix(word, 16).expect("a number")).collect();
    let [qp, gid, _, _] = theirs[..] else { panic!("{line}") };
    world.connect(qp as u32, gid.to_be_bytes());
    // The program and the device both have the memory: what the program writes is what the device sends.
    let mut world = world;
    for (place, word) in world.memory.iter_mut().enumerate() {
        *word = place as u64 + 1;
    }
    world.send(wr_opcode::SEND, 0..8, (0, 0));
    assert_eq!(world.completion().opcode, wc_opcode::SEND);
    let start = Instant::now();
    line.clear();
    std::io::stdin().read_line(&mut line).expect("a line");
    assert!(start.elapsed() < Duration::from_secs(60) && line == "written\n");
    assert_eq!(world.memory[..5], [5, 6, 7, 8, 5]);
    world.end();
}
