//! How the sides connect, what they do, and how they end.

use uverbs::{ConnectionOptions, Context};

use super::Args;
use super::address::Address;
use super::counted::Watch;
use super::exchange::{self, Peer, Words};
use super::gid::Own;
use super::one_sided::{self, Op};
use super::side::{self, Side};
use super::transport::Transport;
use crate::Outcome;
use crate::output::Output;
use crate::stop::Stop;

/// The role of this process.
#[derive(Debug)]
pub(super) enum Role {
    Client(Peer),
    Server(Peer),
    Loopback,
}

/// Sides that are connected.
#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) role: Role,
    /// The other side's lines.
    pub(super) remotes: Vec<Address>,
}

impl Meeting {
    /// Connects this side and the other. `None` if a signal arrives first.
    pub(super) fn new<T: Transport>(
        args: &Args,
        sides: &mut [Side<T>],
        context: &Context,
        (gid, mut options): (&mut Own, ConnectionOptions),
        output: &mut Output,
        stop: &Stop,
    ) -> Outcome<Option<Self>> {
        let side = match sides {
            [one, two] => {
                let remotes = two.addresses();
                one.connect(&options, gid, &remotes)?;
                two.connect(&options, gid, &one.addresses())?;
                return Ok(Some(Self { role: Role::Loopback, remotes }));
            }
            [side, ..] => side,
            [] => return Ok(None),
        };
        let words = side.plan.words;
        let says_done = words != Words::Extended;
        if let Some(host) = args.host()? {
            let mut server = Peer::connect(host, args.tcp_port(), args.timeout, stop)?;
            gid.fit(context, server.address())?;
            options.gid_index = gid.index;
            side.set_gid(gid);
            server.tell(words, &side.addresses())?;
            let Some(remotes) = server.hear(words)? else { return Ok(None) };
            side.connect(&options, gid, &remotes)?;
            if says_done {
                server.say(words.last())?;
            }
            return Ok(Some(Self { role: Role::Client(server), remotes }));
        }
        let listener = exchange::listen(args.tcp_port())?;
        if !args.json {
            output.line(format_args!("waiting for a client on TCP port {}", args.tcp_port()))?;
        }
        let Some(mut client) = Peer::accept(&listener, args.timeout, stop)? else { return Ok(None) };
        drop(listener);
        let Some(remotes) = client.hear(words)? else { return Ok(None) };
        // The client sends as soon as it knows the address, so this side must be ready before that.
        if let [remote, ..] = &*remotes {
            gid.fit(context, &remote.endpoint)?;
            options.gid_index = gid.index;
            side.set_gid(gid);
        }
        side.connect(&options, gid, &remotes)?;
        client.tell(words, &side.addresses())?;
        if says_done && !client.hear_word(words.last())? {
            return Ok(None);
        }
        Ok(Some(Self { role: Role::Server(client), remotes }))
    }

    /// Exchanges messages, or operates on memory: the client on the server's; in one process, the first side on the second.
    pub(super) fn work<T: Transport>(
        &mut self,
        args: &Args,
        sides: &mut [Side<T>],
        watch: Option<&Watch>,
        stop: &Stop,
    ) -> Outcome {
        if let ([side, ..], Op::Send) = (&mut *sides, args.op) {
            let server_begins = side.plan.words == Words::Extended;
            match self.role {
                Role::Loopback => side.begin(true)?,
                Role::Client(_) if !server_begins => side.begin(true)?,
                // Nothing shows whether the client is connected.
                Role::Server(_) if server_begins => side.begin(false)?,
                _ => {}
            }
            return side::play(sides, watch, args.timeout, stop);
        }
        match (sides, &mut self.role) {
            ([one, two], _) => one_sided::operate(one, two.there(), args.timeout, stop),
            ([side, ..], Role::Client(server)) => match server.hear_memory()? {
                Some(there) => one_sided::operate(side, there, args.timeout, stop),
                None => Ok(()),
            },
            ([side, ..], Role::Server(client)) => {
                // Each step of the client has a time limit, but not all of them together.
                client.be_patient();
                client.tell_memory(side.there())
            }
            _ => Ok(()),
        }
    }

    /// Waits for the other side if it still needs this one.
    pub(super) fn part(&mut self, words: Words, op: Op) -> Outcome {
        let (word, both) = (words.last(), words == Words::Extended);
        match &mut self.role {
            Role::Client(server) if both || op != Op::Send => {
                server.say(word)?;
                if both { server.hear_word(word).map(drop) } else { Ok(()) }
            }
            Role::Server(client) if both || op != Op::Send => {
                let heard = client.hear_word(word)?;
                if both && heard { client.say(word) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}

impl Role {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Server(_) => "server",
            Self::Loopback => "loopback",
        }
    }

    /// The other side, if it is another process.
    pub(super) fn peer(&self) -> Option<&Peer> {
        match self {
            Self::Client(peer) | Self::Server(peer) => Some(peer),
            Self::Loopback => None,
        }
    }
}
