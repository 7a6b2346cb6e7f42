//! The function of each command.

use super::{Answer, Command, EMPTY, Status, numbers};
use crate::bytes::{Bytes as _, BytesMut as _};
use crate::device::{Device, LAYOUT};
use crate::event::Eq;
use crate::fabric::Gid;
use crate::limits::caps;
use crate::object::{Address, Uar};
use crate::region::remote_key;

impl Device {
    /// Executes a command.
    ///
    /// # Errors
    /// The status with which it ends.
    pub(super) fn carry_out(&mut self, command: &Command) -> Result<Answer, Status> {
        let payload = &command.payload[..];
        let done = |()| EMPTY;
        match command.opcode {
            1 => self.create_qp(payload),
            2 => self.modify_qp(payload).map(done),
            3 => self.query_qp(payload),
            4 => self.destroy_qp(payload.u32(0)).map(done),
            5 => self.create_address(payload),
            6 => self.destroy_address(payload).map(done),
            7 => self.register_region(command).map(|key| {
                let mut answer = EMPTY;
                answer.put_u32(8, key);
                answer.put_u32(12, remote_key(key));
                answer
            }),
            8 => self.regions.remove(payload.u32(0)).map(|_| EMPTY).ok_or(Status::Illegal),
            9 => self.create_cq(payload),
            10 => self.destroy_cq(payload.u16(0)).map(done),
            11 => self.get_feature(payload),
            12 => self.set_feature(command),
            13 => self.get_statistics(payload),
            14 => self
                .pds
                .insert(self.limits.max_pd, ())
                .map(|pd| numbers(&[pd as u16]))
                .ok_or(Status::Exhausted),
            15 => self.free_pd(payload.u16(0)).map(done),
            16 => self
                .uars
                .insert(u32::MAX, Uar::default())
                .map(|uar| numbers(&[uar as u16]))
                .ok_or(Status::Exhausted),
            17 => self.free_uar(payload.u16(0)).map(done),
            18 => self.create_eq(payload),
            19 => self.destroy_eq(payload.u16(0)).map(done),
            25..=29 if !self.limits.has(caps::EVENT_COUNTERS) => Err(Status::Unsupported),
            25 => self.create_counter(payload).map(|number| {
                let mut answer = EMPTY;
                answer.put_u32(8, number);
                answer
            }),
            26 => self.destroy_counter(payload).map(done),
            27 => self.attach_counter(payload).map(done),
            28 => self.modify_counter(payload).map(done),
            29 => self.detach_counter(payload).map(done),
            _ => Err(Status::Opcode),
        }
    }

    fn free_pd(&mut self, pd: u16) -> Result<(), Status> {
        let is_used = self.qps.values().any(|qp| qp.pd == pd)
            || self.regions.values().any(|region| region.pd == pd)
            || self.addresses.values().any(|address| address.pd == pd);
        if is_used {
            return Err(Status::Busy);
        }
        self.pds.remove(pd.into()).ok_or(Status::Illegal)
    }

    fn free_uar(&mut self, uar: u16) -> Result<(), Status> {
        match self.uars.get(uar.into()) {
            Some(page) if page.is_in_use() => Err(Status::Busy),
            _ => self.uars.remove(uar.into()).map(drop).ok_or(Status::Illegal),
        }
    }

    /// Up to 7.2 the driver sends this once for each handle. Several handles may have one address, which then has one number.
    fn create_address(&mut self, payload: &[u8]) -> Result<Answer, Status> {
        let (gid, pd) = (Gid(payload.array(0)), payload.u16(16));
        if !self.pds.has(pd.into()) {
            return Err(Status::Illegal);
        }
        let known = self.address_of(pd, gid);
        if let Some((number, address)) =
            known.and_then(|number| Some((number, self.addresses.get_mut(number.into())?)))
        {
            address.users = address.users.saturating_add(1);
            return Ok(numbers(&[number]));
        }
        let address = Address { pd, gid, users: 1 };
        self.addresses
            .insert(self.limits.max_ah, address)
            .map(|number| numbers(&[number as u16]))
            .ok_or(Status::Exhausted)
    }

    fn destroy_address(&mut self, payload: &[u8]) -> Result<(), Status> {
        let (number, pd) = (payload.u16(0), payload.u16(2));
        let address = self
            .addresses
            .get_mut(number.into())
            .filter(|address| address.pd == pd)
            .ok_or(Status::Illegal)?;
        address.users -= 1;
        if address.users == 0 {
            self.addresses.remove(number.into());
        }
        Ok(())
    }

    fn create_eq(&mut self, payload: &[u8]) -> Result<Answer, Status> {
        let limits = &self.limits;
        let fits = |eq: &Eq| {
            u32::from(payload.u16(0)) <= limits.max_eq_depth && u16::from(eq.vector()) < LAYOUT.vectors
        };
        let eq = Eq::new(payload).filter(fits).ok_or(Status::Illegal)?;
        self.eqs.insert(limits.max_eq, eq).map(|number| numbers(&[number as u16])).ok_or(Status::Exhausted)
    }

    fn destroy_eq(&mut self, eq: u16) -> Result<(), Status> {
        if self.cqs.values().any(|cq| cq.eq == Some(eq)) {
            return Err(Status::Busy);
        }
        self.eqs.remove(eq.into()).map(drop).ok_or(Status::Illegal)
    }
}
