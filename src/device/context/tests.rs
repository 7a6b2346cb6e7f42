//! The payload of commands to drivers without queues in this crate, and calls that are refused before a command is sent.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use uverbs_abi::ioctl::{UHW_IN, UHW_OUT};
use uverbs_abi::types::{AccessFlags, driver_id, node_type};

use super::{Context, OpenOptions};
use crate::device::{Device, Node};
use crate::kernel::error::{ErrorKind, Result};
use crate::kernel::transport::{Reply, Script};

/// A command: its name, the driver's request, and the size of the place for its response.
type Sent = (&'static str, Option<Vec<u8>>, Option<usize>);

/// A device with this driver number but without a driver: it accepts every command.
fn open(driver_id: u32) -> (Context, Arc<Mutex<Vec<Sent>>>) {
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
    let sent = Arc::new(Mutex::new(Vec::new()));
    let record = sent.clone();
    let script = move |reply: &mut Reply<'_, '_>| {
        assert_eq!(reply.header().driver_id, driver_id);
        let at = |id: u16| reply.attrs().position(|attr| attr.attr_id == id);
        let request = at(UHW_IN).and_then(|index| reply.input_bytes(index)).map(<[u8]>::to_vec);
        let room = at(UHW_OUT).and_then(|index| reply.output_bytes(index)).map(<[u8]>::len);
        record.lock().unwrap().push((reply.op(), request, room));
        if reply.op() == "async_event.create" {
            let (events, _) = std::os::unix::net::UnixStream::pair().map_err(|_| Errno::EMFILE)?;
            reply.fd(events.into());
        }
        reply.zeros()
    };
    let context = OpenOptions::new().open_through(&device, |_| Box::new(Script::new(script))).unwrap();
    (context, sent)
}

/// Everything that every driver supports, and the commands that were sent for it.
fn without_queues(driver_id: u32) -> Vec<Sent> {
    refusing(driver_id, |context| refused(context.create_cq(4)))
}

/// Everything that a driver supports that refuses `what`, in addition to shared receive queues and tables, and the commands that were sent
/// for it.
fn refusing(driver_id: u32, what: impl FnOnce(&Context)) -> Vec<Sent> {
    let (context, sent) = open(driver_id);
    context.query_device().unwrap();
    context.query_all().unwrap();
    let pd = context.alloc_pd().unwrap();
    let regions = [(); 2].map(|()| pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap());
    let before = sent.lock().unwrap().len();
    what(&context);
    refused(pd.create_srq(4));
    refused(context.create_indirection_table(&[]));
    assert_eq!(sent.lock().unwrap().len(), before, "no command was sent for what is refused");
    drop(regions);
    let sent = sent.lock().unwrap();
    sent.iter().filter(|(op, ..)| !op.ends_with("destroy")).cloned().collect()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.hint().is_some(), "{error}");
}

/// Drivers that may return a number of the protection domain have room for it.
const DOMAIN: Sent = ("pd.alloc", None, Some(8));

fn bare(op: &'static str) -> Sent {
    (op, None, None)
}

#[test]
fn an_unknown_driver_is_told_nothing() {
    let expected = [
        bare("context.create"),
        bare("async_event.create"),
        bare("device.query"),
        bare("device.query"),
        DOMAIN,
        bare("mr.register"),
        bare("mr.register"),
    ];
    assert_eq!(without_queues(driver_id::IONIC), expected);
    let error = open(driver_id::IONIC).0.create_cq(4).unwrap_err();
    // The error names all drivers that have them.
    assert!(
        error.hint().is_some_and(|hint| hint.contains("the soft device, rxe, mlx5, efa, siw, erdma, mana")),
        "{error}"
    );
}

/// `siw_alloc_ucontext` and `siw_reg_user_mr`, siw_verbs.c, Linux 6.1. A query with a larger place is EINVAL there.
#[test]
fn siw_has_room_for_each_of_its_answers() {
    let region = |key: u8| ("mr.register", Some(vec![key, 0, 0, 0, 0, 0, 0, 0]), Some(8));
    let expected = [
        ("context.create", None, Some(8)),
        bare("async_event.create"),
        bare("device.query"),
        bare("device.query"),
        bare("pd.alloc"),
        region(0),
        region(1),
    ];
    let (context, sent) = open(driver_id::SIW);
    context.query_device().unwrap();
    context.query_all().unwrap();
    let pd = context.alloc_pd().unwrap();
    let regions = [(); 2].map(|()| pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap());
    assert_eq!(*sent.lock().unwrap(), expected);
    refused(context.open_xrcd());
    refused(context.create_indirection_table(&[]));
    assert_eq!(sent.lock().unwrap().len(), expected.len(), "no command was sent for what is refused");
    drop(regions);
    // Nothing can be mapped.
    assert!(context.create_cq(3).is_err());
    assert!(pd.create_srq(3).is_err());
    let sent = sent.lock().unwrap();
    for (op, end) in [("cq.create", "cq.destroy"), ("srq.create", "srq.destroy")] {
        assert!(sent.contains(&(op, None, Some(16))), "{sent:?}");
        assert!(sent.iter().any(|(op, ..)| *op == end), "it is not left behind");
    }
}

