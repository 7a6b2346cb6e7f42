//! The object of the library that an object of C owns, until it is destroyed.

use uverbs::Error;

use crate::answer::{Answer, Code, EINVAL};
use crate::boundary::Given;

/// An object of the library. Before it is created, and after it was destroyed, each use returns EINVAL.
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

    /// Destroys the object. If that fails, the object remains as it was.
    pub(crate) fn destroy<R>(&mut self, how: impl FnOnce(T) -> Result<R, (T, Error)>) -> Answer<R> {
        how(self.0.take().ok_or(EINVAL)?).map_err(|(object, error)| {
            self.0 = Some(object);
            Code::from(error)
        })
    }
}

/// Destroys what an object of C owns, and frees the object. If that fails, the object remains.
pub(crate) fn end<O, R>(object: Option<Box<O>>, how: impl FnOnce(&mut O) -> Answer<R>) -> Answer<R> {
    let mut object = object.ok_or(EINVAL)?;
    let answer = how(&mut object);
    if answer.is_err() {
        std::mem::forget(object);
    }
    answer
}

/// Destroys what an object of C with events owns, and frees the object. If that fails, the object remains. Other threads may acknowledge
/// events at the same time.
pub(crate) fn end_shared<O>(object: Given<O>, how: impl FnOnce(&O) -> Answer) -> Answer {
    how(object.get().ok_or(EINVAL)?)?;
    object.free();
    Ok(())
}
