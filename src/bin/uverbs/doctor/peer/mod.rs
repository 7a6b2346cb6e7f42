//! `--peer`: the same program on another host. Both sides say what their ports have, compare it, and send each other messages from each
//! address to each that could be reached from it.

mod compare;
mod facts;
mod meeting;
mod messages;

use std::time::Duration;

use self::facts::Facts;
use super::finding::Finding;
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

/// What is found about the connection to the other side.
pub(super) fn examine(target: &Target, options: &Options, host: &str) -> Outcome<Vec<Finding>> {
    target.check_port(options.ib_port)?;
    let context = target.open()?;
    let own = Facts::of(&context, options.ib_port)?;
    let stop = Stop::on_signals()?;
    let ended = || Failure::Other("ended before the other side had answered".to_owned());
    let met = meeting::meet(host, options.peer_port, options.peer_timeout, &stop)?;
    let (mut peer, is_client) = met.ok_or_else(ended)?;
    peer.tell_text(&own.written()?)?;
    let Some(text) = peer.hear_text("what it has")? else { return Err(ended()) };
    let other = Facts::read(&text)?;
    let (client, server) = if is_client { (&own, &other) } else { (&other, &own) };
    let pairs = compare::pairs(client, server);
    let mut found = compare::facts(&own, &other, pairs.len());
    let mut tried = Vec::new();
    for (of_client, of_server) in pairs.into_iter().take(PAIRS) {
        let (mine, theirs) = if is_client { (of_client, of_server) } else { (of_server, of_client) };
        let sides = messages::Sides { port: options.ib_port, mine, mtu: own.mtu.min(other.mtu), is_client };
        let Some(seen) = messages::exchange(&context, &sides, &mut peer)? else { return Err(ended()) };
        tried.push((mine.clone(), theirs.clone(), seen));
    }
    found.extend(compare::messages(&tried));
    let name = target.device.name();
    Ok(found.into_iter().map(|finding| finding.on(name).port(options.ib_port.into())).collect())
}
