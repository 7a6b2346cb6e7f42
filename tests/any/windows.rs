//! Memory windows: what a peer can access through them, and until when.

use crate::common::*;
use uverbs::abi::types::wc_opcode;
use uverbs::{
    AccessFlags, Bind, Binds, Completion, CompletionQueue, Context, ErrorKind, MemoryRegion, MemoryWindow,
    Operation, ProtectionDomain, QueuePair, Rc, Remote, Status, Uc, UcOperation, WcFlags, WindowType,
};

const TYPES: [WindowType; 2] = [WindowType::One, WindowType::Two];
const READ: AccessFlags = AccessFlags::REMOTE_READ;
const WRITE: AccessFlags = AccessFlags::REMOTE_WRITE;

impl Scene {
    /// Binds the window to the middle of the region.
    fn bound(target: &Target, kind: WindowType, access: AccessFlags) -> Self {
        let mut this = Self::new(target, kind);
        this.bind(1024..2048, access);
        this
    }

    #[track_caller]
    fn bind(&mut self, range: std::ops::Range<usize>, access: AccessFlags) -> Completion {
        let bind = Bind::new(7, &self.region, range).access(access).signaled();
        self.two.qp.bind(&mut self.window, bind).unwrap();
        let done = self.two.completion();
        assert_eq!((done.wr_id, done.status, done.opcode), (7, Status::Success, wc_opcode::BIND_MW));
        done
    }

    fn remote(&self) -> Remote {
        self.window.remote().expect("the window is bound")
    }
}

fn later(remote: Remote, offset: u64) -> Remote {
    Remote { address: remote.address + offset, ..remote }
}

#[test]
fn a_peer_reads_and_writes_what_is_in_the_window() {
    on_every_connecting_device(|target| {
        for kind in TYPES {
            let mut scene = Scene::bound(target, kind, READ | WRITE);
            assert_eq!(scene.window.kind(), kind);
            let remote = scene.remote();
            assert_eq!(remote.address, scene.region.address() + 1024);
            assert_eq!(scene.window.rkey(), Some(remote.rkey));
            scene.one.memory.write(0, b"a window").unwrap();
            assert_eq!(scene.write(later(remote, 1016)), Status::Success);
            let mut bytes = [0; 10];
            scene.region.read(2039, &mut bytes).unwrap();
            assert_eq!(&bytes, b"\0a window\0");
            scene.one.send(2, Operation::Read(later(remote, 1018)), 100..106);
            assert_eq!(scene.one.completion().status, Status::Success);
            assert_eq!(&scene.one.bytes::<6>(100), b"window");
        }
    });
}

#[test]
fn a_right_that_the_window_does_not_give_is_a_remote_access_error() {
    on_every_connecting_device(|target| {
        for kind in TYPES {
            let mut scene = Scene::bound(target, kind, READ);
            let remote = scene.remote();
            assert_eq!(scene.write(remote), Status::RemoteAccess);

            let mut scene = Scene::bound(target, kind, WRITE);
            scene.one.send(1, Operation::Read(scene.remote()), 0..8);
            assert_eq!(scene.one.completion().status, Status::RemoteAccess);

            let mut scene = Scene::bound(target, kind, READ | WRITE);
            let add = Operation::FetchAdd { remote: scene.remote(), add: 1 };
            scene.one.send(1, add, 0..8);
            assert_eq!(scene.one.completion().status, Status::RemoteAccess);
        }
    });
}

#[test]
fn atomic_operations_need_their_own_right() {
    on_every_connecting_device(|target| {
        let mut scene = Scene::bound(target, WindowType::Two, AccessFlags::REMOTE_ATOMIC);
        let add = Operation::FetchAdd { remote: scene.remote(), add: 5 };
        scene.one.send(1, add, 0..8);
        assert_eq!(scene.one.completion().status, Status::Success);
        let mut bytes = [0; 8];
        scene.region.read(1024, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 5);
    });
}

#[test]
fn what_leaves_the_region_is_a_remote_access_error() {
    on_every_connecting_device(|target| {
        for kind in TYPES {
            for address in [-1025_i64, (Scene::LEN - 1024) as i64, i64::MAX] {
                let mut scene = Scene::bound(target, kind, WRITE);
                let remote = scene.remote();
                let outside = Remote { address: remote.address.wrapping_add_signed(address), ..remote };
                assert_eq!(scene.write(outside), Status::RemoteAccess, "{address}");
            }
        }
    });
}

