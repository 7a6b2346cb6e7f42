//! Socket addresses as the connection manager's commands contain them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use nix::libc::{AF_INET, AF_INET6};

/// Room for any socket address.
pub(crate) const ROOM: usize = 128;

/// The size and the bytes of an address.
pub(crate) fn encode(address: &SocketAddr) -> (u16, [u8; ROOM]) {
    let mut place = [0; ROOM];
    let (family, size) = match address {
        SocketAddr::V4(v4) => {
            place[4..8].copy_from_slice(&v4.ip().octets());
            (AF_INET, 16)
        }
        SocketAddr::V6(v6) => {
            place[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            place[8..24].copy_from_slice(&v6.ip().octets());
            place[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            (AF_INET6, 28)
        }
    };
    // The numbers of families are small.
    place[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    place[2..4].copy_from_slice(&address.port().to_be_bytes());
    (size, place)
}

fn part<const LEN: usize>(place: &[u8; ROOM], at: usize) -> [u8; LEN] {
    std::array::from_fn(|i| place[at + i])
}

/// The address in these bytes; `None` if it is of another family.
pub(crate) fn decode(place: &[u8; ROOM]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(part(place, 2));
    match i32::from(u16::from_ne_bytes(part(place, 0))) {
        AF_INET => Some(SocketAddrV4::new(Ipv4Addr::from(part::<4>(place, 4)), port).into()),
        AF_INET6 => {
            let ip = Ipv6Addr::from(part::<16>(place, 8));
            let (flow, scope) = (u32::from_be_bytes(part(place, 4)), u32::from_ne_bytes(part(place, 24)));
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for (text, size) in [("10.1.2.3:7174", 16), ("[fe80::1%3]:65535", 28), ("[::]:0", 28)] {
            let address: SocketAddr = text.parse().expect("an address");
            let (len, place) = encode(&address);
            assert_eq!((len, decode(&place)), (size, Some(address)));
        }
        assert_eq!(encode(&"10.1.2.3:7174".parse().expect("one")).1[..8], [2, 0, 0x1c, 0x06, 10, 1, 2, 3]);
        assert_eq!(decode(&[0; ROOM]), None);
    }
}
