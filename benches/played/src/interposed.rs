//! The functions of the C library that are played.
//!
//! # Safety
//! Each has the contract of its manual page, and passes on what does not concern the device to the kernel as it came. The variable
//! arguments of `open`, `openat` and `ioctl` are taken as fixed ones, which the calling convention of x86-64 allows.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::libc;
use uverbs_abi::ioctl::RDMA_VERBS_IOCTL;
use uverbs_abi::netlink::NETLINK_RDMA;

use crate::command::Call;
use crate::{meter, netlink, objects, tree};

/// The file of the device, from its first command.
static DEVICE: AtomicI32 = AtomicI32::new(-1);

/// A path as the kernel gets it.
enum Path {
    AsItWas(*const c_char),
    InTree(CString),
}

impl Path {
    fn of(path: *const c_char) -> Self {
        let in_tree = || {
            if path.is_null() {
                return None;
            }
            // SAFETY: the caller passes a string.
            let place = tree::place(unsafe { CStr::from_ptr(path) }.to_str().ok()?)?;
            CString::new(place.into_os_string().into_encoded_bytes()).ok()
        };
        in_tree().map_or(Self::AsItWas(path), Self::InTree)
    }

    fn pointer(&self) -> *const c_char {
        match self {
            Self::AsItWas(path) => *path,
            Self::InTree(path) => path.as_ptr(),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let path = Path::of(path);
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_openat, folder, path.pointer(), flags, mode) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { openat(folder, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { openat(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut libc::DIR {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the caller's path, and a new descriptor.
    unsafe {
        let fd = open(path, flags, 0);
        if fd < 0 { std::ptr::null_mut() } else { libc::fdopendir(fd) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readlink(path: *const c_char, room: *mut c_char, len: usize) -> isize {
    let path = Path::of(path);
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_readlink, path.pointer(), room, len) as isize }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat(path: *const c_char, status: *mut libc::stat) -> c_int {
    let path = Path::of(path);
    // SAFETY: the caller's arguments; on x86-64 the kernel's structure is that of C.
    unsafe { libc::syscall(libc::SYS_stat, path.pointer(), status) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat64(path: *const c_char, status: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { stat(path, status) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    status: *mut c_void,
) -> c_int {
    let path = Path::of(path);
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_statx, folder, path.pointer(), flags, mask, status) as c_int }
}

/// A socket of RDMA netlink is one on which the kernel does not listen. What is sent there is answered by `netlink.rs`, from a second one.
#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let is_rdma = (domain, protocol) == (libc::AF_NETLINK, NETLINK_RDMA);
    let protocol = if is_rdma { libc::NETLINK_USERSOCK } else { protocol };
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: usize,
    flags: c_int,
    to: *const libc::sockaddr,
    to_len: libc::socklen_t,
) -> isize {
    if is_rdma_socket(fd) {
        // SAFETY: the caller passes so many bytes.
        return answer(fd, unsafe { std::slice::from_raw_parts(bytes.cast(), len) });
    }
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_sendto, fd, bytes, len, flags, to, to_len) as isize }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    if is_rdma_socket(fd) {
        // SAFETY: the caller passes a message, whose parts are in memory.
        let bytes = unsafe {
            let parts = std::slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen);
            parts.iter().flat_map(|part| std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len))
        };
        return answer(fd, &bytes.copied().collect::<Vec<_>>());
    }
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_sendmsg, fd, message, flags) as isize }
}

/// Whether `socket` has made this one for RDMA netlink.
fn is_rdma_socket(fd: c_int) -> bool {
    [(libc::SO_DOMAIN, libc::AF_NETLINK), (libc::SO_PROTOCOL, libc::NETLINK_USERSOCK)].iter().all(
        |(option, wanted)| {
            let (mut value, mut len): (c_int, _) = (-1, size_of::<c_int>() as libc::socklen_t);
            // SAFETY: a number of the size that these options have.
            let done = unsafe {
                libc::getsockopt(fd, libc::SOL_SOCKET, *option, (&raw mut value).cast(), &raw mut len)
            };
            done == 0 && value == *wanted
        },
    )
}

/// Sends the answers to these requests to the socket from which they come.
fn answer(fd: c_int, requests: &[u8]) -> isize {
    static FROM: OnceLock<c_int> = OnceLock::new();
    let answers = netlink::answer(requests);
    let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: addresses of netlink sockets, of the size that the kernel reads and writes. A socket without an address gets one.
    let sent = unsafe {
        let from =
            *FROM.get_or_init(|| socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, NETLINK_RDMA));
        let mut own: libc::sockaddr_nl = std::mem::zeroed();
        own.nl_family = libc::AF_NETLINK as u16;
        let (at, mut own_len) = (&raw mut own, len);
        libc::bind(fd, at.cast(), len);
        libc::getsockname(fd, at.cast(), &raw mut own_len);
        libc::syscall(libc::SYS_sendto, from, answers.as_ptr(), answers.len(), 0, at, len)
    };
    if sent < 0 { -1 } else { requests.len() as isize }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request != c_ulong::from(RDMA_VERBS_IOCTL) {
        // SAFETY: the caller's arguments.
        return unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int };
    }
    let answered = meter::apart(meter::IOCTL, || {
        DEVICE.store(fd, Ordering::Relaxed);
        objects::invoke(&Call::at(argument as u64))
    });
    match answered {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// The older form of commands. Of these only doorbells are sent.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize {
    meter::apart(meter::WRITE, || {
        if fd == DEVICE.load(Ordering::Relaxed) {
            objects::write(bytes as u64);
            return len as isize;
        }
        // SAFETY: the caller's arguments.
        unsafe { libc::syscall(libc::SYS_write, fd, bytes, len) as isize }
    })
}

/// Pages of a device are memory like any other.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    if !is_device(fd) {
        // SAFETY: the caller's arguments.
        return unsafe {
            libc::syscall(libc::SYS_mmap, address, len, access, flags, fd, offset) as *mut c_void
        };
    }
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory.
    let memory = unsafe { libc::syscall(libc::SYS_mmap, address, len, access, flags, -1, 0) as *mut c_void };
    if memory != libc::MAP_FAILED {
        objects::mapped(offset as u64, memory as u64);
    }
    memory
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { mmap(address, len, access, flags, fd, offset) }
}

/// The program waits: the device's turn.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    objects::play();
    0
}

#[unsafe(no_mangle)]
extern "C" fn usleep(_: c_uint) -> c_int {
    objects::play();
    0
}

/// An event file that stays silent.
pub(crate) fn silent_file() -> Result<u64, Errno> {
    // SAFETY: it only makes a file.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    Errno::result(fd).map(|fd| fd as u64)
}

/// Whether this descriptor is the device's.
fn is_device(fd: c_int) -> bool {
    if fd < 0 {
        return false;
    }
    // SAFETY: a status of the size that the kernel writes.
    let (done, status) = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::syscall(libc::SYS_fstat, fd, &raw mut status), status)
    };
    let (major, minor) = tree::NUMBER;
    done == 0
        && status.st_mode & libc::S_IFMT == libc::S_IFCHR
        && status.st_rdev == libc::makedev(major, minor)
}
