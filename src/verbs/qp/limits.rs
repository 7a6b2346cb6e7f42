//! What the two sides of a connection have, and what both can use.

use std::fmt;
use std::str::FromStr;

use nix::errno::Errno;
use uverbs_abi::types::mtu;

use super::ConnectionOptions;
use crate::device::context::Context;
use crate::kernel::error::{Error, Result};

/// The limits of one side of a connection, which depend on its device and port. Each side sends its own to the other side, with its
/// [`Endpoint`](super::Endpoint), and [`ConnectionOptions::agreed`] finds what both can use.
///
/// The text form is `MTU:OUTGOING:INCOMING`, in bytes and decimal numbers:
///
/// ```
/// let limits: uverbs::ConnectionLimits = "4096:16:128".parse()?;
/// assert_eq!((limits.mtu_bytes(), limits.outgoing_reads, limits.incoming_reads), (4096, 16, 128));
/// assert_eq!(limits.to_string(), "4096:16:128");
/// # Ok::<(), uverbs::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum packet size of the port: one of [`uverbs_abi::types::mtu`].
    pub mtu: u8,
    /// Maximum number of reads and atomic operations that this side can have outstanding (`max_qp_init_rd_atom`).
    pub outgoing_reads: u8,
    /// Maximum number of reads and atomic operations of the other side that this side can execute at the same time
    /// (`max_qp_rd_atom`).
    pub incoming_reads: u8,
}

impl ConnectionLimits {
    /// The limits of a peer of which nothing is known: packets of 1024 bytes, and one outstanding read. These are the values that
    /// [`ConnectionOptions::new`] and libibverbs' pingpong programs use.
    pub const UNKNOWN: Self = Self { mtu: mtu::MTU_1024, outgoing_reads: 1, incoming_reads: 1 };

    /// The maximum packet size in bytes.
    pub fn mtu_bytes(&self) -> u32 {
        128 << self.mtu.clamp(mtu::MTU_256, mtu::MTU_4096)
    }
}

impl Context {
    /// What a connection over `port` can use: the MTU of the port, and the numbers of outstanding reads of the device.
    ///
    /// ```
    /// # fn main() -> uverbs::Result<()> {
    /// let context = uverbs::SoftDevice::default().open()?;
    /// let own = context.connection_limits(1)?;
    /// assert!(own.outgoing_reads > 1 && own.incoming_reads > 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Context::query_device`] and [`Context::query_port`].
    ///
    /// # Kernel
    /// `QUERY_DEVICE` (`max_qp_init_rd_atom`, `max_qp_rd_atom`) and `QUERY_PORT` (`active_mtu`).
    pub fn connection_limits(&self, port: u8) -> Result<ConnectionLimits> {
        let active = self.query_port(port)?.legacy_resp.active_mtu;
        let device = self.query_device()?.base;
        // A port that reports no MTU gets what all have that know nothing of each other.
        let mtu = if (mtu::MTU_256..=mtu::MTU_4096).contains(&active) { active } else { mtu::MTU_1024 };
        Ok(ConnectionLimits {
            mtu,
            outgoing_reads: device.max_qp_init_rd_atom.try_into().unwrap_or(u8::MAX),
            incoming_reads: device.max_qp_rd_atom.try_into().unwrap_or(u8::MAX),
        })
    }
}

impl ConnectionOptions {
    /// These options with the MTU and the numbers of outstanding reads that both sides can use: `own` are the limits of this side,
    /// `peer` those that the other side has sent. The other side must do the same with the two exchanged, because both must use the
    /// same MTU, and a side must not have more reads outstanding than the other one accepts.
    ///
    /// For a peer whose limits are not known, use [`ConnectionLimits::UNKNOWN`]: packets have at most 1024 bytes and this side has one
    /// read outstanding, but it accepts as many as its device can.
    ///
    /// ```
    /// use uverbs::{ConnectionLimits, ConnectionOptions};
    /// let (card, other): (ConnectionLimits, ConnectionLimits) = ("4096:16:16".parse()?, "1024:128:8".parse()?);
    /// let options = ConnectionOptions::new(1, 0).agreed(&card, &other);
    /// assert_eq!((options.mtu, options.reads), (uverbs::abi::types::mtu::MTU_1024, 8));
    /// let theirs = ConnectionOptions::new(1, 0).agreed(&other, &card);
    /// assert_eq!((theirs.mtu, theirs.reads), (options.mtu, 16));
    /// let alone = ConnectionOptions::new(1, 0).agreed(&card, &ConnectionLimits::UNKNOWN);
    /// assert_eq!((alone.mtu, alone.reads, alone.incoming_reads), (uverbs::abi::types::mtu::MTU_1024, 1, Some(16)));
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[must_use]
    pub fn agreed(self, own: &ConnectionLimits, peer: &ConnectionLimits) -> Self {
        let mut reads = own.outgoing_reads;
        if peer.incoming_reads < reads {
            // mlx5's driver rounds the number to a power of two, up or down (`log_sra_max` in `__mlx5_ib_modify_qp`, qp.c, up in 6.1.192
            // and 7.3): any other number could become more than the peer accepts.
            reads = peer.incoming_reads.checked_ilog2().map_or(0, |log| 1 << log);
        }
        // The peer may have as many outstanding as this device executes: to accept more than it will have does no harm, and a smaller
        // number could be rounded down by the driver. It is this also if this side may have more outstanding itself: the kernel refuses
        // more than the device executes (`validate_rd_atomic`, mlx5's qp.c, Linux 6.1).
        let incoming_reads = Some(own.incoming_reads);
        Self { mtu: own.mtu.min(peer.mtu), reads, incoming_reads, ..self }
    }
}