/// `efa_alloc_ucontext`, efa_verbs.c, Linux 6.1: an input of 8 bytes, with both bits that the driver defines, and an output of 24.
#[test]
fn efa_is_told_what_the_process_knows_of() {
    let expected = [
        ("context.create", Some(vec![3, 0, 0, 0, 0, 0, 0, 0]), Some(24)),
        bare("async_event.create"),
        bare("device.query"),
        bare("device.query"),
        DOMAIN,
        bare("mr.register"),
        bare("mr.register"),
    ];
    assert_eq!(refusing(driver_id::EFA, |context| refused(context.open_xrcd())), expected);
}

/// `efa_create_user_cq`, efa_verbs.c, Linux 7.3.
#[test]
fn efa_has_room_for_where_its_queues_are() {
    let (context, sent) = open(driver_id::EFA);
    // Nothing can be mapped.
    assert!(context.create_cq(3).is_err());
    let sent = sent.lock().unwrap();
    let of = |op: &str| sent.iter().find(|(name, ..)| *name == op).cloned().unwrap();
    let request = vec![0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(of("cq.create"), ("cq.create", Some(request), Some(40)));
    assert!(sent.iter().any(|(op, ..)| *op == "cq.destroy"), "it is not left behind");
}

/// `erdma_alloc_ucontext`, erdma_verbs.c, Linux 7.3: the place for the answer has 40 bytes, and nothing else has an answer. A query with a
/// place for one is refused.
#[test]
fn erdma_has_room_for_its_answer() {
    let expected = [
        ("context.create", None, Some(40)),
        bare("async_event.create"),
        bare("device.query"),
        bare("device.query"),
        bare("pd.alloc"),
        bare("mr.register"),
        bare("mr.register"),
    ];
    assert_eq!(refusing(driver_id::ERDMA, |context| refused(context.open_xrcd())), expected);
    let (context, sent) = open(driver_id::ERDMA);
    // No page of doorbells can be mapped.
    assert!(context.create_cq(3).is_err());
    assert!(sent.lock().unwrap().iter().all(|(op, ..)| *op != "cq.create"), "nothing is left behind");
}

/// `mana_ib_alloc_ucontext`, hw/mana/main.c, Linux 7.3: a request must be empty, and the response has 8 bytes.
#[test]
fn mana_has_room_for_its_answers() {
    let (context, sent) = open(driver_id::MANA);
    context.query_device().unwrap();
    let pd = context.alloc_pd().unwrap();
    let region = pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
    let expected = [
        ("context.create", None, Some(8)),
        bare("async_event.create"),
        bare("device.query"),
        DOMAIN,
        bare("mr.register"),
    ];
    assert_eq!(*sent.lock().unwrap(), expected);
    refused(pd.create_srq(4));
    refused(context.create_indirection_table(&[]));
    refused(context.open_xrcd());
    assert_eq!(sent.lock().unwrap().len(), expected.len(), "no command was sent for what is refused");
    drop(region);
    // The device of this test reports limits of zero.
    assert_eq!(context.create_cq(3).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(sent.lock().unwrap().iter().all(|(op, ..)| *op != "cq.destroy"), "nothing was created");
}

/// As libibverbs' providers format it: `mlx5_query_device_ex`, `rxe_query_device` and `efa_query_device_ex`, rdma-core 65.
#[test]
fn each_driver_words_its_firmware() {
    let said = |driver_id, number| open(driver_id).0.firmware(number);
    let number = 0x0010_0020_0003;
    assert_eq!([said(driver_id::MLX5, number), said(driver_id::RXE, number)], ["16.32.0003", "16.32.3"]);
    assert_eq!(said(driver_id::EFA, u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8])), "1.2.3.4");
    assert_eq!(said(driver_id::ERDMA, number), "16.32.3");
    assert_eq!(said(driver_id::MANA, number), "", "nobody knows how");
}

/// The kernel does not survive the end of an mlx5 device file after such a refusal (docs/internals/kernels.md).
#[test]
fn a_device_file_stays_open_after_a_counter_may_have_been_refused() {
    let lives = |driver_id, is_refused: bool| {
        let (context, _) = open(driver_id);
        let core = Arc::downgrade(&context.0);
        if is_refused {
            context.abandon_counters();
        }
        drop(context);
        core.upgrade().is_some()
    };
    assert!(lives(driver_id::MLX5, true));
    assert!(!lives(driver_id::MLX5, false));
    assert!(!lives(driver_id::RXE, true), "it has no counters");
}
