//! What is made from the list of drivers (`mod.rs`): the enums that store a queue of any driver, and the matches on them.

/// The type that stores a queue.
macro_rules! stored_type {
    ($queue:ty,) => { $queue };
    ($queue:ty, Box) => { Box<$queue> };
}
pub(crate) use stored_type;

/// An enum of queues, one variant for each driver, and those that only this enum has. Its parameter is what each folder calls its queue.
macro_rules! rings {
    (
        [$($(#[$doc:meta])* $name:ident: $folder:ident $($boxed:ident)?, shared receives in $shared:ident;)*]
        $queue:ident, $($more:ident: $type:ty,)*
    ) => {
        // The tag is separate, because it is faster to read than one among the fields.
        #[repr(u8)]
        #[derive(Debug)]
        pub(crate) enum Rings {
            $($name($crate::driver::list::stored_type!($crate::driver::$folder::$queue, $($boxed)?)),)*
            $($more($type),)*
        }

        $(impl From<$crate::driver::$folder::$queue> for $queue {
            fn from(ring: $crate::driver::$folder::$queue) -> Self {
                Self(Rings::$name(ring.into()))
            }
        })*
        $(impl From<$type> for $queue {
            fn from(ring: $type) -> Self {
                Self(Rings::$more(ring))
            }
        })*
    };
}
pub(crate) use rings;

/// A match on the `Rings` of a module with one expression for all drivers, which is compiled for each.
macro_rules! match_rings {
    (
        [$($(#[$doc:meta])* $name:ident: $folder:ident $($boxed:ident)?, shared receives in $shared:ident;)*]
        $module:ident [$($more:ident)*] $queue:expr, $ring:ident => $work:expr
    ) => {
        match $queue {
            $($crate::driver::$module::Rings::$name($ring) => $work,)*
            $($crate::driver::$module::Rings::$more($ring) => $work,)*
        }
    };
}
pub(crate) use match_rings;

/// A match on the `Rings` of a module for an expression that uses the type of the queue alone; see [`match_rings`].
macro_rules! match_types {
    (
        [$($(#[$doc:meta])* $name:ident: $folder:ident $($boxed:ident)?, shared receives in $shared:ident;)*]
        $module:ident $queue_type:ident [$($more:ident: $type:ty,)*] $queue:expr, $ring:ident => $work:expr
    ) => {
        match $queue {
            $($crate::driver::$module::Rings::$name(_) => {
                type $ring = $crate::driver::$folder::$queue_type;
                $work
            })*
            $($crate::driver::$module::Rings::$more(_) => {
                type $ring = $type;
                $work
            })*
        }
    };
}
pub(crate) use match_types;

/// Implements the trait `Stored` of a module: a queue of one driver, among those of all drivers.
macro_rules! stored {
    (
        [$($(#[$doc:meta])* $name:ident: $folder:ident $($boxed:ident)?, shared receives in $shared:ident;)*]
        $queue:ident, $($more:ident: $type:ty,)*
    ) => {
        $(impl Stored for $crate::driver::$folder::$queue {
            #[inline(always)]
            fn of(queue: &mut $queue) -> Option<&mut Self> {
                if let Rings::$name(ring) = &mut queue.0 { Some(ring.by_ref()) } else { None }
            }
        })*
        $(impl Stored for $type {
            #[inline(always)]
            fn of(queue: &mut $queue) -> Option<&mut Self> {
                if let Rings::$more(ring) = &mut queue.0 { Some(ring.by_ref()) } else { None }
            }
        })*
    };
}
pub(crate) use stored;
