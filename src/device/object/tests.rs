//! What happens to the memory that an object holds.

use std::sync::Arc;

use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::write::{AllocPd, AllocPdResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::kernel::transport::Watcher;
use crate::soft::SoftDevice;

/// Answers every command with EIO from the moment on at which the device is removed.
#[derive(Debug, Default)]
struct Removed(Arc<AtomicBool>);

impl Watcher for Removed {
    fn before(&self, _: &Command<'_>) -> std::result::Result<(), Errno> {
        if self.0.load(Ordering::Relaxed) { Err(Errno::EIO) } else { Ok(()) }
    }
}

/// An object that holds memory, the memory, and what removes the device.
fn holding() -> (Object, Mapping, Arc<AtomicBool>) {
    let is_removed = Arc::new(AtomicBool::new(false));
    let context = SoftDevice::default().device().open_with(Removed(is_removed.clone())).unwrap();
    let (request, mut response) = (AllocPd::default(), AllocPdResp::new_zeroed());
    let mut command = Command::write("pd.alloc", cmd::ALLOC_PD);
    command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
    context.invoke(&mut command).unwrap();
    let object = Object::new(&context, Kind::Pd, response.pd_handle);
    let memory = Mapping::from(vec![0; 64].into_boxed_slice());
    (object.holding(Some(&memory)), memory, is_removed)
}

fn is_free(memory: Mapping) -> bool {
    Box::<[u8]>::try_from(memory).is_ok()
}

#[test]
fn memory_is_free_when_the_kernel_has_destroyed_the_object() {
    let (object, memory, _) = holding();
    object.destroy().map_err(|(_, error)| error).unwrap();
    assert!(is_free(memory));
    let (object, memory, _) = holding();
    drop(object);
    assert!(is_free(memory));
    let (mut object, memory, _) = holding();
    object.release_for_sure().unwrap();
    assert_eq!(object.held().capacity(), 0, "not even the list is left");
    assert!(is_free(memory));
}

#[test]
#[cfg_attr(miri, ignore = "memory is leaked on purpose")]
fn memory_stays_when_a_removed_device_has_confirmed_nothing() {
    for release in [Object::release, |object: &mut Object| object.release().and_then(|()| object.release())] {
        let (mut object, memory, is_removed) = holding();
        is_removed.store(true, Ordering::Relaxed);
        release(&mut object).unwrap();
        assert!(!object.is_live());
        drop(object);
        assert!(!is_free(memory));
    }
    let (object, memory, is_removed) = holding();
    is_removed.store(true, Ordering::Relaxed);
    object.destroy().map_err(|(_, error)| error).unwrap();
    assert!(!is_free(memory));
    let (object, memory, is_removed) = holding();
    is_removed.store(true, Ordering::Relaxed);
    drop(object);
    assert!(!is_free(memory));
    let (object, memory, _) = holding();
    object.abandon();
    drop(object);
    assert!(!is_free(memory), "the kernel destroys it when the file is closed");
}

#[cfg(feature = "raw")]
#[test]
#[cfg_attr(miri, ignore = "memory is leaked on purpose")]
fn the_same_holds_for_an_object_that_others_have_too() {
    for removes in [false, true] {
        let (object, memory, is_removed) = holding();
        is_removed.store(removes, Ordering::Relaxed);
        for _ in 0..2 {
            let events: u32 = object.release_before_drop().unwrap();
            assert_eq!((events, object.is_live()), (0, false));
        }
        assert_eq!(object.held().capacity() == 0, !removes);
        drop(object);
        assert_eq!(is_free(memory), !removes);
    }
}
