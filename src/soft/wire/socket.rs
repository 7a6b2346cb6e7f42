//! The socket of a wire.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};

use crate::roce::PORT;

/// Whether packets are ever fragmented. If they never are, and the socket is not connected, the identification of an IPv4 packet, which the
/// checksum covers, is zero.
#[derive(Clone, Copy)]
struct Ipv4Discovery;
#[derive(Clone, Copy)]
struct Ipv6Discovery;

nix::setsockopt_impl!(Ipv4Discovery, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, usize, sockopt::SetUsize);
nix::setsockopt_impl!(Ipv6Discovery, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, usize, sockopt::SetUsize);

/// Room for packets in bytes, if the system allows that much.
const ROOM: usize = 4 << 20;

/// What has become of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    /// Later.
    Full,
    Never,
    /// Several together are not taken here.
    Apart,
}

/// One read: a datagram, or several of one length, of which the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) len: usize,
    pub(super) each: usize,
    pub(super) from: SocketAddr,
}

/// A socket, and what interrupts the wait for it.
#[derive(Debug)]
pub(in crate::soft) struct Socket {
    udp: UdpSocket,
    wake: EventFd,
    pub(super) address: SocketAddr,
}

impl Socket {
    pub(in crate::soft) fn bind(address: IpAddr) -> io::Result<Self> {
        if address.is_unspecified() || address.is_multicast() {
            return Err(io::Error::from(Errno::EADDRNOTAVAIL));
        }
        let udp = UdpSocket::bind((address, PORT))?;
        udp.set_nonblocking(true)?;
        if address.is_ipv4() {
            setsockopt(&udp, Ipv4Discovery, &(libc::IP_PMTUDISC_DO as usize))?;
        } else {
            setsockopt(&udp, Ipv6Discovery, &(libc::IPV6_PMTUDISC_DO as usize))?;
        }
        for size in [ROOM, ROOM / 4] {
            // As much as the system allows; less only means that more is lost.
            let _ = setsockopt(&udp, sockopt::RcvBuf, &size);
            let _ = setsockopt(&udp, sockopt::SndBuf, &size);
        }
        // Without it, the kernel gives out what arrives together one by one.
        let _ = setsockopt(&udp, sockopt::UdpGroSegment, &true);
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let address = udp.local_addr()?;
        Ok(Self { udp, wake, address })
    }

    /// The socket of a peer with this address.
    pub(super) fn peer(&self, address: IpAddr) -> SocketAddr {
        let mut peer = SocketAddr::new(address, PORT);
        // A link-local address is that of a host on the same link.
        if let (SocketAddr::V6(peer), SocketAddr::V6(own)) = (&mut peer, self.address) {
            peer.set_scope_id(own.scope_id());
        }
        peer
    }

    pub(super) fn send(&self, bytes: &[u8], to: SocketAddr) -> Sent {
        loop {
            return match self.udp.send_to(bytes, to) {
                Ok(_) => Sent::Yes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Sent::Full,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Sent::Full,
                Err(_) => Sent::Never,
            };
        }
    }

    /// Sends several datagrams of `len` bytes, of which the last may be shorter, to one peer.
    pub(super) fn send_together(&self, parts: &[IoSlice<'_>], len: usize, to: SocketAddr) -> Sent {
        let Ok(len) = u16::try_from(len) else { return Sent::Apart };
        let (control, to) = ([ControlMessage::UdpGsoSegments(&len)], SockaddrStorage::from(to));
        loop {
            return match sendmsg(self.udp.as_raw_fd(), parts, &control, MsgFlags::empty(), Some(&to)) {
                Ok(_) => Sent::Yes,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN | Errno::ENOBUFS) => Sent::Full,
                // The kernel or the interface cannot cut them, or they are too long for the interface.
                Err(
                    Errno::EIO | Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOPROTOOPT | Errno::EMSGSIZE,
                ) => Sent::Apart,
                Err(_) => Sent::Never,
            };
        }
    }

    /// What has arrived next, if there is something.
    pub(super) fn receive(&self, bytes: &mut [u8], control: &mut [u8]) -> Option<Arrived> {
        loop {
            let mut parts = [IoSliceMut::new(bytes)];
            let received = match recvmsg::<SockaddrStorage>(
                self.udp.as_raw_fd(),
                &mut parts,
                Some(&mut *control),
                MsgFlags::empty(),
            ) {
                Err(Errno::EINTR) => continue,
                other => other.ok()?,
            };
            let each = received.cmsgs().into_iter().flatten().find_map(|control| match control {
                ControlMessageOwned::UdpGroSegments(each) => usize::try_from(each).ok(),
                _ => None,
            });
            let from = received.address?;
            let v4 = from.as_sockaddr_in().map(|from| SocketAddr::V4((*from).into()));
            let from = v4.or_else(|| from.as_sockaddr_in6().map(|from| SocketAddr::V6((*from).into())))?;
            let len = received.bytes;
            return Some(Arrived { len, each: each.unwrap_or(len).max(1), from });
        }
    }

    /// Ends the wait of the driver.
    pub(super) fn wake(&self) {
        // It fails only if the counter is full, and then the driver wakes, too.
        let _ = self.wake.write(1);
    }

    /// The driver was woken.
    pub(super) fn woken(&self) {
        let _ = self.wake.read();
    }

    /// What the driver waits for: datagrams, and [`wake`](Self::wake).
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.udp.as_fd(), self.wake.as_fd()]
    }
}

/// The largest packet that an interface with this address sends: 256 to 4096 bytes of data.
pub(in crate::soft) fn packet_size(address: IpAddr) -> Option<u32> {
    // All headers that a packet can have (`RXE_MAX_HDR_LENGTH`, rxe_hdr.h, Linux 6.1).
    const HEADERS: u32 = 80;
    let mtu = interface_mtu(address)?;
    let size = mtu.saturating_sub(HEADERS).clamp(1, 4096);
    (size >= 256).then(|| 1 << size.ilog2())
}

/// The MTU of the interface with this address.
fn interface_mtu(address: IpAddr) -> Option<u32> {
    let is_it = |found: &nix::ifaddrs::InterfaceAddress| {
        let found = found.address.as_ref();
        let v4 = found.and_then(|found| found.as_sockaddr_in()).map(|found| IpAddr::V4(found.ip()));
        let v6 = found.and_then(|found| found.as_sockaddr_in6()).map(|found| IpAddr::V6(found.ip()));
        v4.or(v6) == Some(address)
    };
    let mut interfaces = nix::ifaddrs::getifaddrs().ok()?;
    let name = interfaces.find(is_it).map(|found| found.interface_name);
    // 127.0.0.2 is an address of the loopback interface, which lists 127.0.0.1 only.
    let name = name.or_else(|| address.is_loopback().then(|| "lo".to_owned()))?;
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?;
    text.trim().parse().ok()
}
