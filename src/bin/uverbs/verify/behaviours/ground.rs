//! What behaviours need of their surroundings.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::time::Duration;

use uverbs::abi::types::{link_layer, node_type};
use uverbs::{AccessFlags, ConnectionOptions, Context, Device, ErrorKind, Peer};

use super::{Held, NO_FRAMES, Optional, Stopped, differs};

/// How frames are made to arrive at the device.
pub(crate) trait Frames {
    /// A frame arrives, without check sequence. It may still be on its way when this returns.
    fn send(&self, frame: &[u8]) -> Held;

    /// The source address of the frames.
    fn source(&self) -> Held<[u8; 6]> {
        Ok([0x02, 0xfc, 0, 0, 0, 0xee])
    }

    /// How long after a frame was sent its counters may be told.
    fn late(&self) -> Duration;

    /// The longest frame.
    fn longest(&self) -> usize;

    /// How many may be sent at once without being lost.
    fn many(&self, frame: &[u8], count: u64) -> Held {
        (0..count).try_for_each(|_| self.send(frame))
    }
}

/// A device, and what else a behaviour needs.
pub(crate) struct Ground<'a> {
    pub(crate) device: &'a Device,
    /// Opens the device.
    pub(crate) opener: &'a dyn Fn() -> uverbs::Result<Context>,
    pub(crate) port: u8,
    /// The address of the device's interface, if its queue pairs are connected by a connection manager.
    pub(crate) address: Option<IpAddr>,
    pub(crate) frames: Option<&'a dyn Frames>,
    /// Set when frames that were sent have not come back.
    pub(crate) is_silent: OnceCell<()>,
    /// Whether the user wants the run to end.
    pub(crate) is_over: &'a dyn Fn() -> bool,
}

impl Ground<'_> {
    /// Opens the device.
    pub(crate) fn open(&self) -> Held<Context> {
        (self.opener)().optional()
    }

    /// Ends the behaviour if the user wants that.
    pub(crate) fn go_on(&self) -> Held {
        if (self.is_over)() { Err(Stopped::Interrupted) } else { Ok(()) }
    }

    /// The driver's name.
    pub(crate) fn driver(&self) -> &'static str {
        self.device.driver()
    }

    /// Whether the port is one of InfiniBand.
    pub(crate) fn is_infiniband(&self, context: &Context) -> Held<bool> {
        Ok(context.query_port(self.port)?.legacy_resp.link_layer == link_layer::INFINIBAND)
    }

    /// Whether only a connection manager connects the device's queue pairs (iWARP).
    pub(crate) fn is_iwarp(&self) -> bool {
        self.device.node_type() == node_type::RNIC
    }

    /// Ends the behaviour if queue pairs cannot be connected without a connection manager.
    pub(crate) fn connects(&self) -> Held {
        if self.is_iwarp() {
            return Err(Stopped::Skipped(
                "its queue pairs are connected by a connection manager alone, which this behaviour does not use".to_owned(),
            ));
        }
        Ok(())
    }

    /// Options for a GID that leads back to the port.
    pub(crate) fn options(&self, context: &Context) -> Held<ConnectionOptions> {
        let table = context.gid_table()?;
        let of_port = |gid: &&uverbs::Gid| gid.port == u32::from(self.port);
        if !table.iter().any(|gid| of_port(&gid)) {
            return Err(Stopped::Skipped("its port has no address".to_owned()));
        }
        // Of interfaces that are not here, one leads back to the device all the same.
        let index = match context.gid_for(self.port, Peer::Unknown) {
            Ok(chosen) => chosen.index,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let first = table.iter().find(of_port).map(|gid| gid.index);
                first.and_then(|index| u8::try_from(index).ok()).ok_or_else(|| Stopped::from(error))?
            }
            // The port is not active.
            Err(error) => return Err(Stopped::Skipped(error.to_string())),
        };
        Ok(ConnectionOptions::new(self.port, index).access(ALL))
    }

    /// How frames arrive.
    pub(crate) fn frames(&self) -> Held<&dyn Frames> {
        self.frames.ok_or_else(|| Stopped::Skipped(NO_FRAMES.to_owned()))
    }

    /// Ends the behaviour if something takes too long, or if the user wants that.
    pub(crate) fn within(&self, start: std::time::Instant, what: &str, seen: impl std::fmt::Display) -> Held {
        self.go_on()?;
        if start.elapsed() > LIMIT {
            return Err(differs(what, format_args!("within {} s", LIMIT.as_secs()), seen));
        }
        std::thread::yield_now();
        Ok(())
    }
}

/// Longest wait for something that the device does.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// All access rights of the peer.
pub(crate) const ALL: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);
