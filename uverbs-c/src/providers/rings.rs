//! The types of drivers, for functions that are compiled once for each.

use uverbs::raw::provider::Rxe;
use uverbs::raw::{Cursor, Facts, InPlace, Provider, Told, Unread, walk};

use crate::boundary::Beside;
use crate::cq::Cq;

/// Does the work with the type of a context's driver.
macro_rules! with_rings {
    ($context:expr, $rings:ident => $work:expr) => {
        uverbs::with_drivers!([$crate::providers::rings::with_each] $context, $rings => $work)
    };
}
pub(crate) use with_rings;

/// With the list of drivers.
macro_rules! with_each {
    (
        [$($(#[$doc:meta])* $name:ident: $folder:ident $($boxed:ident)?, shared receives in $shared:ident;)*]
        $context:expr, $rings:ident => $work:expr
    ) => {
        match $context.provider() {
            $(uverbs::raw::ProviderKind::$name => {
                type $rings = uverbs::raw::provider::$name;
                $work
            })*
        }
    };
}
pub(crate) use with_each;

/// For functions of objects without a queue, which return an error with every driver.
pub(crate) type NoRings = Rxe;

/// A driver, with the place of its polls.
pub(crate) trait Rings: Provider<Walk: Walk> {}

impl<P: Provider<Walk: Walk>> Rings for P {}

/// Where a completion queue keeps the position in a poll of the extended interface.
pub(crate) trait Walk {
    type Cursor: Cursor;

    fn cursor(cq: &Cq) -> &Beside<Self::Cursor>;
}

/// The cursor of a driver's completion queues.
pub(crate) type CursorOf<R> = <<R as Facts>::Walk as Walk>::Cursor;

macro_rules! walks {
    ($($walk:ident: $field:ident;)*) => {$(
        impl Walk for walk::$walk {
            type Cursor = $walk;

            #[inline(always)]
            fn cursor(cq: &Cq) -> &Beside<$walk> {
                &cq.$field
            }
        }
    )*};
}

walks! {
    InPlace: in_place;
    Unread: unread;
    Told: told;
}
