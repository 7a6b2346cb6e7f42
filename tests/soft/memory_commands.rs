//! The commands for memory regions and windows, attribute by attribute, compared with uverbs_std_types_mr.c and ib_user_verbs.h (Linux
//! 6.1).

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};

use crate::common::*;
use memmap2::MmapMut;
use nix::errno::Errno;
use uverbs::Mapping;
use uverbs::abi::ids::device::invoke_write::{CORE_IN, WRITE_CMD};
use uverbs::abi::write::{AllocMw, RegMr, ReregMr, cmd};
use uverbs::command::Command;
use uverbs::soft::Profile;
use uverbs::transport::Watcher;
use uverbs::{AccessFlags, ProtectionDomain, WindowType};
use zerocopy::FromBytes;

/// Object, method, and the attributes: id, length, and inline or borrowed bytes; no bytes for an output.
#[derive(Clone, Debug)]
struct Sent {
    method: (u16, u16),
    attrs: Vec<(u16, u16, Option<Vec<u8>>)>,
}

#[derive(Debug)]
struct Recorder(Arc<Mutex<Vec<Sent>>>);

impl Watcher for Recorder {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        let method = (command.header().object_id, command.header().method_id);
        let bytes = |index, attr: &uverbs::abi::ioctl::Attr| match command.output_bytes(index) {
            Some(_) => None,
            None if attr.len == 0 => Some(attr.data.to_ne_bytes().to_vec()),
            None => command.input_bytes(index).map(<[u8]>::to_vec),
        };
        let attrs = command.attrs().enumerate();
        let attrs = attrs.map(|(index, attr)| (attr.attr_id, attr.len, bytes(index, attr))).collect();
        self.0.lock().unwrap().push(Sent { method, attrs });
        Ok(())
    }
}

struct World {
    pd: ProtectionDomain,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl World {
    fn new() -> Self {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let target = Target::soft(Profile::default());
        let pd = target.device.open_with(Recorder(sent.clone())).unwrap().alloc_pd().unwrap();
        Self { pd, sent }
    }

    fn last(&self) -> Sent {
        self.sent.lock().unwrap().last().unwrap().clone()
    }

    /// The request of the last command, which was this write command.
    fn request<T: FromBytes>(&self, number: u32) -> T {
        let sent = self.last();
        assert_eq!(sent.method, (0, 0));
        let of = |id| sent.attrs.iter().find(|attr| attr.0 == id).unwrap().2.clone().unwrap();
        assert_eq!(of(WRITE_CMD), u64::from(number).to_ne_bytes());
        T::read_from_bytes(&of(CORE_IN)).unwrap()
    }
}

#[test]
fn a_region_is_registered_by_its_range_and_its_address_for_the_device() {
    let world = World::new();
    let memory = Mapping::from(MmapMut::map_anon(8192).unwrap());
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::RELAXED_ORDERING;
    let region =
        world.pd.memory(&memory).range(4100..5000).iova((7 << 32) + 4).access(access).register().unwrap();
    let request: RegMr = world.request(cmd::REG_MR);
    assert_eq!((request.start % 4096, request.length, request.hca_va), (4, 900, (7 << 32) + 4));
    assert_eq!((request.access_flags, request.response), (0x10_0001, 0));
    drop(region);
    let mut region = world.pd.memory(&memory).register().unwrap();
    let request: RegMr = world.request(cmd::REG_MR);
    assert_eq!((request.start, request.length, request.hca_va), (region.address(), 8192, region.address()));
    let domain = request.pd_handle;

    region.change_access(access).unwrap();
    let sent: ReregMr = world.request(cmd::REREG_MR);
    assert_eq!(
        (sent.flags, sent.access_flags, sent.start, sent.length, sent.pd_handle),
        (4, 0x10_0001, 0, 0, 0)
    );
    let other = world.pd.context().alloc_pd().unwrap();
    region.change_domain(&other).unwrap();
    let sent: ReregMr = world.request(cmd::REREG_MR);
    assert_eq!((sent.flags, sent.access_flags, sent.start, sent.length), (2, 0, 0, 0));
    assert_ne!(sent.pd_handle, domain);
    region.change_memory(&memory, 8..16, Some(8)).unwrap_err();
    let sent: ReregMr = world.request(cmd::REREG_MR);
    assert_eq!((sent.flags, sent.access_flags, sent.pd_handle), (1, 0, 0));
    assert_eq!((sent.start, sent.length, sent.hca_va), (request.start + 8, 8, 8));
}

#[test]
fn a_window_is_made_with_its_type() {
    let world = World::new();
    for (kind, number) in [(WindowType::One, 1), (WindowType::Two, 2)] {
        let window = world.pd.alloc_window(kind).unwrap();
        let request: AllocMw = world.request(cmd::ALLOC_MW);
        assert_eq!((request.mw_type, request.reserved, request.response), (number, [0; 3], 0));
        window.destroy().map_err(|(_, error)| error).unwrap();
        // UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, UVERBS_ATTR_DESTROY_MW_HANDLE
        let sent = world.last();
        assert_eq!((sent.method, sent.attrs.len(), sent.attrs[0].0, sent.attrs[0].1), ((8, 0), 1, 0, 0));
    }
}

#[test]
fn a_dma_buf_is_named_by_its_file() {
    let world = World::new();
    let file = File::open("/dev/null").unwrap();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    world.pd.register_dmabuf(file.as_fd(), 8200..12_300, (1 << 40) + 8, access).unwrap_err();
    // UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR
    let sent = world.last();
    assert_eq!(sent.method, (7, 4));
    let number = |value: u64| Some(value.to_ne_bytes().to_vec());
    let word = |value: u32| Some(value.to_ne_bytes().to_vec());
    let attrs: Vec<_> = sent.attrs.iter().map(|(id, len, bytes)| (*id, *len, bytes.clone())).collect();
    assert_eq!(attrs[2..5], [(2, 8, number(8200)), (3, 8, number(4100)), (4, 8, number((1 << 40) + 8))]);
    assert_eq!(attrs[5..7], [(5, 4, word(file.as_raw_fd() as u32)), (6, 4, word(5))]);
    assert_eq!(attrs[7..], [(7, 4, None), (8, 4, None)]);
    assert_eq!([attrs[0].0, attrs[1].0, attrs[0].1, attrs[1].1], [0, 1, 0, 0]);
}
