//! By which interface packets leave: the kernel is asked, which needs no privileges and sends nothing.
//!
//! Source: rtnetlink(7) and linux/rtnetlink.h (`RTM_GETROUTE`).

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

/// Message types.
const ERROR: u16 = 2;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// Attributes of a route: destination, source, number of the interface.
const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const INTERFACE: u16 = 4;
/// Lengths of the headers of a message, of what it says of a route (`struct rtmsg`), and of an attribute.
const HEADER: usize = 16;
const ROUTE: usize = 12;
const ATTRIBUTE: usize = 4;

/// What the kernel does with packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// They leave by this interface, which is `lo` for addresses of this host.
    By(String),
    /// Nothing leads there (ENETUNREACH, EHOSTUNREACH).
    Nowhere,
}

/// The route of packets from an address of this host to another address. `None` if it cannot be asked.
pub(super) fn route(from: IpAddr, to: IpAddr) -> Option<Route> {
    let kernel =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)
            .ok()?;
    sendto(kernel.as_raw_fd(), &request(from, to)?, &NetlinkAddr::new(0, 0), MsgFlags::empty()).ok()?;
    let mut room = [0; 4096];
    // The kernel answers during the request.
    let len = recv(kernel.as_raw_fd(), &mut room, MsgFlags::MSG_DONTWAIT).ok()?;
    let answer = room.get(..len)?;
    if let Some(number) = interface(answer) {
        return Some(Route::By(nix::net::if_::if_indextoname(number).ok()?.into_string().ok()?));
    }
    let errno = refusal(answer)?;
    matches!(errno, Errno::ENETUNREACH | Errno::EHOSTUNREACH).then_some(Route::Nowhere)
}

/// The errno of an answer that is an error.
fn refusal(answer: &[u8]) -> Option<Errno> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(HEADER..HEADER + 4).filter(|_| kind == ERROR)?.try_into().ok()?);
    Some(Errno::from_raw(code.saturating_neg()))
}

fn request(from: IpAddr, to: IpAddr) -> Option<Vec<u8>> {
    let bytes = |address| match address {
        IpAddr::V4(address) => Ipv4Addr::octets(&address).to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (source, destination) = (bytes(from), bytes(to));
    if source.len() != destination.len() {
        return None;
    }
    let family = if from.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let bits = 8 * u8::try_from(source.len()).ok()?;
    let mut body = vec![u8::try_from(family as i32).ok()?, bits, bits];
    body.resize(ROUTE, 0);
    for (kind, value) in [(DESTINATION, destination), (SOURCE, source)] {
        body.extend(u16::try_from(ATTRIBUTE + value.len()).ok()?.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    }
    let mut message = u32::try_from(HEADER + body.len()).ok()?.to_ne_bytes().to_vec();
    message.extend(GET_ROUTE.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.resize(HEADER, 0);
    message.extend(body);
    Some(message)
}

/// The number of the interface in an answer.
fn interface(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let mut rest = answer.get(HEADER + ROUTE..).filter(|_| kind == NEW_ROUTE)?;
    loop {
        let word = |at: usize| Some(u16::from_ne_bytes(rest.get(at..at + 2)?.try_into().ok()?));
        let (len, kind) = (usize::from(word(0)?), word(2)?);
        let value = rest.get(ATTRIBUTE..len)?;
        if kind == INTERFACE {
            return Some(u32::from_ne_bytes(value.try_into().ok()?));
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

/// An address in the network of an address that none of this host's is, for a question about routes. `None` if the network has no room for it.
pub(super) fn neighbour(address: Ipv4Addr, bits: u32, own: &[Ipv4Addr]) -> Option<Ipv4Addr> {
    if !(1..=30).contains(&bits) {
        return None;
    }
    let hosts = u32::MAX >> bits;
    let network = u32::from(address) & !hosts;
    // The last one is for all hosts.
    (1..hosts).map(|host| Ipv4Addr::from(network | host)).find(|other| !own.contains(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_to_this_host_leaves_by_the_loopback_interface() {
        let own = IpAddr::from([127, 0, 0, 1]);
        // A sandbox may refuse to answer.
        let found = route(own, own);
        assert!(found.is_none() || found == Some(Route::By("lo".to_owned())), "{found:?}");
    }

    #[test]
    fn answers_that_are_cut_short_or_are_others_have_no_interface() {
        let mut answer = request([192, 0, 2, 1].into(), [192, 0, 2, 2].into()).expect("it fits");
        assert_eq!(interface(&answer), None);
        answer[4..6].copy_from_slice(&NEW_ROUTE.to_ne_bytes());
        assert_eq!(interface(&answer), None);
        answer.extend([8u16.to_ne_bytes(), INTERFACE.to_ne_bytes()].concat());
        answer.extend(7u32.to_ne_bytes());
        assert_eq!(interface(&answer), Some(7));
        for len in 0..answer.len() {
            assert_eq!(interface(&answer[..len]), None, "{len}");
        }
        // An attribute without a length does not go on for ever.
        answer[HEADER + ROUTE..HEADER + ROUTE + 2].copy_from_slice(&0u16.to_ne_bytes());
        assert_eq!(interface(&answer), None);
        assert!(request([192, 0, 2, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()).is_none());
    }

    #[test]
    fn an_answer_that_is_an_error_has_its_errno() {
        let mut answer = vec![0; HEADER];
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        assert_eq!(refusal(&answer), None);
        answer.extend((-(Errno::ENETUNREACH as i32)).to_ne_bytes());
        assert_eq!((refusal(&answer), interface(&answer)), (Some(Errno::ENETUNREACH), None));
        answer[4..6].copy_from_slice(&NEW_ROUTE.to_ne_bytes());
        assert_eq!(refusal(&answer), None);
    }

    #[test]
    fn another_host_of_a_network() {
        let at = |address: [u8; 4], bits, own: &[[u8; 4]]| {
            let own: Vec<_> = own.iter().copied().map(Ipv4Addr::from).collect();
            neighbour(address.into(), bits, &own).map(|address| address.octets())
        };
        assert_eq!(at([192, 0, 2, 7], 24, &[]), Some([192, 0, 2, 1]));
        assert_eq!(at([192, 0, 2, 3], 24, &[[192, 0, 2, 1], [192, 0, 2, 3]]), Some([192, 0, 2, 2]));
        assert_eq!(at([10, 9, 8, 6], 30, &[[10, 9, 8, 5], [10, 9, 8, 6]]), None);
        assert_eq!((at([10, 9, 8, 7], 31, &[]), at([10, 9, 8, 7], 0, &[])), (None, None));
    }
}
