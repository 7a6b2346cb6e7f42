//! What an object of C's owns, until it is destroyed.

use uverbs::Error;

use crate::answer::{Answer, Code, EINVAL};
use crate::boundary::Given;

/// An object of the library. It is not there before it is made, and when it was destroyed: then every use is EINVAL.
pub(crate) struct Owned<T>(Option<T>);

impl<T> Default for Owned<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Owned<T> {
    pub(crate) fn new(object: T) -> Self {
        Self(Some(object))
    }

    #[inline]
    pub(crate) fn get(&self) -> Answer<&T> {
        self.0.as_ref().ok_or(EINVAL)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> Answer<&mut T> {
        self.0.as_mut().ok_or(EINVAL)
    }

    /// Destroys it; if that fails, it is there as before.
    pub(crate) fn destroy<R>(&mut self, how: impl FnOnce(T) -> Result<R, (T, Error)>) -> Answer<R> {
        how(self.0.take().ok_or(EINVAL)?).map_err(|(object, error)| {
            self.0 = Some(object);
            Code::from(error)
        })
    }
}

/// Destroys what an object of C's owns, and frees it; if that fails, it stays.
pub(crate) fn end<O, R>(object: Option<Box<O>>, how: impl FnOnce(&mut O) -> Answer<R>) -> Answer<R> {
    let mut object = object.ok_or(EINVAL)?;
    let answer = how(&mut object);
    if answer.is_err() {
        std::mem::forget(object);
    }
    answer
}

/// The same for an object with events, which other threads may acknowledge meanwhile.
pub(crate) fn end_shared<O>(object: Given<O>, how: impl FnOnce(&O) -> Answer) -> Answer {
    how(object.get().ok_or(EINVAL)?)?;
    object.free();
    Ok(())
}
