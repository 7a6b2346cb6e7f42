//! The commands of a device file, and the objects that they create.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use uverbs_abi::ids::{ah, async_event, cq, device, mr, pd, qp, srq};
use uverbs_abi::mlx5::ids::uar;
use uverbs_abi::types::{driver_id, mtu, port_state};
use uverbs_abi::write::{
    AllocPdResp, CreateAhResp, CreateCompChannelResp, ExQueryDeviceResp, GidEntry, PostSend, PostSendResp,
    QpCap, QueryDeviceResp, QueryPortResp, QueryPortRespEx, RegMrResp, cmd,
};
use zerocopy::FromZeros;

use crate::command::Call;
use crate::interposed::silent_file;
use crate::memory::read;
use crate::tree::kind;
use crate::{efa, mlx5, rxe, siw, tree};

/// The GID of the port, which it has twice, and its LID.
const GIDS: u32 = 2;
const GID: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1];

/// What the kinds of devices differ in: their drivers' parts of commands, and their queues.
pub(crate) trait Card: Send {
    /// Answers the driver's part of a new context.
    fn open(&mut self, call: &Call) -> Result<(), Errno>;

    /// Creates a page of registers.
    fn page(&mut self, _: &Call, _: u32) -> Result<(), Errno> {
        refuse("a page of registers", Errno::EPROTONOSUPPORT)
    }

    /// Creates a completion queue, and returns the number of entries that the program can use.
    fn create_queue(&mut self, call: &Call, handle: u32) -> Result<u32, Errno>;

    fn create_shared(&mut self, _: &Call, _: u32) -> Result<(), Errno> {
        refuse("a shared receive queue", Errno::EOPNOTSUPP)
    }

    /// Creates a queue pair. `cap` is what the program asked for, and gets.
    fn create_pair(&mut self, call: &Call, handle: u32, cap: &mut QpCap) -> Result<(), Errno>;

    fn destroy_pair(&mut self, handle: u32);

    /// Answers the driver's part of a query of the device, or of a new address handle or protection domain.
    fn query(&mut self, _: &Call) {}

    fn address(&mut self, _: &Call, _: u32) {
        crate::fail("an address handle, which this device does not have");
    }

    fn domain(&mut self, call: &Call, handle: u32) {
        call.driver_output(&handle);
    }

    /// The same for a new region, whose keys would be `key`. Returns its keys.
    fn region(&mut self, _: &Call, key: u32) -> u32 {
        key
    }

    /// The program has mapped memory of the device.
    fn mapped(&mut self, _offset: u64, _address: u64) {}

    /// The program has rung the doorbell of a queue pair by a command.
    fn ring(&mut self, _handle: u32) {}

    /// Executes everything that was posted.
    fn play(&mut self);
}

/// A device, from its first command.
struct Device {
    /// The last handle that was given to an object.
    handles: u32,
    card: Box<dyn Card>,
}

static DEVICE: LazyLock<Mutex<Device>> = LazyLock::new(|| {
    let card: Box<dyn Card> = match kind().driver_id {
        driver_id::RXE => Box::new(rxe::Soft::default()),
        driver_id::SIW => Box::new(siw::Warp::default()),
        driver_id::EFA => Box::new(efa::Adapter::default()),
        _ => Box::new(mlx5::ConnectX::default()),
    };
    Mutex::new(Device { handles: 0, card })
});

fn device() -> MutexGuard<'static, Device> {
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers a command.
pub(crate) fn invoke(call: &Call) -> Result<(), Errno> {
    if call.header.driver_id != kind().driver_id {
        return Err(Errno::EINVAL);
    }
    device().answer(call)
}

/// Answers a command of the older form, whose header and request are at `address`.
pub(crate) fn write(address: u64) {
    if read::<u32>(address) != cmd::POST_SEND {
        crate::fail("a command of the older form that is not a doorbell");
    }
    device().card.ring(read::<PostSend>(address + 8).qp_handle);
}

