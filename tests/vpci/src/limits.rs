//! The limits of a device, all of which can be set from outside.

/// Defines the type `Limits` with the defaults of its fields, and their setting by name.
#[macro_export]
macro_rules! limits {
    ($(#[$of_all:meta])* struct Limits { $($(#[$doc:meta])* $name:ident: $type:ty = $default:expr,)* }) => {
        $(#[$of_all])*
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
                let number = $crate::control::number(value).ok_or_else(|| format!("{setting}: not a number"))?;
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

#[cfg(test)]
mod tests {
    crate::limits! {
        /// Of a test.
        struct Limits {
            max_qp: u32 = 8,
            /// In bytes.
            mtu: u16 = 1500,
        }
    }

    #[test]
    fn limits_are_set_by_their_names() {
        let mut limits = Limits::default();
        assert_eq!(limits.set_by_text("max_qp=0x10"), Ok(()));
        assert_eq!(limits.list(), [("max_qp", 16), ("mtu", 1500)]);
        for text in ["max_qp", "max_qp=many", "mtu=65536", "nothing=1"] {
            assert!(limits.set_by_text(text).is_err(), "{text}");
        }
        assert_eq!((limits.max_qp, limits.mtu), (16, 1500));
    }
}
