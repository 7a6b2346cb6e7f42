//! A program that puts its own `open`, `ioctl`, `write` and `mmap` in front of the C library's sees all that the library asks of a kernel, as it
//! would of libibverbs: recorders, fake devices and tracers work like this. Here such a program is the kernel of an rxe device.
//!
//! # Safety
//! - The functions here have the names and the parameters of the C library's, which take further ones from the same registers on the
//!   processors for which the library is built. Calls that are not about the device go to the next function of that name.
//! - What is read and written for a command is what the kernel reads and writes: a header, the attributes that it announces, and the
//!   memory of attributes that are outputs, at most its length.

#![allow(unsafe_code)]
// Miri calls the functions of the C library itself.
#![cfg(not(miri))]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::fs;
use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::errno::Errno;
use nix::libc;
use uverbs::abi::ids::device::invoke_write::{CORE_OUT, WRITE_CMD};
use uverbs::abi::ids::{async_event, counters, cq, device, qp};
use uverbs::abi::ioctl::{ATTR_F_VALID_OUTPUT, Attr, IoctlHdr, RDMA_VERBS_IOCTL, UHW_OUT};
use uverbs::abi::types::AccessFlags;
use uverbs::abi::write::{CmdHdr, PostSend, PostSendResp, cmd};
use uverbs::{Eth, FlowRule, Operation, Point, SendRequest};
use zerocopy::FromBytes;

const NODE: &str = "/dev/infiniband/uverbs4711";

/// The descriptor of the device's file; -1 before it is opened.
static DEVICE: AtomicI32 = AtomicI32::new(-1);
/// Whether the kernel takes no write, as from a process that has other credentials than the one that opened the file.
static IS_FOREIGN: AtomicBool = AtomicBool::new(false);
/// Whether the kernel refuses doorbells.
static IS_DEAF: AtomicBool = AtomicBool::new(false);
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn see(what: String) {
    SEEN.lock().unwrap().push(what);
}

/// What was seen since the last call.
fn seen() -> Vec<String> {
    std::mem::take(&mut SEEN.lock().unwrap())
}

/// The C library's own function.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: `name` ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    found
}

fn nothing() -> c_int {
    fs::File::open("/dev/null").expect("/dev/null").into_raw_fd()
}

/// # Safety
/// As `open(2)`.
unsafe fn open_as(name: &CStr, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
    // SAFETY: the caller passes a text that ends with a zero.
    if unsafe { CStr::from_ptr(path) }.to_bytes() == NODE.as_bytes() {
        see("open".to_owned());
        DEVICE.store(nothing(), Ordering::SeqCst);
        return DEVICE.load(Ordering::SeqCst);
    }
    // SAFETY: the C library's function has this type.
    let open: Open = unsafe { std::mem::transmute(next(name)) };
    // SAFETY: the caller's promise, passed on.
    unsafe { open(path, flags, mode) }
}

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { open_as(c"open", path, flags, mode) }
}

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { open_as(c"open64", path, flags, mode) }
}

/// # Safety
/// As `close(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    if fd >= 0 && DEVICE.compare_exchange(fd, -1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        see("close".to_owned());
    }
    type Close = unsafe extern "C" fn(c_int) -> c_int;
    // SAFETY: the C library's function has this type.
    let close: Close = unsafe { std::mem::transmute(next(c"close")) };
    // SAFETY: the caller's promise, passed on.
    unsafe { close(fd) }
}

/// The number of slots of each ring, their size as a power of two, and the bytes of a ring with its header (rdma_user_rxe.h).
const SLOTS: u32 = 8;
const LOG2_SIZE: u32 = 9;
const RING: u32 = 384 + (SLOTS << LOG2_SIZE);

/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
    // SAFETY: the C library's function has this type.
    let mmap: Mmap = unsafe { std::mem::transmute(next(c"mmap")) };
    if fd < 0 || fd != DEVICE.load(Ordering::SeqCst) {
        // SAFETY: the caller's promise, passed on.
        return unsafe { mmap(at, len, access, flags, fd, offset) };
    }
    see(format!("mmap {offset:#x}"));
    // SAFETY: a new anonymous mapping of at least the bytes of a ring; its first two words are those of a ring's header.
    unsafe {
        let ring = mmap(at, len.max(RING as usize), access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        ring.cast::<[u32; 2]>().write([LOG2_SIZE, SLOTS - 1]);
        ring
    }
}

/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise, passed on.
    unsafe { mmap(at, len, access, flags, fd, offset) }
}

