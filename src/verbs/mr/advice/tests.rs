//! Advice on memory, to a kernel that the test plays.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::CORE_OUT;
use uverbs_abi::ids::mr;
use uverbs_abi::types::{AccessFlags, driver_id, node_type};
use uverbs_abi::write::{ExQueryDeviceResp, RegMrResp, ReregMrResp};
use zerocopy::{FromZeros, IntoBytes};

use super::{Prefetch, pieces};
use crate::device::context::{Context, OpenOptions};
use crate::device::{Device, Node};
use crate::driver::request::Sge;
use crate::kernel::error::{ErrorKind, Result};
use crate::kernel::mapping::Mapping;
use crate::kernel::transport::{Reply, Script};

const PAGED: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::ON_DEMAND);
const PINNED: AccessFlags = AccessFlags::LOCAL_WRITE;

/// The kernel: its regions get these keys, and then 0x100, 0x200 and so on.
#[derive(Default)]
struct Kernel {
    sent: Mutex<Vec<&'static str>>,
    keys: Mutex<VecDeque<u32>>,
    next: Mutex<u32>,
    has_no_paging: bool,
    /// What it says when a region is deregistered.
    refuses: Mutex<Option<Errno>>,
    /// Advice says here that it has come, and waits here for its end.
    advice: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Kernel {
    fn key(&self) -> u32 {
        self.keys.lock().unwrap().pop_front().unwrap_or_else(|| {
            let mut next = self.next.lock().unwrap();
            *next += 0x100;
            *next
        })
    }

    fn count(&self, op: &str) -> usize {
        self.sent.lock().unwrap().iter().filter(|sent| **sent == op).count()
    }

    fn answer(&self, reply: &mut Reply<'_, '_>) -> Result<(), Errno> {
        self.sent.lock().unwrap().push(reply.op());
        match reply.op() {
            "async_event.create" => {
                let (events, _) = std::os::unix::net::UnixStream::pair().map_err(|_| Errno::EMFILE)?;
                reply.fd(events.into());
            }
            "device.query" => {
                let mut answer = ExQueryDeviceResp::new_zeroed();
                answer.odp_caps.general_caps = u64::from(!self.has_no_paging);
                reply.write(CORE_OUT, answer.as_bytes());
            }
            "mr.register" => {
                let lkey = self.key();
                let made = RegMrResp { mr_handle: lkey, lkey, rkey: lkey };
                reply.write(CORE_OUT, made.as_bytes());
            }
            "mr.change_domain" => {
                let lkey = self.key();
                let keys = ReregMrResp { lkey, rkey: lkey };
                reply.write(CORE_OUT, keys.as_bytes());
            }
            "mr.destroy" => self.refuses.lock().unwrap().map_or(Ok(()), Err)?,
            "mr.advise" => {
                if let Some((came, end)) = self.advice.lock().unwrap().take() {
                    came.send(()).unwrap();
                    end.recv().unwrap();
                }
                let list = reply.attrs().position(|attr| attr.attr_id == mr::advise::SGE_LIST);
                list.filter(|at| reply.attrs().nth(*at).is_some_and(|attr| attr.len > 0))
                    .ok_or(Errno::EINVAL)?;
            }
            _ => {}
        }
        reply.zeros()
    }
}

fn open(driver_id: u32, kernel: Kernel) -> (Context, Arc<Kernel>) {
    let kernel = Arc::new(kernel);
    let answers = kernel.clone();
    let script = move |reply: &mut Reply<'_, '_>| answers.answer(reply);
    let device = Device {
        name: "test0".into(),
        index: None,
        // Opened, and never used.
        node: Node::File(PathBuf::from("/dev/null")),
        driver_id,
        abi_version: 1,
        node_guid: 0,
        sys_image_guid: 0,
        firmware: String::new(),
        node_type: node_type::IB_CA,
        protocol: None,
        ports: 1,
        interfaces: Vec::new(),
        sysfs: None,
    };
    (OpenOptions::new().open_through(&device, |_| Box::new(Script::new(script))).unwrap(), kernel)
}

fn rxe() -> (Context, Arc<Kernel>) {
    open(driver_id::RXE, Kernel::default())
}

fn piece(lkey: u32) -> Sge {
    Sge { addr: 0x1000, length: 64, lkey }
}

#[track_caller]
fn refused(answer: Result<()>, errno: Errno) {
    assert_eq!(answer.unwrap_err().errno(), Some(errno as i32));
}

#[test]
fn advice_is_sent_about_regions_that_are_paged_and_about_no_others() {
    let (context, kernel) = rxe();
    let (pd, other) = (context.alloc_pd().unwrap(), context.alloc_pd().unwrap());
    let paged = [&pd, &pd, &other].map(|pd| pd.register(64, PAGED).unwrap());
    let pinned = pd.register(64, PINNED).unwrap();
    let keys = paged.each_ref().map(|region| region.lkey());
    pd.send_advice("mr.advise", [0, 0], &[piece(keys[0]), piece(keys[1]), piece(keys[0])]).unwrap();
    // rxe compares domains itself.
    pd.send_advice("mr.advise", [1, 1], &[piece(keys[2])]).unwrap();
    assert_eq!(kernel.count("mr.advise"), 2);
    for list in [
        &[piece(pinned.lkey())][..],
        &[piece(keys[0]), piece(pinned.lkey())],
        &[piece(0)],
        &[piece(u32::MAX)],
        &[piece(keys[0] + 1)],
    ] {
        for what in [[0, 0], [1, 1], [2, 0]] {
            refused(pd.send_advice("mr.advise", what, list), Errno::ENOENT);
        }
    }
    // Another open device has keys of its own.
    let (second, second_kernel) = rxe();
    second_kernel.keys.lock().unwrap().push_back(0x9900);
    let second_pd = second.alloc_pd().unwrap();
    refused(second_pd.send_advice("mr.advise", [0, 0], &[piece(keys[0])]), Errno::ENOENT);
    let of_second = second_pd.register(64, PAGED).unwrap();
    refused(pd.send_advice("mr.advise", [0, 0], &[piece(of_second.lkey())]), Errno::ENOENT);
    assert_eq!((kernel.count("mr.advise"), second_kernel.count("mr.advise")), (2, 0));
}

/// `UVERBS_METHOD_ADVISE_MR`, uverbs_std_types_mr.c, then `mlx5_ib_advise_mr`, mr.c, then `get_prefetchable_mr`, odp.c, Linux 6.1.
#[test]
fn errors_have_the_order_of_mlx5() {
    let (context, kernel) = rxe();
    let pd = context.alloc_pd().unwrap();
    let pinned = piece(pd.register(64, PINNED).unwrap().lkey());
    refused(pd.send_advice("mr.advise", [9, 2], &[pinned; 4096]), Errno::EINVAL);
    assert_eq!(kernel.count("device.query"), 0, "a list that is too long is not looked at");
    refused(pd.send_advice("mr.advise", [9, 2], &[pinned; 4095]), Errno::EINVAL);
    refused(pd.send_advice("mr.advise", [9, 1], &[pinned]), Errno::EOPNOTSUPP);
    refused(pd.send_advice("mr.advise", [2, 1], &[pinned]), Errno::ENOENT);
    assert_eq!(kernel.count("mr.advise"), 0);
    // About nothing, the kernel says what it says.
    refused(pd.send_advice("mr.advise", [0, 0], &[]), Errno::EINVAL);
    assert_eq!(kernel.count("mr.advise"), 1);
    // A kernel without paging has no advice, whatever it is.
    let (context, kernel) = open(driver_id::RXE, Kernel { has_no_paging: true, ..Kernel::default() });
    refused(context.alloc_pd().unwrap().send_advice("mr.advise", [9, 2], &[pinned]), Errno::EOPNOTSUPP);
    assert_eq!(kernel.count("mr.advise"), 0);
}

#[test]
fn a_key_is_good_for_as_long_as_its_region() {
    let (context, kernel) = rxe();
    let (pd, other) = (context.alloc_pd().unwrap(), context.alloc_pd().unwrap());
    let advise = |key| pd.send_advice("mr.advise", [0, 0], &[piece(key)]);
    let mut region = pd.register(64, PAGED).unwrap();
    let first = region.lkey();
    // A change may give it another key. The old one may then belong to a region that is not paged.
    region.change_domain(&other).unwrap();
    let key = region.lkey();
    assert_ne!(first, key);
    refused(advise(first), Errno::ENOENT);
    advise(key).unwrap();
    *kernel.refuses.lock().unwrap() = Some(Errno::EBUSY);
    let (region, error) = region.destroy().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    advise(key).unwrap();
    *kernel.refuses.lock().unwrap() = None;
    region.destroy().map_err(|(_, error)| error).unwrap();
    refused(advise(key), Errno::ENOENT);
    kernel.keys.lock().unwrap().push_back(key);
    let pinned = pd.register(64, PINNED).unwrap();
    assert_eq!(pinned.lkey(), key);
    refused(advise(key), Errno::ENOENT);
    assert_eq!(kernel.count("mr.advise"), 2);
}

#[test]
fn a_region_is_not_deregistered_while_advice_about_it_is_under_way() {
    let (context, kernel) = rxe();
    let pd = context.alloc_pd().unwrap();
    let region = pd.register(64, PAGED).unwrap();
    let list = [piece(region.lkey())];
    let ((came, has_come), (end, may_end)) = (channel(), channel());
    *kernel.advice.lock().unwrap() = Some((came, may_end));
    std::thread::scope(|scope| {
        let advice = scope.spawn(|| pd.send_advice("mr.advise", [0, 1], &list));
        has_come.recv().unwrap();
        let leaving = scope.spawn(move || region.destroy().map_err(|(_, error)| error));
        // What is not about that region does not wait.
        pd.register(64, PAGED).unwrap().destroy().map_err(|(_, error)| error).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(kernel.count("mr.destroy"), 1);
        assert!(!leaving.is_finished());
        end.send(()).unwrap();
        advice.join().unwrap().unwrap();
        leaving.join().unwrap().unwrap();
    });
    assert_eq!(kernel.count("mr.destroy"), 2);
    refused(pd.send_advice("mr.advise", [0, 0], &list), Errno::ENOENT);
}

#[test]
fn a_driver_that_checks_advice_is_sent_all_of_it() {
    for driver in [driver_id::MLX5, driver_id::SIW] {
        let (context, kernel) = open(driver, Kernel::default());
        context.alloc_pd().unwrap().send_advice("mr.advise", [9, 2], &[piece(7)]).unwrap();
        assert_eq!((kernel.count("mr.advise"), kernel.count("device.query")), (1, 0));
    }
}

#[test]
fn rxe_pages_only_where_the_process_has_the_memory() {
    let memory = Mapping::from(vec![0; 64].into_boxed_slice());
    let iova = memory.address() % 4096 + 0x10_0000;
    let registered = |driver, kernel, access, iova| {
        let (context, kernel) = open(driver, kernel);
        let made = context.alloc_pd().unwrap().memory(&memory).access(access).iova(iova).register();
        assert_eq!(kernel.count("mr.register"), usize::from(made.is_ok()));
        made.map(drop).map_err(|error| error.kind())
    };
    let without = || Kernel { has_no_paging: true, ..Kernel::default() };
    let unsupported = Err(ErrorKind::Unsupported);
    assert_eq!(registered(driver_id::RXE, Kernel::default(), PAGED, iova), unsupported);
    assert_eq!(registered(driver_id::RXE, Kernel::default(), PAGED, memory.address()), Ok(()));
    assert_eq!(registered(driver_id::RXE, Kernel::default(), PINNED, iova), Ok(()));
    assert_eq!(registered(driver_id::RXE, without(), PAGED, iova), Ok(()), "the kernel refuses it");
    assert_eq!(registered(driver_id::MLX5, Kernel::default(), PAGED, iova), Ok(()));
}

#[test]
fn a_prefetch_is_of_a_region_that_is_paged_and_inside_it() {
    use Prefetch::{Present, Read, Write};
    let (context, kernel) = rxe();
    let pd = context.alloc_pd().unwrap();
    let (paged, pinned) = (pd.register(4096, PAGED).unwrap(), pd.register(4096, PINNED).unwrap());
    paged.prefetch(.., Write).unwrap();
    paged.prefetch(8..16, Read).unwrap();
    paged.start_prefetch(4095.., Present).unwrap();
    assert_eq!((kernel.count("mr.prefetch"), kernel.count("mr.start_prefetch")), (2, 1));
    paged.prefetch(4096.., Read).unwrap();
    for range in [0..4097, 4097..4097, usize::MAX..usize::MAX] {
        let error = paged.prefetch(range, Read).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.hint().unwrap().contains("4096"), "{error}");
    }
    let error = pinned.prefetch(.., Read).unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidInput && error.hint().unwrap().contains("ON_DEMAND"),
        "{error}"
    );
    assert_eq!((kernel.count("mr.prefetch"), kernel.count("device.query")), (2, 0));
}

#[test]
fn a_part_is_cut_into_pieces_that_every_driver_takes() {
    let of = |start, end| {
        pieces(0x1000, start, end, 7).map(|piece| (piece.addr, piece.length)).collect::<Vec<_>>()
    };
    assert_eq!(of(5, 5), []);
    assert_eq!(of(5, 9), [(0x1005, 4)]);
    let (whole, more) = (1 << 30, (1 << 30) + 1);
    assert_eq!(of(0, whole), [(0x1000, 1 << 30)]);
    assert_eq!(of(1, whole + more), [(0x1001, 1 << 30), (0x1001 + (1 << 30), 1 << 30)]);
    assert_eq!(of(0, more), [(0x1000, 1 << 30), (0x1000 + (1 << 30), 1)]);
}
