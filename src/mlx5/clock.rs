//! The time of the device's clock.

use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicU64, fence};

use nix::errno::Errno;
use uverbs_abi::mlx5::{MMAP_CLOCK_INFO, mmap_offset};

use crate::device::context::Context;
use crate::driver::Driver;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;
use crate::kernel::mapping::page::page_size;

/// How often a read is repeated while the kernel writes. It does so for a microsecond, every few seconds.
const TRIES: u32 = 1000;

/// The parameters by which the kernel converts the device's clock into time, in a page that it keeps up to date. Reading them takes no system
/// call.
///
/// ```no_run
/// use uverbs::mlx5::Clock;
/// # fn main() -> uverbs::Result<()> {
/// # let context = uverbs::devices()?.named("mlx5_0")?.open()?;
/// # let mut cq = context.create_cq(4)?;
/// let clock = Clock::of(&context)?;
/// let mut completions = uverbs::Completion::batch::<4>();
/// let count = cq.poll(&mut completions);
/// let times = clock.times()?;
/// for completion in &completions[..count] {
///     println!("{} ns", times.nanoseconds(completion.timestamp));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "mlx5dv_clock_info")]
pub struct Clock {
    page: Mapping,
    context: Context,
}

/// Parameters of a [`Clock`], as the kernel wrote them at one moment. They are good for a conversion until `overflow_period` nanoseconds have
/// passed, so read them again before each batch of conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockTimes {
    /// Nanoseconds at `ticks`: since 1970 if the kernel keeps the clock at the system's time.
    pub start: u64,
    /// The clock at the last update.
    pub ticks: u64,
    /// Fraction of a nanosecond at `ticks`, in units of 2^-`shift` nanoseconds.
    pub fraction: u64,
    /// Nanoseconds of a tick, in units of 2^-`shift` nanoseconds.
    pub multiplier: u32,
    /// See `multiplier`.
    pub shift: u32,
    /// The bits that the clock has.
    pub mask: u64,
}

impl Clock {
    /// Maps the page.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for other drivers, and where the kernel does not keep the device's time.
    ///
    /// # Kernel
    /// `mlx5_ib_mmap_clock_info_page` (main.c, Linux 6.1).
    pub fn of(context: &Context) -> Result<Self> {
        let op = "clock.map";
        let lacks = |what: &'static str| Error::refused(op, Errno::EOPNOTSUPP, what);
        let Driver::Mlx5(state) = context.driver() else {
            return Err(lacks("the device is not of mlx5"));
        };
        if !state.tells_time() {
            return Err(lacks("the kernel does not keep the time of this device"));
        }
        let size = page_size();
        let page = context.map_to_read(op, mmap_offset(MMAP_CLOCK_INFO, 0, size as u64), size)?;
        Ok(Self { page, context: context.clone() })
    }

    /// The parameters now.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) if the kernel writes to the page all the time; [`Disassociated`](crate::ErrorKind::Disassociated) in a
    /// child of `fork`.
    #[doc(alias = "mlx5dv_get_clock_info")]
    pub fn times(&self) -> Result<ClockTimes> {
        let op = "clock.times";
        self.context.check_origin(op)?;
        times(&self.page, TRIES)
            .ok_or_else(|| Error::refused(op, Errno::EBUSY, "the kernel is writing the parameters"))
    }
}

/// The parameters in a page of the layout [`ClockInfo`](uverbs_abi::mlx5::ClockInfo), whose first word is odd while they are written, and other
/// afterwards.
fn times(page: &Mapping, tries: u32) -> Option<ClockTimes> {
    let [_, start, ticks, fraction, scale, mask, _] = page.values::<7>(0)?;
    let value = |value: &AtomicU64| value.load(Acquire);
    for _ in 0..tries {
        let sign = page.load(0, Acquire);
        if sign.is_multiple_of(2) {
            let scale = value(scale).to_ne_bytes();
            let [a, b, c, d, e, f, g, h] = scale;
            let times = ClockTimes {
                start: value(start),
                ticks: value(ticks),
                fraction: value(fraction),
                multiplier: u32::from_ne_bytes([a, b, c, d]),
                shift: u32::from_ne_bytes([e, f, g, h]),
                mask: value(mask),
            };
            fence(Acquire);
            if page.load(0, Acquire) == sign {
                return Some(times);
            }
        }
        std::hint::spin_loop();
    }
    None
}

impl ClockTimes {
    /// The time at `ticks` of the device, in nanoseconds: of a moment at most half of the clock's range before the last update, or after it.
    #[doc(alias = "mlx5dv_ts_to_ns")]
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let scaled = |delta: u64| u128::from(delta) * u128::from(self.multiplier);
        let shift = self.shift.min(127);
        let after = ticks.wrapping_sub(self.ticks) & self.mask;
        if after <= self.mask / 2 {
            self.start.wrapping_add(((scaled(after) + u128::from(self.fraction)) >> shift) as u64)
        } else {
            let before = self.ticks.wrapping_sub(ticks) & self.mask;
            self.start
                .wrapping_sub((scaled(before).saturating_sub(u128::from(self.fraction)) >> shift) as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Release;

    use super::*;

    /// 1 GHz and a half: two thirds of a nanosecond for each tick.
    fn page() -> Mapping {
        let page = Mapping::block(4096).unwrap();
        let words = [0, 1_000_000, 600, 0, u64::from_ne_bytes([0, 0, 0, 1, 24, 0, 0, 0]), 0xffff_ffff, 0];
        for (i, word) in words.iter().enumerate() {
            page.value(i * 8).unwrap().store(*word, Release);
        }
        page
    }

    #[test]
    fn moments_before_and_after_the_update_are_converted() {
        let times = times(&page(), 1).unwrap();
        assert_eq!((times.start, times.ticks, times.mask), (1_000_000, 600, 0xffff_ffff));
        assert_eq!((times.multiplier, times.shift), (u32::from_ne_bytes([0, 0, 0, 1]), 24));
        assert_eq!(times.nanoseconds(600), 1_000_000);
        assert_eq!(times.nanoseconds(700), 1_000_100);
        assert_eq!(times.nanoseconds(500), 999_900);
        assert_eq!(times.nanoseconds(0xffff_ffff), 1_000_000 - 601, "before the clock started again");
    }

    #[test]
    fn a_page_that_is_being_written_is_not_read() {
        let page = page();
        page.store(0, 1, Release);
        assert_eq!(times(&page, 10), None);
        page.store(0, 2, Release);
        assert!(times(&page, 1).is_some());
    }
}
