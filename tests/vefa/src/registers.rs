//! The registers: how the driver reads them, resets the device and sets the addresses of its queues.
//!
//! Offsets are those of the kernel's `drivers/infiniband/hw/efa/efa_regs_defs.h`. The driver does not read a register directly: it writes
//! the offset, and the device writes the value to the driver's memory (`efa_com_reg_read32` in `efa_com.c`, 6.1 to 7.3).

use vpci::Fault;

use crate::bytes::BytesMut;
use crate::device::Device;

pub(crate) const VERSION: u64 = 0x00;
pub(crate) const CONTROLLER_VERSION: u64 = 0x04;
pub(crate) const CAPS: u64 = 0x08;
pub(crate) const ADMIN_BASE: u64 = 0x10;
pub(crate) const ADMIN_CAPS: u64 = 0x18;
pub(crate) const ADMIN_COMPLETION_BASE: u64 = 0x20;
pub(crate) const ADMIN_COMPLETION_CAPS: u64 = 0x28;
pub(crate) const ADMIN_DOORBELL: u64 = 0x2c;
pub(crate) const AENQ_CAPS: u64 = 0x34;
pub(crate) const AENQ_BASE: u64 = 0x38;
pub(crate) const AENQ_CONSUMER: u64 = 0x40;
pub(crate) const INTERRUPT_MASK: u64 = 0x4c;
pub(crate) const CONTROL: u64 = 0x54;
pub(crate) const STATUS: u64 = 0x58;
pub(crate) const READ_REQUEST: u64 = 0x5c;
pub(crate) const ANSWER_BASE: u64 = 0x60;
pub(crate) const EQ_DOORBELL: u64 = 0x68;

/// The device's status.
pub(crate) const READY: u32 = 1 << 0;
pub(crate) const RESETTING: u32 = 1 << 3;

/// A contiguous queue, a second for a reset, 48 bits of addresses. The time for an admin command is the driver's default, 30 s: the
/// maximum value here, 1.5 s, is too short for a guest in emulation, and after a timeout the driver never uses the queue again.
const CAPABILITIES: u32 = 1 | 10 << 1 | 48 << 8;

/// The values that the driver has written.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    answer: u64,
    pub(crate) admin_base: u64,
    pub(crate) admin_caps: u32,
    pub(crate) completion_base: u64,
    pub(crate) completion_caps: u32,
    pub(crate) aenq_base: u64,
    pub(crate) aenq_caps: u32,
    pub(crate) is_masked: bool,
    control: u32,
    is_resetting: bool,
}

impl Registers {
    /// The reason of the driver's last reset.
    pub(crate) fn reset_reason(&self) -> u32 {
        self.control >> 28
    }
}

/// Sets one half of an address.
fn set_half(address: &mut u64, is_high: bool, value: u32) {
    let shift = if is_high { 32 } else { 0 };
    *address = *address & !(0xffff_ffff << shift) | u64::from(value) << shift;
}

impl Device {
    pub(crate) fn register(&self, offset: u64) -> u32 {
        let registers = &self.registers;
        match offset {
            VERSION => u32::from(self.api.major) << 8 | u32::from(self.api.minor),
            CONTROLLER_VERSION => 1, // 0.0.1
            CAPS => CAPABILITIES,
            ADMIN_CAPS => registers.admin_caps,
            ADMIN_COMPLETION_CAPS => registers.completion_caps,
            AENQ_CAPS => registers.aenq_caps,
            INTERRUPT_MASK => registers.is_masked.into(),
            CONTROL => registers.control,
            STATUS => READY | if registers.is_resetting { RESETTING } else { 0 },
            _ => 0,
        }
    }

    pub(crate) fn write_register(&mut self, offset: u64, value: u32) {
        let registers = &mut self.registers;
        match offset {
            0x10 | 0x14 => set_half(&mut registers.admin_base, offset != ADMIN_BASE, value),
            0x20 | 0x24 => set_half(&mut registers.completion_base, offset != ADMIN_COMPLETION_BASE, value),
            0x38 | 0x3c => set_half(&mut registers.aenq_base, offset != AENQ_BASE, value),
            0x60 | 0x64 => set_half(&mut registers.answer, offset != ANSWER_BASE, value),
            ADMIN_CAPS => {
                registers.admin_caps = value;
                self.admin.begin();
            }
            ADMIN_COMPLETION_CAPS => registers.completion_caps = value,
            AENQ_CAPS => {
                registers.aenq_caps = value;
                self.aenq.begin();
            }
            ADMIN_DOORBELL => self.ring_admin(value),
            AENQ_CONSUMER => self.aenq.consumer = value as u16,
            INTERRUPT_MASK => registers.is_masked = value & 1 == 1,
            CONTROL => self.write_control(value),
            READ_REQUEST => {
                let result = self.answer_read(value as u16, (value >> 16) as u16);
                self.note_fault(result);
            }
            EQ_DOORBELL => self.arm_eq(value as u16, value >> 31 == 1),
            _ => {}
        }
    }

    fn write_control(&mut self, value: u32) {
        self.registers.control = value;
        if value & 1 == 1 {
            // The address for answers is reset too; the driver sets it again (efa_com_dev_reset).
            self.drop_objects();
            self.registers = Registers { control: value, is_resetting: true, ..Registers::default() };
            self.statistics.resets += 1;
        } else {
            self.registers.is_resetting = false;
        }
    }

    /// Writes a register's value to the driver's memory. The number of the request is written last.
    fn answer_read(&mut self, request: u16, offset: u16) -> Result<(), Fault> {
        let mut answer = [0; 8];
        answer.put_u16(0, request);
        answer.put_u16(2, offset);
        answer.put_u32(4, self.register(offset.into()));
        self.memory.publish_word(self.registers.answer, &answer, 0)
    }
}
