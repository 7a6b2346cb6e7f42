//! Regions that may be named in advice on memory, for drivers that do not check this.
//!
//! rxe looks a region up by its key and then uses it as one that is paged on demand, whether it is or not (`rxe_ib_prefetch_sg_list`,
//! rxe_odp.c, Linux 7.3): the kernel takes one structure for another and may stop. A context therefore knows the keys of its regions that
//! are paged, and advice is sent only about these. While it is under way its regions are not deregistered, so that the key cannot become
//! that of another region.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use uverbs_abi::types::{AdviseFlags, OdpGeneralCaps, advise};

use super::Context;
use crate::driver::request::Sge;
use crate::driver::{Driver, Kernel};
use crate::kernel::error::{Error, Result};

/// For each key, the number of commands with advice about its region that are under way.
type Keys = BTreeMap<u32, usize>;

/// The regions of a context that are paged on demand; none for a driver that checks advice itself.
///
/// A child of `fork` does not take the lock, which a thread of its parent may have held: all calls come after a check of the owner.
#[derive(Debug, Default)]
pub(crate) struct Paged(Option<Table>);

#[derive(Debug, Default)]
struct Table {
    keys: Mutex<Keys>,
    /// Advice has ended.
    ended: Condvar,
}

impl Table {
    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The regions of advice that is under way.
#[derive(Debug)]
#[must_use = "the regions may be deregistered when it is dropped"]
pub(crate) struct Advised<'a>(Option<(&'a Table, &'a [Sge])>);

impl Drop for Advised<'_> {
    fn drop(&mut self) {
        let Some((table, pieces)) = self.0 else { return };
        let mut keys = table.keys();
        for piece in pieces {
            keys.entry(piece.lkey).and_modify(|uses| *uses = uses.saturating_sub(1));
        }
        table.ended.notify_all();
    }
}

/// A region that is being deregistered or changed, without its key. Unless it is [`gone`](Leaving::gone), it gets the key back.
#[derive(Debug)]
pub(crate) struct Leaving<'a>(Option<(&'a Table, u32)>);

impl Leaving<'_> {
    /// The region does not have this key any more.
    pub(crate) fn gone(mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some((table, key)) = self.0 {
            table.keys().entry(key).or_default();
        }
    }
}

impl Paged {
    pub(super) fn of(driver: &Driver) -> Self {
        Self(driver.believes_paging().then(Table::default))
    }

    /// A region with this key is paged on demand.
    pub(crate) fn add(&self, key: u32) {
        if let Some(table) = &self.0 {
            table.keys().entry(key).or_default();
        }
    }

    /// Takes the key away from advice, and waits until none that is under way has it.
    pub(crate) fn leave(&self, key: u32) -> Leaving<'_> {
        let Some(table) = &self.0 else { return Leaving(None) };
        let is_used = |keys: &mut Keys| keys.get(&key).is_some_and(|uses| *uses > 0);
        let keys = table.ended.wait_while(table.keys(), is_used);
        let is_there = keys.unwrap_or_else(PoisonError::into_inner).remove(&key).is_some();
        Leaving(is_there.then_some((table, key)))
    }

    /// Refuses advice about a region that the driver must not be asked about, and keeps the others from being deregistered.
    pub(crate) fn hold<'a>(
        &'a self,
        context: &Context,
        op: &'static str,
        [advice, flags]: [u32; 2],
        pieces: &'a [Sge],
    ) -> Result<Advised<'a>> {
        let Some(table) = &self.0 else { return Ok(Advised(None)) };
        context.take(op)?;
        let mut keys = table.keys();
        if let Some(other) = pieces.iter().find(|piece| !keys.contains_key(&piece.lkey)) {
            drop(keys);
            return Err(refusal(context, op, [advice, flags], other.lkey));
        }
        for piece in pieces {
            keys.entry(piece.lkey).and_modify(|uses| *uses += 1);
        }
        Ok(Advised(Some((table, pieces))))
    }
}

/// The error for advice about a region that is not paged. Checks and their order are those of mlx5: the core's, then
/// `mlx5_ib_advise_mr`, mr.c, then `get_prefetchable_mr`, odp.c, Linux 6.1 to 7.3. A driver without paging has no advice either.
fn refusal(context: &Context, op: &'static str, [advice, flags]: [u32; 2], key: u32) -> Error {
    let caps = match context.query_device() {
        Ok(answer) => OdpGeneralCaps::from_bits_retain(answer.odp_caps.general_caps),
        Err(error) => return error,
    };
    if !caps.contains(OdpGeneralCaps::SUPPORT) {
        return Error::refused(op, Errno::EOPNOTSUPP, "the device has no paging on demand");
    }
    if AdviseFlags::from_bits(flags).is_none() {
        return Error::refused(op, Errno::EINVAL, format!("there is no such flag: {flags:#x}"));
    }
    if ![advise::PREFETCH, advise::PREFETCH_WRITE, advise::PREFETCH_NO_FAULT].contains(&advice) {
        return Error::refused(op, Errno::EOPNOTSUPP, format!("there is no such advice: {advice}"));
    }
    let hint = format!(
        "{key:#x} is not the key of a region of this open device that is registered with paging on demand, and the driver would not check this"
    );
    Error::refused(op, Errno::ENOENT, hint)
}