/// # Safety
/// As `ioctl(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    type Ioctl = unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;
    if fd < 0 || fd != DEVICE.load(Ordering::SeqCst) {
        // SAFETY: the C library's function has this type.
        let ioctl: Ioctl = unsafe { std::mem::transmute(next(c"ioctl")) };
        // SAFETY: the caller's promise, passed on.
        return unsafe { ioctl(fd, request, argument) };
    }
    assert_eq!(request, c_ulong::from(RDMA_VERBS_IOCTL));
    // SAFETY: a command is a header, directly followed by the attributes that it announces.
    let (header, attrs) = unsafe {
        let header = argument.cast::<IoctlHdr>().read_unaligned();
        let attrs = argument.cast::<u8>().add(size_of::<IoctlHdr>()).cast::<Attr>();
        (header, std::slice::from_raw_parts_mut(attrs, header.num_attrs.into()))
    };
    match answer(&header, attrs) {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// # Safety
/// As `write(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize {
    type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
    if fd < 0 || fd != DEVICE.load(Ordering::SeqCst) {
        // SAFETY: the C library's function has this type.
        let write: Write = unsafe { std::mem::transmute(next(c"write")) };
        // SAFETY: the caller's promise, passed on.
        return unsafe { write(fd, bytes, len) };
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) };
    let (header, body) = CmdHdr::read_from_prefix(bytes).expect("a header");
    assert_eq!(usize::from(header.in_words) * 4, len);
    assert_eq!((header.command, header.out_words), (cmd::POST_SEND, 1), "the one command that is written");
    let request = PostSend::read_from_bytes(body).expect("a request");
    see(format!("doorbell {}", request.qp_handle));
    let refusal = [(&IS_FOREIGN, Errno::EACCES), (&IS_DEAF, Errno::ENOTCONN)];
    if let Some((_, errno)) = refusal.into_iter().find(|(refuses, _)| refuses.load(Ordering::SeqCst)) {
        errno.set();
        return -1;
    }
    // SAFETY: the memory of the response, for which the request has the address.
    unsafe { (request.response as *mut PostSendResp).write(PostSendResp { bad_wr: 0 }) };
    len as isize
}

/// Writes the beginning of an output.
fn store(attr: &Attr, words: &[u32]) {
    assert!(usize::from(attr.len) >= size_of_val(words));
    // SAFETY: the output's memory, for which the command has the address; it has room.
    unsafe { (attr.data as *mut u32).copy_from_nonoverlapping(words.as_ptr(), words.len()) };
}

/// The kernel: it accepts everything, and numbers no objects.
fn answer(header: &IoctlHdr, attrs: &mut [Attr]) -> Result<(), Errno> {
    let written = attrs.iter().find(|attr| attr.attr_id == WRITE_CMD).map(|attr| attr.data as u32);
    let written = written
        .filter(|_| (header.object_id, header.method_id) == (device::OBJECT, device::method::INVOKE_WRITE));
    match written {
        Some(number) => see(format!("write {number}")),
        None => see(format!("{}.{}", header.object_id, header.method_id)),
    }
    if written == Some(cmd::POST_SEND) && IS_DEAF.load(Ordering::SeqCst) {
        return Err(Errno::ENOTCONN);
    }
    let creates_file =
        (header.object_id, header.method_id) == (async_event::OBJECT, async_event::method::ALLOC);
    let ring = |offset: u32| [offset, 0, RING, 0];
    for attr in attrs {
        match (header.object_id, header.method_id, attr.attr_id) {
            _ if creates_file => attr.data = nothing() as u64,
            (cq::OBJECT, cq::method::CREATE, UHW_OUT) => store(attr, &ring(0x1000)),
            (qp::OBJECT, qp::method::CREATE, UHW_OUT) => store(attr, &[ring(0x2000), ring(0x3000)].concat()),
            (qp::OBJECT, qp::method::CREATE, qp::create::RESP_CAP) => store(attr, &[4, 4, 1, 1, 16]),
            (_, _, CORE_OUT) if written == Some(cmd::CREATE_COMP_CHANNEL) => store(attr, &[nothing() as u32]),
            _ => {}
        }
        attr.flags |= ATTR_F_VALID_OUTPUT;
    }
    Ok(())
}

