//! The other sides of programs of librdmacm (`peers.rs`), and what connections cost (`costs.rs`, as `connections.c` beside it does with
//! librdmacm), and what goes wrong around them (`faults.rs`). The lanes of connections run it.

mod costs;
mod end;
mod faults;
mod peers;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

const USAGE: &str = "usage: peers cmatose|cmtime listen|connect ADDRESS:PORT CONNECTIONS | cycles ADDRESS COUNT \
    | many ADDRESS COUNT | cancel|reach ADDRESS:PORT | stop STEP listen|connect ADDRESS:PORT FILE | crowd ADDRESS:PORT COUNT \
    | user ADDRESS:PORT UID";

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

fn run(arguments: &[&str]) -> Result {
    let place = |text: &str| text.parse::<SocketAddr>();
    let address = |text: &str| text.parse::<IpAddr>();
    match *arguments {
        ["cmatose", "listen", at, count] => peers::listen(place(at)?, count.parse()?, true),
        ["cmatose", "connect", at, count] => peers::connect(place(at)?, count.parse()?, true),
        ["cmtime", "listen", at, count] => peers::listen(place(at)?, count.parse()?, false),
        ["cmtime", "connect", at, count] => peers::connect(place(at)?, count.parse()?, false),
        ["cycles", at, count] => costs::cycles(address(at)?, count.parse()?),
        ["many", at, count] => costs::many(address(at)?, count.parse()?),
        ["reach", at] => costs::reach(place(at)?),
        ["cancel", at] => costs::cancel(place(at)?),
        ["stop", step, "listen", at, go] => faults::stop(step, true, place(at)?, go),
        ["stop", step, "connect", at, go] => faults::stop(step, false, place(at)?, go),
        ["crowd", at, count] => faults::crowd(place(at)?, count.parse()?),
        ["user", at, uid] => faults::user(place(at)?, uid.parse()?),
        _ => Err(USAGE.into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}
