//! The BAR: the initialisation segment, followed by the pages of doorbells.

use crate::command::{LOG_COMMANDS, LOG_STRIDE};
use crate::device::Device;

/// Firmware 16.35.4506 with command interface 5.
const FIRMWARE: u32 = 35 << 16 | 16;
const COMMAND_INTERFACE: u32 = 5 << 16 | 4506;

// Offsets in the initialisation segment, as `struct mlx5_init_seg` in the kernel's `include/linux/mlx5/device.h`.
const FIRMWARE_REVISION: u64 = 0x00;
const COMMAND_REVISION: u64 = 0x04;
const RING_ADDRESS_HIGH: u64 = 0x10;
const RING_ADDRESS_LOW: u64 = 0x14;
const COMMAND_DOORBELL: u64 = 0x18;
const INITIALIZING: u64 = 0x1fc;
const TIMER_HIGH: u64 = 0x1000;
const TIMER_LOW: u64 = 0x1004;
const HEALTH_COUNTER: u64 = 0x1010;

/// The first doorbell page. The numbers of pages are those of UARs.
const FIRST_UAR: u64 = 0x10_000;
const PAGE: u64 = 0x1000;
/// Offsets in a doorbell page.
const ARM_CQ: u64 = 0x20;
const ARM_EQ: u64 = 0x40;
const FIRST_SEND: u64 = 0x800;
/// Distance between send doorbells. The bytes between belong to a work request that is written together with its doorbell.
const SEND_STEP: u64 = 0x100;

impl Device {
    /// Reads registers, which are big-endian words.
    pub(crate) fn read_registers(&mut self, offset: u64, data: &mut [u8]) {
        for (i, byte) in data.iter_mut().enumerate() {
            let at = offset.wrapping_add(i as u64);
            // A counter that changes between partial reads would be read incorrectly; drivers read whole words.
            let word = self.register(at & !3);
            *byte = word.to_be_bytes()[(at & 3) as usize];
        }
        if offset & !3 == HEALTH_COUNTER {
            self.health = self.health.wrapping_add(1) & 0xff_ffff;
        }
    }

    fn register(&self, offset: u64) -> u32 {
        let timer = || self.started.elapsed().as_nanos() as u64;
        match offset {
            FIRMWARE_REVISION => FIRMWARE,
            COMMAND_REVISION => COMMAND_INTERFACE,
            RING_ADDRESS_HIGH => (self.commands.address >> 32) as u32,
            RING_ADDRESS_LOW => self.commands.address as u32 & !0xfff | LOG_COMMANDS << 4 | LOG_STRIDE,
            INITIALIZING => 0,
            TIMER_HIGH => (timer() >> 32) as u32,
            TIMER_LOW => timer() as u32,
            HEALTH_COUNTER => self.health,
            _ => 0,
        }
    }

    /// Writes registers and rings doorbells. Returns the bits of commands that are to be executed.
    pub(crate) fn write_registers(&mut self, offset: u64, data: &[u8]) -> Option<u32> {
        let (words, _) = data.as_chunks::<4>();
        let mut rung = None;
        for (i, word) in words.iter().enumerate() {
            let at = offset.wrapping_add(i as u64 * 4);
            let word = u32::from_be_bytes(*word);
            match at {
                RING_ADDRESS_HIGH => {
                    self.commands.address = self.commands.address & 0xffff_ffff | u64::from(word) << 32;
                }
                RING_ADDRESS_LOW => {
                    self.commands.address = self.commands.address & !0xffff_ffff | u64::from(word & !0xfff);
                }
                COMMAND_DOORBELL => rung = Some(word),
                FIRST_UAR.. => self.doorbell(at, word),
                _ => {}
            }
        }
        rung
    }

    fn ring_send(&mut self, number: u32) {
        if self.transport.qps.contains_key(&number) {
            self.ring_qp(number);
        } else {
            self.send_all(number);
        }
    }

    /// One word of a doorbell: doorbells of two words arrive as one write of eight bytes, or as two of four.
    fn doorbell(&mut self, at: u64, word: u32) {
        let before =
            self.half_doorbell.take().filter(|(first, _)| first.wrapping_add(4) == at).map(|(_, word)| word);
        match at % PAGE {
            ARM_CQ => self.half_doorbell = Some((at, word)),
            inside if inside == ARM_CQ + 4 => {
                if let Some(first) = before {
                    self.arm(word & 0xff_ffff, first);
                }
            }
            // Consumed events, with and without arming. Every event makes an interrupt, so there is nothing to store.
            ARM_EQ => {}
            inside if inside >= FIRST_SEND && inside % SEND_STEP == 0 => {
                self.half_doorbell = Some((at, word))
            }
            inside if inside >= FIRST_SEND && inside % SEND_STEP == 4 && before.is_some() => {
                self.ring_send(word >> 8);
            }
            _ => {}
        }
    }
}