/// A sysfs tree with one device of rxe.
fn tree() -> PathBuf {
    let root = std::env::temp_dir().join(format!("uverbs-interposed-{}", std::process::id()));
    let file = |path: &str, text: &str| {
        let path = root.join("class").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    file("infiniband_verbs/uverbs4711/ibdev", "rxe0");
    file("infiniband_verbs/uverbs4711/abi_version", "2");
    file("infiniband/rxe0/parent", "eth0");
    file("infiniband/rxe0/ports/1/state", "4: ACTIVE");
    root
}

fn writes(number: u32) -> String {
    format!("write {number}")
}

#[test]
fn a_program_in_front_of_the_c_library_sees_everything() {
    let root = tree();
    let devices = uverbs::devices_in(&root).unwrap();
    let context = devices.named("rxe0").unwrap().open().unwrap();
    fs::remove_dir_all(root).unwrap();
    let opening = seen();
    assert_eq!(opening[0], "open");
    assert!(opening.contains(&format!("{}.{}", device::OBJECT, device::method::GET_CONTEXT)), "{opening:?}");

    let pd = context.alloc_pd().unwrap();
    assert_eq!(seen(), [writes(cmd::ALLOC_PD)]);
    let region = pd.register(64, AccessFlags::LOCAL_WRITE).unwrap();
    assert_eq!(seen(), [writes(cmd::REG_MR)]);
    let channel = context.create_comp_channel().unwrap();
    let cq = context.cq(4).channel(&channel).create().unwrap();
    let created = format!("{}.{}", cq::OBJECT, cq::method::CREATE);
    assert_eq!(seen(), [writes(cmd::CREATE_COMP_CHANNEL), created, "mmap 0x1000".to_owned()]);
    cq.notify(false).unwrap();
    assert_eq!(seen(), [writes(cmd::REQ_NOTIFY_CQ)]);

    let mut qp = pd.rc(&cq).send_depth(4).receive_depth(4).create().unwrap();
    let created = format!("{}.{}", qp::OBJECT, qp::method::CREATE);
    assert_eq!(seen(), [created.as_str(), "mmap 0x3000", "mmap 0x2000"]);
    let segment = region.segment(..).unwrap();
    Errno::set_raw(4711);
    qp.post_send(&[SendRequest::new(1, Operation::Send, &[segment])]).unwrap();
    assert_eq!(Errno::last_raw(), 4711, "what succeeds leaves it alone");
    assert_eq!(seen(), ["doorbell 0"]);
    IS_DEAF.store(true, Ordering::SeqCst);
    let refused = qp.post_send(&[SendRequest::new(2, Operation::Send, &[segment])]).unwrap_err();
    IS_DEAF.store(false, Ordering::SeqCst);
    assert_eq!(refused.errno(), Some(libc::ENOTCONN));
    assert_eq!(seen()[0], "doorbell 0");

    // A process with other credentials than those that opened the file: only the ioctl is left, which does not look at them.
    IS_FOREIGN.store(true, Ordering::SeqCst);
    qp.post_send(&[SendRequest::new(3, Operation::Send, &[segment])]).unwrap();
    assert_eq!(seen(), ["doorbell 0".to_owned(), writes(cmd::POST_SEND)]);
    IS_FOREIGN.store(false, Ordering::SeqCst);
    qp.post_send(&[SendRequest::new(4, Operation::Send, &[segment])]).unwrap();
    assert_eq!(seen(), [writes(cmd::POST_SEND)], "a write is not tried again");
    IS_DEAF.store(true, Ordering::SeqCst);
    let refused = qp.post_send(&[SendRequest::new(5, Operation::Send, &[segment])]).unwrap_err();
    IS_DEAF.store(false, Ordering::SeqCst);
    assert_eq!(refused.errno(), Some(libc::ENOTCONN));
    assert_eq!(seen()[0], writes(cmd::POST_SEND));

    let counting = context.create_counters().unwrap();
    counting.attach(Point::Packets, 0).unwrap();
    let raw = pd.raw_packet(&cq).connect(1).unwrap();
    let flow = raw.create_flow(&FlowRule::normal(1).eth(Eth::any()).count(&counting)).unwrap();
    seen();
    let read = format!("{}.{}", counters::OBJECT, counters::method::READ);
    counting.read(&mut [0]).unwrap();
    assert_eq!(seen(), [read.as_str()]);
    flow.reader().unwrap().read().unwrap();
    assert_eq!(seen(), [read.as_str()]);
    drop((flow, counting, raw, qp, cq, channel, region, pd, context));
    assert_eq!(seen().last().map(String::as_str), Some("close"));
}