impl fmt::Display for ConnectionLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.mtu_bytes(), self.outgoing_reads, self.incoming_reads)
    }
}

impl FromStr for ConnectionLimits {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let hint = "limits are MTU:OUTGOING:INCOMING in decimal digits: an MTU of 256, 512, 1024, 2048 or 4096, and numbers of \
                        reads up to 255";
            Error::refused("limits.parse", Errno::EINVAL, hint)
        };
        let mut parts = text.trim_end_matches(['\0', '\n']).split(':');
        let mut part = || {
            let part = parts.next().filter(|part| part.bytes().all(|digit| digit.is_ascii_digit()));
            part.and_then(|part| part.parse::<u16>().ok()).ok_or_else(wrong)
        };
        let (bytes, outgoing, incoming) = (part()?, part()?, part()?);
        let mtu = (mtu::MTU_256..=mtu::MTU_4096).find(|code| 128_u16 << code == bytes);
        match (mtu, outgoing.try_into(), incoming.try_into(), parts.next()) {
            (Some(mtu), Ok(outgoing_reads), Ok(incoming_reads), None) => {
                Ok(Self { mtu, outgoing_reads, incoming_reads })
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits() -> impl Strategy<Value = ConnectionLimits> {
        (1_u8..=5, any::<u8>(), any::<u8>()).prop_map(|(mtu, outgoing_reads, incoming_reads)| {
            ConnectionLimits { mtu, outgoing_reads, incoming_reads }
        })
    }

    /// What the driver makes of a number of outstanding reads: as it is, or a power of two.
    fn rounded(reads: u8) -> [u32; 3] {
        let reads = u32::from(reads);
        if reads == 0 { [0; 3] } else { [reads, reads.next_power_of_two(), 1 << reads.ilog2()] }
    }

    proptest! {
        #[test]
        fn two_sides_that_exchange_their_limits_fit(a in limits(), b in limits()) {
            let options = ConnectionOptions::new(1, 0);
            let (ours, theirs) = (options.agreed(&a, &b), options.agreed(&b, &a));
            prop_assert_eq!(ours.mtu, theirs.mtu);
            prop_assert_eq!(ours.mtu, a.mtu.min(b.mtu));
            for (one, own, other) in [(ours, a, b), (theirs, b, a)] {
                let most = own.outgoing_reads.min(other.incoming_reads);
                // More than half of what both have, which a power of two is.
                prop_assert!(one.reads <= most && (u32::from(one.reads) * 2 > u32::from(most) || most == 0));
                // Where the peer's limit counts, no rounding of the driver exceeds it.
                if other.incoming_reads < own.outgoing_reads {
                    prop_assert!(rounded(one.reads).iter().all(|reads| *reads <= u32::from(other.incoming_reads)));
                }
                // Neither number is more than the device has.
                prop_assert_eq!(one.accepted_reads(), own.incoming_reads);
                prop_assert!(one.reads <= own.outgoing_reads);
            }
        }

        #[test]
        fn limits_are_sent_as_text(limits in limits()) {
            prop_assert_eq!(limits.to_string().parse::<ConnectionLimits>(), Ok(limits));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,20}") {
            let _ = text.parse::<ConnectionLimits>();
        }
    }

    #[test]
    fn a_peer_that_is_not_known_gets_what_pingpong_programs_have() {
        let own = ConnectionLimits { mtu: mtu::MTU_4096, outgoing_reads: 16, incoming_reads: 32 };
        let alone = ConnectionOptions::new(1, 0).agreed(&own, &ConnectionLimits::UNKNOWN);
        assert_eq!((alone.mtu, alone.reads, alone.incoming_reads), (mtu::MTU_1024, 1, Some(32)));
        // A peer that uses the options as they are needs no more than that.
        let plain = ConnectionOptions::new(1, 0);
        assert!(plain.mtu == alone.mtu && plain.reads <= alone.accepted_reads());
        assert!(alone.reads <= plain.accepted_reads());
        // A port with a smaller MTU.
        let own = ConnectionLimits { mtu: mtu::MTU_512, ..own };
        assert_eq!(plain.agreed(&own, &ConnectionLimits::UNKNOWN).mtu, mtu::MTU_512);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "1024", "1024:1", "1024:1:1:1", "1000:1:1", "8192:1:1", "1024:256:1", "1024:+1:1", "1024::1"]
        {
            let error = text.parse::<ConnectionLimits>().expect_err(text);
            assert!(error.to_string().contains("MTU:OUTGOING:INCOMING"), "{text}: {error}");
        }
    }
}
