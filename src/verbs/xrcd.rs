//! Domains of extended reliable connections.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::write::{OpenXrcd, OpenXrcdResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::device::context::Context;
use crate::device::object::{self, Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};

/// A domain of extended reliable connections (XRC): its receiving queue pairs take messages for all its shared receive queues,
/// whichever process created them. Created by [`Context::open_xrcd`].
///
/// Without XRC, a process needs `n` connections to reach `n` processes of another machine. With XRC, one connection to that
/// machine is sufficient, because each message names the queue that it uses. In a domain,
/// - receives are posted to a [`SharedReceiveQueue`](crate::SharedReceiveQueue) created by [`XrcDomain::srq`], which has a number
///   and a completion queue;
/// - messages arrive at an [`XrcReceiveQueuePair`](crate::XrcReceiveQueuePair), which has no queues at all;
/// - a [`QueuePair<XrcSend>`](crate::XrcSend) sends, and each of its requests names the number of a queue
///   ([`XrcOperation`](crate::XrcOperation)). The remote memory that it accesses is in the protection domain of that queue.
///
/// Processes share a domain through a file ([`Context::open_xrcd_of`]).
///
/// Cheap to clone; closed when the last clone and the last object created in it are gone.
///
/// ```
/// use uverbs::{AccessFlags, Completion, ConnectionOptions, Operation, ReceiveRequest, SendRequest};
/// # fn main() -> uverbs::Result<()> {
/// let context = uverbs::SoftDevice::default().open()?;
/// let (pd, mut sent, mut received) = (context.alloc_pd()?, context.create_cq(16)?, context.create_cq(16)?);
/// let domain = context.open_xrcd()?;
/// let mut srq = domain.srq(&pd, &received, 32).create()?;
/// let number = srq.number().expect("it is one of a domain");
/// let memory = pd.register(4096, AccessFlags::LOCAL_WRITE)?;
/// srq.post_receive(&[ReceiveRequest::new(1, &[memory.segment(0..2048)?])])?;
///
/// let mut there = domain.receive_qp().create()?;
/// let mut here = pd.xrc_send(&sent).inline(64).create()?;
/// let options = ConnectionOptions::new(1, 0);
/// let (one, two) = (here.endpoint(&options, 0)?, there.endpoint(&options, 0)?);
/// there.connect(&options, &one)?;
/// here.connect(&options, &one, &two)?;
///
/// let message = Operation::Send.to_srq(number);
/// here.post_send(&[SendRequest::inline(2, message, b"hello").signaled()])?;
/// let mut completions = Completion::batch::<4>();
/// assert_eq!(sent.poll(&mut completions), 1);
/// assert_eq!(received.poll(&mut completions), 1);
/// assert_eq!((completions[0].wr_id, completions[0].len, completions[0].qp_num), (1, 5, there.number()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_xrcd")]
pub struct XrcDomain(Arc<Object>);

/// Whether the domain of a file must exist; see [`Context::open_xrcd_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_xrcd_init_attr")]
pub enum XrcOpen {
    /// The domain must exist, that is, some process has it open.
    Existing,
    /// The domain is created if no process has it open.
    Create,
    /// The domain must not exist, and is created.
    CreateNew,
}

impl XrcOpen {
    fn flags(self) -> OFlag {
        match self {
            Self::Existing => OFlag::empty(),
            Self::Create => OFlag::O_CREAT,
            Self::CreateNew => OFlag::O_CREAT | OFlag::O_EXCL,
        }
    }
}

/// The value instead of a file descriptor for a domain that belongs to no file.
const NO_FILE: RawFd = -1;

