//! The server as it is named on the command line: `HOST[:PORT]`.

use std::net::{SocketAddr, ToSocketAddrs};

use super::PORT;
use crate::Outcome;
use crate::failure::Failure;

/// The name, and the port if there is one. An IPv6 address with a port is in brackets.
fn split(text: &str) -> Option<(&str, Option<u16>)> {
    let port = |text: &str| text.parse().ok().filter(|&port| port > 0);
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(text) => Some((host, Some(port(text)?))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    match text.split_once(':') {
        Some((host, text)) if !text.contains(':') => Some((host, Some(port(text)?))),
        _ => Some((text, None)),
    }
}

/// The addresses of a server.
pub(super) fn resolve(text: &str, port: Option<u16>) -> Outcome<Vec<SocketAddr>> {
    let name = text.escape_debug();
    let wrong = |what: &str| Failure::Usage(format!("{name}: {what}"));
    let (host, own) = split(text).ok_or_else(|| wrong("HOST[:PORT] has a port from 1 to 65535"))?;
    let port = match (own, port) {
        (Some(_), Some(_)) => return Err(wrong("--port-number names the port too")),
        (own, given) => own.or(given).unwrap_or(PORT),
    };
    let found = (host, port).to_socket_addrs();
    let found: Vec<_> = found.map_err(|error| Failure::Other(format!("{name}: {error}")))?.collect();
    match found.is_empty() {
        true => Err(Failure::Other(format!("{name}: the name has no IP address"))),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_follow_the_host() {
        for (text, host, port) in [
            ("host", "host", None),
            ("host:7", "host", Some(7)),
            ("10.0.0.1:65535", "10.0.0.1", Some(65535)),
            ("fe80::1%eth0", "fe80::1%eth0", None),
            ("[fe80::1%eth0]:7174", "fe80::1%eth0", Some(7174)),
            ("[::1]", "::1", None),
        ] {
            assert_eq!(split(text), Some((host, port)), "{text}");
        }
        for text in ["host:", "host:0", "host:65536", "[::1", "[::1]7", "[::1]:x"] {
            assert_eq!(split(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_resolved_with_the_port_of_either_place() {
        let at = |text, port| resolve(text, port).map(|all| all[0].port()).map_err(|error| error.to_string());
        assert_eq!(at("127.0.0.1", None), Ok(7174));
        assert_eq!(at("127.0.0.1", Some(9)), Ok(9));
        assert_eq!(at("[::1]:8", None), Ok(8));
        assert_eq!(
            at("127.0.0.1:8", Some(9)),
            Err("127.0.0.1:8: --port-number names the port too".to_owned())
        );
    }
}
