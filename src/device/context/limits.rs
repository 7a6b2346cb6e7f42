//! The limits of a device, for the hints of errors: they are queried only after the kernel has refused a number.

use std::borrow::Cow;

use uverbs_abi::write::ExQueryDeviceResp;

use super::Context;
use crate::kernel::error::{Error, ErrorKind, limit};

/// A number that was sent to the kernel, and its limit in the device's answer to a query.
pub(crate) struct Size {
    /// What it counts, with the name of the limit.
    pub(crate) what: &'static str,
    pub(crate) given: u32,
    /// The smallest number allowed.
    pub(crate) least: u32,
    /// A number that every device allows.
    pub(crate) always: u32,
    pub(crate) most: fn(&ExQueryDeviceResp) -> u32,
}

impl Size {
    fn is_ordinary(&self) -> bool {
        (self.least..=self.always).contains(&self.given)
    }

    fn refusal(&self, device: &ExQueryDeviceResp) -> Option<String> {
        outside(self.what, self.given, self.least, (self.most)(device))
    }
}

/// The hint for a number that is not within `least` to `most`.
fn outside(what: &str, given: u32, least: u32, most: u32) -> Option<String> {
    let is_inside = (least..=most).contains(&given);
    (!is_inside).then(|| match least {
        0 => limit(what, given, format_args!("at most {most}")),
        _ => limit(what, given, format_args!("{least} to {most}")),
    })
}

impl Context {
    /// The error with a hint that names the first of `sizes` that the device does not allow, if the kernel refused one as invalid;
    /// otherwise with this other hint. If all sizes are so small that every device allows them, the device is not queried; nor if the
    /// error has a hint already, because then the crate refused the number and the kernel was not asked.
    pub(crate) fn sized(
        &self,
        error: Error,
        sizes: &[Size],
        otherwise: impl Into<Cow<'static, str>>,
    ) -> Error {
        if error.kind() != ErrorKind::InvalidInput || error.hint().is_some() {
            return error;
        }
        let is_ordinary = sizes.iter().all(Size::is_ordinary);
        let device = if is_ordinary { None } else { self.query_device().ok() };
        let hint = device.and_then(|device| sizes.iter().find_map(|size| size.refusal(&device)));
        error.hinted(hint.map_or_else(|| otherwise.into(), Cow::from))
    }

    /// The hint for a port that the device does not have.
    pub(crate) fn no_such_port(&self, port: u8) -> Option<String> {
        outside("port", port.into(), 1, self.device().ports().max(1))
    }

    /// The hint for an index outside the GID table of `port`, or for a port that does not exist.
    pub(crate) fn no_such_gid(&self, port: u8, index: u32) -> Option<String> {
        let len = |port| self.query_port(port).ok().map(|port| port.legacy_resp.gid_tbl_len);
        // The first entry exists in every table.
        let outside = |len: &u32| index > 0 && index >= *len;
        self.no_such_port(port).or_else(|| {
            let last = len(port).filter(outside)?.saturating_sub(1);
            Some(limit("index in the GID table", index, format_args!("0 to {last}")))
        })
    }
}

#[cfg(all(test, feature = "soft"))]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::device::SoftDevice;

    #[test]
    fn the_device_is_queried_only_if_the_kernel_refused_a_number() {
        let context = SoftDevice::default().open().unwrap();
        let size = |most| [Size { what: "things", given: 0, least: 1, always: 16, most }];
        let refused = Error::kernel("test", Errno::EINVAL);
        let named = context.sized(refused, &size(|_| 1000), "otherwise");
        assert_eq!(named.hint(), Some("things: 0 given, 1 to 1000 allowed"));

        let unqueried = size(|_| unreachable!("the device was queried"));
        let known = Error::beyond("test", "things", 0, 7);
        assert_eq!(context.sized(known.clone(), &unqueried, "otherwise"), known);
        let other = Error::kernel("test", Errno::ENOMEM);
        assert_eq!(context.sized(other.clone(), &unqueried, "otherwise"), other);
        let [size] = unqueried;
        let ordinary = [Size { given: 16, ..size }];
        let refused = Error::kernel("test", Errno::EINVAL);
        assert_eq!(context.sized(refused, &ordinary, "otherwise").hint(), Some("otherwise"));
    }
}