impl Context {
    /// Creates a private domain, which no other process can open.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on devices without extended reliable connections.
    ///
    /// # Kernel
    /// `OPEN_XRCD` through `INVOKE_WRITE` (ib_uverbs_open_xrcd, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd(&self) -> Result<XrcDomain> {
        self.open_xrcd_as(NO_FILE, OFlag::O_CREAT)
    }

    /// Opens the domain that belongs to this file. All processes that pass the same file open the same domain. The contents of the
    /// file are irrelevant. The domain exists until the last process has closed it; the file need not stay open.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) with [`XrcOpen::Existing`], if no process has the domain of the file open;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) with [`XrcOpen::CreateNew`], if a process has it open;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on devices without extended reliable connections.
    ///
    /// # Kernel
    /// As [`Context::open_xrcd`].
    ///
    /// ```
    /// use uverbs::{ErrorKind, XrcOpen};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = uverbs::SoftDevice::default();
    /// let (one, other) = (device.open()?, device.open()?);
    /// let file = std::fs::File::open("Cargo.toml")?;
    /// let domain = one.open_xrcd_of(&file, XrcOpen::CreateNew)?;
    /// let receiver = domain.receive_qp().create()?;
    /// // As another process would:
    /// let same = other.open_xrcd_of(&file, XrcOpen::Existing)?;
    /// let opened = same.open_receive_qp(receiver.number())?;
    /// drop((receiver, domain));
    /// assert_eq!(opened.state()?, uverbs::QpState::Reset); // it exists until its last handle is closed
    ///
    /// let file = std::fs::File::open("README.md")?;
    /// let refused = one.open_xrcd_of(&file, XrcOpen::Existing).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd_of(&self, file: impl AsFd, how: XrcOpen) -> Result<XrcDomain> {
        self.open_xrcd_as(file.as_fd().as_raw_fd(), how.flags())
    }

    fn open_xrcd_as(&self, fd: RawFd, flags: OFlag) -> Result<XrcDomain> {
        let op = "xrcd.open";
        self.driver().plan_xrcd(op)?;
        let request = OpenXrcd { response: 0, fd: fd as u32, oflags: flags.bits() as u32 };
        let mut response = OpenXrcdResp::new_zeroed();
        let mut command = Command::write(op, cmd::OPEN_XRCD);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        self.invoke(&mut command).map_err(|error| match error.errno().map(Errno::from_raw) {
            Some(Errno::EAGAIN) => error.not_found("no domain of this file is open: create it first"),
            Some(Errno::EINVAL) if fd != NO_FILE => {
                error.hinted("a domain of this file is open already: open it as `Existing` or `Create`")
            }
            Some(Errno::EOPNOTSUPP) => error.hinted("the device has no extended reliable connections"),
            _ => error,
        })?;
        Ok(XrcDomain(Arc::new(Object::new(self, Kind::Xrcd, response.xrcd_handle))))
    }
}

impl XrcDomain {
    /// The open device to which the domain belongs.
    pub fn context(&self) -> &Context {
        self.0.context()
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Closes the domain and reports any error.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a clone, a shared receive queue or a receiving queue pair uses it.
    #[doc(alias = "ibv_close_xrcd")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        let object = Arc::try_unwrap(self.0).map_err(|shared| {
            let hint = "a clone, a shared receive queue or a receiving queue pair still uses the domain";
            (Self(shared), object::shared("xrcd.destroy", hint))
        })?;
        object.destroy().map_err(|(object, error)| (Self(Arc::new(object)), error))
    }
}

#[cfg(feature = "raw")]
impl Context {
    /// Opens the domain of the file with this descriptor, or creates one that belongs to no file. `oflags` are the flags of
    /// `ibv_open_xrcd`, which only the kernel checks.
    ///
    /// # Errors
    /// As [`Context::open_xrcd_of`].
    pub fn open_xrcd_raw(&self, fd: Option<RawFd>, oflags: i32) -> Result<XrcDomain> {
        self.open_xrcd_as(fd.unwrap_or(NO_FILE), OFlag::from_bits_retain(oflags))
    }

    /// Returns an error if the driver has no extended reliable connections. Bindings call it before they check the arguments of a
    /// call.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported).
    pub fn needs_xrc(&self, op: &'static str) -> Result<()> {
        self.driver().plan_xrcd(op)
    }
}

#[cfg(feature = "raw")]
impl XrcDomain {
    /// The kernel's handle of the domain.
    pub fn handle(&self) -> u32 {
        self.id()
    }
}