#[test]
fn what_leaves_the_window_is_a_remote_access_error_but_on_rxe() {
    on_every_connecting_device(|target| {
        for kind in TYPES {
            for offset in [-1_i64, 1017] {
                let mut scene = Scene::bound(target, kind, WRITE);
                let remote = scene.remote();
                let outside = Remote { address: remote.address.wrapping_add_signed(offset), ..remote };
                // rxe checks only the bounds of the region (check_rkey, rxe_resp.c).
                let is_rxe = target.device.driver() == "rxe";
                let expected = if is_rxe { Status::Success } else { Status::RemoteAccess };
                assert_eq!(scene.write(outside), expected, "{offset}");
            }
        }
    });
}

#[test]
fn a_zero_based_window_begins_at_zero() {
    on_every_connecting_device(|target| {
        let mut scene = Scene::new(target, WindowType::Two);
        let bind = Bind::new(3, &scene.region, 4096..4200).access(WRITE).zero_based().fenced().signaled();
        scene.two.qp.bind(&mut scene.window, bind).unwrap();
        assert_eq!(scene.two.completion().status, Status::Success);
        let remote = scene.remote();
        assert_eq!(remote.address, 0);
        scene.one.memory.write(0, b"at  four").unwrap();
        assert_eq!(scene.write(later(remote, 4)), Status::Success);
        let mut bytes = [0; 8];
        scene.region.read(4100, &mut bytes).unwrap();
        assert_eq!(&bytes, b"at  four");
    });
}

#[test]
fn the_key_of_a_window_taken_back_opens_nothing_and_the_next_one_does() {
    fn take_back(scene: &mut Scene) {
        match scene.window.kind() {
            WindowType::One => {
                scene.two.qp.unbind(&mut scene.window, 8).unwrap();
                let done = scene.two.completion();
                assert_eq!((done.wr_id, done.status, done.opcode), (8, Status::Success, wc_opcode::BIND_MW));
            }
            WindowType::Two => scene.window.release().unwrap(),
        }
        assert_eq!(scene.window.remote(), None);
    }
    on_every_connecting_device(|target| {
        for kind in TYPES {
            let mut scene = Scene::bound(target, kind, WRITE);
            let first = scene.remote();
            take_back(&mut scene);
            scene.bind(0..64, WRITE);
            let second = scene.remote();
            assert_ne!(first.rkey, second.rkey);
            assert_eq!(scene.write(second), Status::Success);
            assert_eq!(scene.write(Remote { rkey: first.rkey, ..second }), Status::RemoteAccess);

            let mut scene = Scene::bound(target, kind, WRITE);
            let remote = scene.remote();
            take_back(&mut scene);
            assert_eq!(scene.write(remote), Status::RemoteAccess);
        }
    });
}

#[test]
fn a_window_of_type_1_can_be_bound_anew_while_it_is_bound() {
    on_every_connecting_device(|target| {
        let mut scene = Scene::bound(target, WindowType::One, WRITE);
        let first = scene.remote();
        let other = scene.two.pd.register(Scene::LEN, FOR_WINDOWS).unwrap();
        let region = std::mem::replace(&mut scene.region, other);
        scene.bind(0..Scene::LEN, WRITE | READ);
        // The first region may be dropped: only its slot in the queue still holds it.
        drop(region);
        let second = scene.remote();
        assert_eq!(scene.write(later(second, 8184)), Status::Success);
        assert_eq!(scene.write(first), Status::RemoteAccess);
    });
}

#[test]
fn a_peer_can_invalidate_the_key_it_was_given() {
    on_every_connecting_device(|target| {
        let mut scene = Scene::bound(target, WindowType::Two, WRITE);
        let remote = scene.remote();
        scene.two.receive(3, 0..16);
        scene.one.send(1, Operation::SendInvalidate(remote.rkey), 0..4);
        assert_eq!(scene.one.completion().status, Status::Success);
        let done = scene.two.completion();
        assert_eq!((done.wr_id, done.status, done.len), (3, Status::Success, 4));
        assert!(done.flags.contains(WcFlags::WITH_INVALIDATE));
        assert_eq!(done.immediate, remote.rkey);
        // The window has learned that from the poll.
        assert_eq!(scene.window.rkey(), None);
        let other = Completion { immediate: remote.rkey ^ 1, ..done };
        assert!(!scene.window.invalidated(&other));
        assert!(!scene.window.invalidated(&Completion { flags: WcFlags::empty(), ..done }));
        assert!(scene.window.invalidated(&done) && !scene.window.invalidated(&done));
        // It is not bound: the region has no other user, and the window can be bound again.
        scene.bind(0..64, WRITE);
        let second = scene.remote();
        assert_eq!(scene.write(second), Status::Success);
        assert_eq!(scene.write(remote), Status::RemoteAccess);
    });
}

