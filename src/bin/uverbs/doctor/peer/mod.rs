//! `--peer`: the same program on another host. Both sides say what their ports have, compare it, and send each other messages from each
//! address to each that could be reached from it.

mod compare;
mod facts;
mod meeting;
mod messages;
mod paths;

use std::time::Duration;

use self::facts::Facts;
use self::meeting::{Met, Wanted};
use super::finding::Finding;
use super::machine::Machine;
use crate::Outcome;
use crate::failure::Failure;
use crate::stop::Stop;
use crate::target::Target;

/// Most pairs of addresses that are tried.
const PAIRS: usize = 16;

/// Options about the other side.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// The other host, where the same command runs with the name of this one: compares the ports of both, and sends messages over RDMA
    /// from each address to each that could be reached from it.
    #[arg(long, value_name = "HOST")]
    pub(super) peer: Option<String>,
    /// With --peer: the port of the device.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "peer")]
    ib_port: u8,
    /// With --peer: the TCP port for what both sides tell each other.
    #[arg(long, value_name = "PORT", default_value_t = 18516, requires = "peer")]
    peer_port: u16,
    /// With --peer: how long to wait for the other side.
    #[arg(long, value_name = "TIME", value_parser = crate::units::duration, default_value = "60s", requires = "peer")]
    peer_timeout: Duration,
}

/// Adds what is found about the connection to the other side, also if that fails before its end.
pub(super) fn examine(target: &Target, options: &Options, host: &str, found: &mut Vec<Finding>) -> Outcome {
    let before = found.len();
    let ended = messages_to(target, options, host, found);
    for finding in &mut found[before..] {
        finding.device = Some(target.device.name().to_owned());
        finding.port = Some(options.ib_port.into());
    }
    ended
}

fn messages_to(target: &Target, options: &Options, host: &str, found: &mut Vec<Finding>) -> Outcome {
    target.check_port(options.ib_port)?;
    let context = target.open()?;
    let own = Facts::of(&context, options.ib_port)?;
    let stop = Stop::on_signals()?;
    let ended = || Failure::Other("ended before the other side had answered".to_owned());
    let text = own.written()?;
    let wanted = Wanted { host, port: options.peer_port, timeout: options.peer_timeout, facts: &text };
    let Met { mut peer, is_client, facts } = meeting::meet(&wanted, &stop)?.ok_or_else(ended)?;
    found.push(compare::met(host, &peer, is_client));
    let is_this_host = meeting::is_own(peer.address().ip().to_canonical());
    let other = Facts::read(&facts)?;
    let (client, server) = if is_client { (&own, &other) } else { (&other, &own) };
    let pairs = compare::pairs(client, server);
    found.extend(compare::facts(&own, &other, pairs.len()));
    let (mut tried, mut failed) = (Vec::new(), None);
    let mtu = if own.mtu <= other.mtu { &own } else { &other };
    for (of_client, of_server) in pairs.iter().take(PAIRS) {
        let (mine, theirs) = if is_client { (of_client, of_server) } else { (of_server, of_client) };
        let (port, mtu, mtu_bytes) = (options.ib_port, mtu.mtu, mtu.mtu_bytes);
        let sides = messages::Sides { port, mine, mtu, mtu_bytes, is_client };
        match messages::exchange(&context, &sides, &mut peer).and_then(|seen| seen.ok_or_else(ended)) {
            Ok(seen) => tried.push(((*mine).clone(), (*theirs).clone(), seen)),
            Err(failure) => {
                failed = Some(failure);
                break;
            }
        }
    }
    found.extend(paths::causes(&Machine::here(), &tried, is_this_host));
    found.extend(paths::marks(&own, &other, &tried));
    found.extend(compare::messages(&tried));
    found.extend(compare::untried(pairs.len() - tried.len()));
    failed.map_or(Ok(()), Err)
}