/// Memory of the device is at `address` now.
pub(crate) fn mapped(offset: u64, address: u64) {
    device().card.mapped(offset, address);
}

/// The device executes everything that was posted.
pub(crate) fn play() {
    device().card.play();
}

impl Device {
    fn answer(&mut self, call: &Call) -> Result<(), Errno> {
        if let Some(number) = call.write_command() {
            return self.answer_write(call, number);
        }
        let header = call.header;
        match (header.object_id, header.method_id) {
            (device::OBJECT, device::method::GET_CONTEXT) => {
                call.output(device::get_context::NUM_COMP_VECTORS, &1_u32);
                call.output(device::get_context::CORE_SUPPORT, &0_u64);
                self.card.open(call)
            }
            (device::OBJECT, device::method::QUERY_PORT) => {
                let port = QueryPortRespEx { legacy_resp: port(), ..QueryPortRespEx::new_zeroed() };
                call.output(device::query_port::RESP, &port);
                Ok(())
            }
            (device::OBJECT, device::method::QUERY_GID_ENTRY) => {
                let index = call.value(device::query_gid_entry::GID_INDEX).unwrap_or_default() as u32;
                if index >= GIDS {
                    return Err(Errno::ENODATA);
                }
                call.output(device::query_gid_entry::RESP_ENTRY, &gid(index));
                Ok(())
            }
            (device::OBJECT, device::method::QUERY_GID_TABLE) => {
                call.output(device::query_gid_table::RESP_ENTRIES, &[gid(0), gid(1)]);
                call.output(device::query_gid_table::RESP_NUM_ENTRIES, &u64::from(GIDS));
                Ok(())
            }
            (async_event::OBJECT, async_event::method::ALLOC) => {
                call.handle(async_event::alloc::FD_HANDLE, silent_file()?);
                Ok(())
            }
            (uar::OBJECT, uar::method::ALLOC) => {
                let handle = self.handle();
                self.card.page(call, handle)
            }
            (cq::OBJECT, cq::method::CREATE) => {
                let handle = self.handle();
                let entries = self.card.create_queue(call, handle)?;
                call.handle(cq::create::HANDLE, handle.into());
                call.output(cq::create::RESP_CQE, &entries);
                Ok(())
            }
            (srq::OBJECT, srq::method::CREATE) => {
                let handle = self.handle();
                self.card.create_shared(call, handle)?;
                call.handle(srq::create::HANDLE, handle.into());
                for [wanted, real] in [
                    [srq::create::MAX_WR, srq::create::RESP_MAX_WR],
                    [srq::create::MAX_SGE, srq::create::RESP_MAX_SGE],
                ] {
                    call.output(real, &(call.value(wanted).unwrap_or_default() as u32));
                }
                call.output(srq::create::RESP_SRQ_NUM, &handle);
                Ok(())
            }
            (qp::OBJECT, qp::method::CREATE) => {
                let handle = self.handle();
                let mut cap: QpCap = call.input(qp::create::CAP)?;
                self.card.create_pair(call, handle, &mut cap)?;
                call.handle(qp::create::HANDLE, handle.into());
                call.output(qp::create::RESP_CAP, &cap);
                call.output(qp::create::RESP_QP_NUM, &handle);
                Ok(())
            }
            (qp::OBJECT, qp::method::DESTROY) => {
                self.card.destroy_pair(call.value(qp::destroy::HANDLE).unwrap_or_default() as u32);
                // libibverbs waits until it has been told of so many events.
                call.output(qp::destroy::RESP, &0_u32);
                Ok(())
            }
            // The rest stays until the program ends.
            (cq::OBJECT, cq::method::DESTROY)
            | (srq::OBJECT, srq::method::DESTROY)
            | (pd::OBJECT, pd::method::DESTROY)
            | (ah::OBJECT, ah::method::DESTROY)
            | (mr::OBJECT, mr::method::DESTROY)
            | (uar::OBJECT, uar::method::DESTROY) => Ok(()),
            _ => refuse(&format!("{header:?}"), Errno::EPROTONOSUPPORT),
        }
    }