#[test]
fn keys_that_cannot_be_invalidated_break_the_receiver() {
    on_every_connecting_device(|target| {
        // The key of a window of type 1, that of a region, and an unused one.
        for which in 0..3 {
            let mut scene = Scene::bound(target, WindowType::One, WRITE);
            let key = match which {
                0 => scene.remote().rkey,
                1 => scene.two.memory.rkey(),
                _ => 0x12,
            };
            scene.two.receive(3, 0..16);
            scene.one.send(1, Operation::SendInvalidate(key), 0..4);
            let done = scene.two.completion();
            // For mlx5 the key is one that the peer must not use: only the connection enters the error state.
            let status = match target.device.driver() == "mlx5" {
                true => Status::Flushed,
                false => Status::RemoteInvalidRequest,
            };
            assert_eq!((done.wr_id, done.status), (3, status), "{which}");
        }
    });
}

#[test]
fn a_window_of_type_2_is_for_the_queue_pair_that_bound_it() {
    on_every_connecting_device(|target| {
        for kind in TYPES {
            let mut scene = Scene::bound(target, kind, WRITE);
            // Another pair of queue pairs in the same two protection domains.
            let make = |pd: &ProtectionDomain, cq: &CompletionQueue| pd.rc(cq).create().unwrap();
            let (mut a, mut b) = (make(&scene.one.pd, &scene.one.cq), make(&scene.two.pd, &scene.two.cq));
            let options = options(scene.one.pd.context());
            let (to_b, to_a) = (a.endpoint(&options, 3).unwrap(), b.endpoint(&options, 4).unwrap());
            a.connect(&options, &to_b, &to_a).unwrap();
            b.connect(&options, &to_a, &to_b).unwrap();
            std::mem::swap(&mut scene.one.qp, &mut a);
            let remote = scene.remote();
            let expected = if kind == WindowType::One { Status::Success } else { Status::RemoteAccess };
            assert_eq!(scene.write(remote), expected);
            if kind == WindowType::Two {
                let bind = || Bind::new(1, &scene.region, 0..8);
                refuses(b.bind(&mut scene.window, bind()), ErrorKind::Busy, EBUSY, "release");
                scene.window.release().unwrap();
                b.bind(&mut scene.window, bind()).unwrap();
            }
        }
    });
}

#[test]
fn what_cannot_be_bound_is_refused_and_changes_nothing() {
    on_every_connecting_device(|target| {
        let Scene { mut two, region, mut window, .. } = Scene::new(target, WindowType::One);
        let bad = |two: &mut Side<Rc>, window: &mut MemoryWindow, bind: Bind<'_>, hint: &str| {
            let before = window.rkey();
            refuses(two.qp.bind(window, bind), ErrorKind::InvalidInput, EINVAL, hint);
            assert_eq!(window.rkey(), before);
        };
        let bind = |range| Bind::new(1, &region, range);
        bad(&mut two, &mut window, bind(0..Scene::LEN + 1), "given, 0..");
        bad(&mut two, &mut window, bind(9..9), "9..9 given, at least one byte");
        bad(&mut two, &mut window, bind(0..8).zero_based(), "type 1");
        bad(&mut two, &mut window, bind(0..8).access(AccessFlags::LOCAL_WRITE), "remote rights");
        let plain = two.pd.register(64, AccessFlags::LOCAL_WRITE).unwrap();
        bad(&mut two, &mut window, Bind::new(1, &plain, 0..8), "MW_BIND");
        let constant = two.pd.register(64, AccessFlags::MW_BIND).unwrap();
        bad(&mut two, &mut window, Bind::new(1, &constant, 0..8).access(WRITE), "local write");
        let elsewhere = two.pd.context().alloc_pd().unwrap();
        let other = elsewhere.register(64, AccessFlags::MW_BIND).unwrap();
        bad(&mut two, &mut window, Bind::new(1, &other, 0..8), "protection domain");
        let mut stranger = elsewhere.alloc_window(WindowType::Two).unwrap();
        bad(&mut two, &mut stranger, Bind::new(1, &other, 0..8), "protection domain");
        refuses(two.qp.unbind(&mut window, 1), ErrorKind::InvalidInput, EINVAL, "not bound");

        let mut second = two.pd.alloc_window(WindowType::Two).unwrap();
        two.qp.bind(&mut second, bind(0..8)).unwrap();
        let key = second.rkey();
        refuses(two.qp.bind(&mut second, bind(0..8)), ErrorKind::Busy, EBUSY, "release");
        assert_eq!(second.rkey(), key);

        let mut fresh = two.pd.rc(&two.cq).create().unwrap();
        refuses(fresh.bind(&mut window, bind(0..8)), ErrorKind::InvalidInput, EINVAL, "not ready");
        assert_eq!(window.rkey(), None);
        // The queue pair is unchanged.
        two.qp.bind(&mut window, bind(0..8).signaled()).unwrap();
        assert_eq!(two.completion().status, Status::Success);
    });
}

