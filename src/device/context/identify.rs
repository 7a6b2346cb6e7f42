//! Identifies the driver of a device by the errnos of the device's own answers.
//!
//! Each command names the driver, and the kernel checks that before anything else. It returns EINVAL for another driver
//! (ib_uverbs_cmd_verbs, uverbs_ioctl.c, Linux 6.1 to 7.3), and EPROTONOSUPPORT for the right one if there is no such method. So a
//! command that no kernel knows does nothing, but its errno shows the driver.

use nix::errno::Errno;

use crate::device::driver_ids;
use crate::kernel::command::Command;
use crate::kernel::transport::Transport;

/// An object that no kernel has: the core's numbers end at 23 (uapi_key_obj, uverbs_ioctl.h).
const NO_OBJECT: u16 = 0xfff;
/// How many numbers are tried beyond the known ones.
const LATER: u32 = 64;

/// The driver behind `transport`, if the kernel's answers show it.
pub(super) fn driver(transport: &dyn Transport) -> Option<u32> {
    asked(|driver| {
        let mut command = Command::new("device.identify", NO_OBJECT, 0);
        command.for_driver(driver);
        transport.invoke(&mut command).err()
    })
}

fn asked(mut ask: impl FnMut(u32) -> Option<Errno>) -> Option<u32> {
    let later = (1..LATER).filter(|number| !driver_ids().any(|known| known == *number));
    let mut answers = driver_ids().chain(later).map(|driver| (driver, ask(driver)));
    match answers.find(|(_, answer)| *answer != Some(Errno::EINVAL)) {
        Some((driver, Some(Errno::EPROTONOSUPPORT))) => Some(driver),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_the_one_that_is_not_refused() {
        for real in 1..LATER {
            let mut times = 0;
            let found = asked(|driver| {
                times += 1;
                Some(if driver == real { Errno::EPROTONOSUPPORT } else { Errno::EINVAL })
            });
            assert_eq!(found, Some(real));
            assert!(times < LATER, "each is asked once");
        }
    }

    #[test]
    fn another_answer_is_none() {
        for answer in [Some(Errno::EINVAL), Some(Errno::EIO), Some(Errno::EPERM), Some(Errno::ENOTTY), None] {
            assert_eq!(asked(|_| answer), None, "{answer:?}");
        }
    }
}
