//! The limits of the device, all of which can be set from outside.

/// Defines the limits with their defaults, and their setting by name.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr,)*) => {
        /// The values that the device reports.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct Limits {
            $($(#[$doc])* pub(crate) $name: $type,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Limits {
            /// Sets a limit, as in `max_qp=4`.
            ///
            /// # Errors
            /// The reason of a refusal.
            pub(crate) fn set_by_text(&mut self, setting: &str) -> Result<(), String> {
                let (name, value) = setting.split_once('=').ok_or_else(|| format!("{setting}: NAME=VALUE is wanted"))?;
                let number = vpci::control::number(value).ok_or_else(|| format!("{setting}: not a number"))?;
                match name {
                    $(stringify!($name) => {
                        self.$name = <$type>::try_from(number).map_err(|_| format!("{setting}: too large"))?;
                    })*
                    _ => return Err(format!("{name}: there is no such limit; there are {}", Self::NAMES.join(", "))),
                }
                Ok(())
            }

            const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// All of them, by name.
            pub(crate) fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), u64::from(self.$name))),*]
            }
        }
    };
}

limits! {
    max_eq: u32 = 256,
    max_cq: u32 = 4096,
    max_qp: u32 = 1024,
    max_mr: u32 = 65_536,
    max_pd: u32 = 1024,
    max_inbound_reads: u32 = 16,
    max_outbound_reads: u32 = 16,
    /// In bytes; the kernel divides by 512 for requests and by 256 for receives.
    max_requester_sq_size: u32 = 4 << 20,
    max_responder_sq_size: u32 = 4096,
    max_requester_rq_size: u32 = 2 << 20,
    max_responder_rq_size: u32 = 2 << 20,
    max_send_sge: u32 = 13,
    max_recv_sge: u32 = 15,
    /// Bit 5: counters of the device. Bit 6: several ports.
    features: u32 = 0x20,
    /// The largest frame that the network interface can be set to.
    mtu: u16 = 9230,
    /// In Mbit/s.
    link_speed: u32 = 100_000,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_their_names() {
        let mut limits = Limits::default();
        assert_eq!(limits.set_by_text("max_qp=0x10"), Ok(()));
        assert_eq!((limits.max_qp, limits.list().len()), (16, Limits::NAMES.len()));
        for text in ["max_qp", "max_qp=many", "mtu=65536", "nothing=1"] {
            assert!(limits.set_by_text(text).is_err(), "{text}");
        }
    }
}