#[test]
fn a_region_cannot_go_before_its_window() {
    on_every_connecting_device(|target| {
        for kind in TYPES {
            let Scene { one, mut two, region, mut window } = Scene::bound(target, kind, WRITE);
            let busy = |result: Result<(), (MemoryRegion, uverbs::Error)>| {
                let (region, error) = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                region
            };
            let region = busy(region.destroy());
            if kind == WindowType::One {
                // The request is flushed, so the window stays bound for the device; and the queue pair's reset releases the slot.
                two.qp.to_error().unwrap();
                two.qp.unbind(&mut window, 9).unwrap();
                assert_eq!(two.completion().status, Status::Flushed);
                drop((one, two));
                if target.device.driver() == "mlx5" {
                    // Its kernel driver does not track what is bound (`mlx5_ib_dereg_mr`, mr.c, Linux 6.1).
                    region.destroy().map_err(|(_, error)| error).unwrap();
                    window.destroy().map_err(|(_, error)| error).unwrap();
                    continue;
                }
                let (region, error) = region.destroy().unwrap_err();
                assert_eq!((error.kind(), error.errno()), (ErrorKind::InvalidInput, Some(EINVAL)));
                assert!(error.hint().unwrap().contains("window"));
                window.destroy().map_err(|(_, error)| error).unwrap();
                region.destroy().map_err(|(_, error)| error).unwrap();
            }
        }
    });
}

#[test]
fn a_queue_pair_cannot_go_before_a_window_of_type_2_that_it_bound() {
    on_every_connecting_device(|target| {
        let Scene { two, window, region, .. } = Scene::bound(target, WindowType::Two, WRITE);
        let (qp, error) = two.qp.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        window.destroy().map_err(|(_, error)| error).unwrap();
        qp.destroy().map_err(|(_, error)| error).unwrap();
        region.destroy().map_err(|(_, error)| error).unwrap();

        // Everything can also be dropped in the worst order.
        let Scene { one, two, window, region } = Scene::bound(target, WindowType::Two, WRITE);
        drop(region);
        drop(two);
        drop(one);
        drop(window);
    });
}

#[test]
fn an_unreliable_queue_pair_binds_windows_but_cannot_invalidate() {
    fn bind_on<T: Binds>(qp: &mut QueuePair<T>, window: &mut MemoryWindow, region: &MemoryRegion) {
        qp.bind(window, Bind::new(5, region, 0..64).access(WRITE).signaled()).unwrap();
    }
    on_every_connecting_device(|target| {
        for kind in TYPES {
            let context = target.open();
            let make = |pd: &ProtectionDomain, cq: &CompletionQueue| pd.uc(cq).create().unwrap();
            let (mut one, mut two) = (Side::<Uc>::new(&context, make), Side::new(&context, make));
            let options = options(&context);
            let (a, b) = (one.qp.endpoint(&options, 1).unwrap(), two.qp.endpoint(&options, 2).unwrap());
            one.qp.connect(&options, &a, &b).unwrap();
            two.qp.connect(&options, &b, &a).unwrap();
            let region = two.pd.register(64, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND).unwrap();
            let mut window = two.pd.alloc_window(kind).unwrap();
            bind_on(&mut two.qp, &mut window, &region);
            assert_eq!(two.completion().status, Status::Success);
            two.receive(1, 0..8);
            one.memory.write(0, b"unreliab").unwrap();
            one.send(1, UcOperation::WriteImmediate(window.remote().unwrap(), 1), 0..8);
            assert_eq!(one.completion().status, Status::Success);
            assert_eq!(two.completion().status, Status::Success);
            let mut bytes = [0; 8];
            region.read(0, &mut bytes).unwrap();
            assert_eq!(&bytes, b"unreliab");
            let unbound = two.qp.unbind(&mut window, 9);
            if kind == WindowType::One {
                unbound.unwrap();
                assert_eq!(two.completion().status, Status::Success);
            } else {
                refuses(unbound, ErrorKind::Unsupported, EOPNOTSUPP, "release it");
                window.destroy().map_err(|(_, error)| error).unwrap();
            }
        }
    });
}

#[test]
fn windows_and_regions_can_be_made_by_the_hundred() {
    on_every_connecting_device(|target| {
        let context: Context = target.open();
        let pd = context.alloc_pd().unwrap();
        let windows: Vec<_> = (0..100).map(|i| pd.alloc_window(TYPES[i % 2]).unwrap()).collect();
        let (pd, error) = pd.destroy().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        drop(windows);
        pd.destroy().map_err(|(_, error)| error).unwrap();
    });
}