    fn answer_write(&mut self, call: &Call, number: u32) -> Result<(), Errno> {
        const OUT: u16 = device::invoke_write::CORE_OUT;
        let handle = self.handle();
        match number {
            cmd::QUERY_DEVICE => call.output(OUT, &limits()),
            cmd::EX_QUERY_DEVICE => {
                let response_length = size_of::<ExQueryDeviceResp>() as u32;
                let limits =
                    ExQueryDeviceResp { base: limits(), response_length, ..ExQueryDeviceResp::new_zeroed() };
                call.output(OUT, &limits);
                self.card.query(call);
            }
            cmd::QUERY_PORT => call.output(OUT, &port()),
            cmd::ALLOC_PD => {
                call.output(OUT, &AllocPdResp { pd_handle: handle });
                self.card.domain(call, handle);
            }
            cmd::REG_MR => {
                let key = self.card.region(call, handle << 8);
                call.output(OUT, &RegMrResp { mr_handle: handle, lkey: key, rkey: key });
            }
            cmd::CREATE_AH => {
                call.output(OUT, &CreateAhResp { ah_handle: handle });
                self.card.address(call, handle);
            }
            cmd::CREATE_COMP_CHANNEL => {
                call.output(OUT, &CreateCompChannelResp { fd: silent_file()? as u32 })
            }
            cmd::POST_SEND => {
                self.card.ring(call.input::<PostSend>(device::invoke_write::CORE_IN)?.qp_handle);
                call.output(OUT, &PostSendResp { bad_wr: 0 });
            }
            cmd::MODIFY_QP | cmd::EX_MODIFY_QP | cmd::DEALLOC_PD | cmd::DEREG_MR | cmd::DESTROY_AH => {}
            _ => return refuse(&format!("command {number:#x}"), Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    /// A handle, which is also the object's number.
    fn handle(&mut self) -> u32 {
        self.handles += 1;
        self.handles
    }
}

/// Refuses what is not played. `PLAYED_TRACE` shows it.
pub(crate) fn refuse<T>(what: &str, errno: Errno) -> Result<T, Errno> {
    if std::env::var_os("PLAYED_TRACE").is_some() {
        eprintln!("played: {errno}: {what}");
    }
    Err(errno)
}

fn limits() -> QueryDeviceResp {
    QueryDeviceResp {
        node_guid: tree::GUID.into(),
        sys_image_guid: tree::GUID.into(),
        max_mr_size: u64::MAX,
        page_size_cap: !0xfff,
        vendor_id: 0x02c9,
        vendor_part_id: 0x1017,
        max_qp: 1 << 17,
        max_qp_wr: 1 << 15,
        max_sge: 30,
        max_sge_rd: 30,
        max_cq: 1 << 16,
        max_cqe: 1 << 22,
        max_mr: 1 << 20,
        max_pd: 1 << 20,
        max_qp_rd_atom: 16,
        max_qp_init_rd_atom: 16,
        max_ah: 1 << 20,
        max_srq: 1 << 16,
        max_srq_wr: 1 << 14,
        max_srq_sge: 31,
        max_pkeys: 1,
        phys_port_cnt: 1,
        ..QueryDeviceResp::new_zeroed()
    }
}

fn port() -> QueryPortResp {
    QueryPortResp {
        max_msg_sz: 1 << 30,
        gid_tbl_len: GIDS,
        pkey_tbl_len: 1,
        lid: kind().lid,
        sm_lid: kind().lid,
        state: port_state::ACTIVE,
        max_mtu: mtu::MTU_4096,
        active_mtu: mtu::MTU_4096,
        max_vl_num: 1,
        active_width: 2,
        active_speed: 32,
        phys_state: 5,
        link_layer: kind().link_layer,
        ..QueryPortResp::new_zeroed()
    }
}

fn gid(gid_index: u32) -> GidEntry {
    GidEntry { gid: GID, gid_index, port_num: 1, ..GidEntry::new_zeroed() }
}
