//! Buffers that the library allocates. All of them are ordinary memory: no driver here has its own memory for them.

use std::ffi::c_int;

use nix::libc;

use crate::answer::{Answer, Code, EINVAL, minus_one, or_null};
use crate::boundary::{Places, Pointer};
use crate::pd::Pd;

/// A buffer. C does not access its fields.
pub(crate) struct Buf {
    pd: Pointer,
    /// The memory of the buffer. Only the caller uses its contents.
    pages: Vec<Page>,
    size: u64,
}

#[repr(C, align(4096))]
struct Page([u8; PAGE]);

const PAGE: usize = 4096;

impl Buf {
    /// Whether it was allocated in the domain `pd` and contains these bytes.
    pub(crate) fn has(&self, pd: Pointer, addr: u64, length: u64) -> bool {
        let offset = addr.checked_sub(self.start().word());
        pd.word() == self.pd.word()
            && offset.and_then(|offset| self.size.checked_sub(offset)).is_some_and(|left| length <= left)
    }

    fn start(&self) -> Pointer {
        Pointer::to_first(&self.pages)
    }
}

fn alloc(pd: Option<&Pd>, size: usize, place: &mut Places<'_, Box<Buf>>) -> Answer<Pointer> {
    let pd = Pointer::to(pd.ok_or(EINVAL)?);
    let [place] = place.get(1) else { return Err(EINVAL) };
    let mut pages = Vec::new();
    pages.try_reserve_exact(size.div_ceil(PAGE))?;
    let buf = Box::new(Buf { pd, pages, size: size as u64 });
    let start = buf.start();
    place.write(buf);
    Ok(start)
}

pub(crate) extern "C" fn alloc_buf(pd: Option<&Pd>, size: usize, mut place: Places<'_, Box<Buf>>) -> Pointer {
    or_null(alloc(pd, size, &mut place)).unwrap_or(Pointer::NULL)
}

pub(crate) extern "C" fn free_buf(buf: Option<Box<Buf>>) {
    drop(buf);
}

/// Ordinary memory has no file descriptor: the answer is ENODATA, as in libibverbs.
pub(crate) extern "C" fn export_buf_dmabuf_fd(buf: Option<&Buf>) -> c_int {
    minus_one(Err(if buf.is_some() { Code::new(libc::ENODATA) } else { EINVAL }))
}
