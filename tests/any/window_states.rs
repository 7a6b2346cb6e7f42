//! Memory windows in every order of binds, failures and actions of the peer: what a window learns from completions, and that no order
//! harms the kernel.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use uverbs::{
    AccessFlags, Bind, Completion, ErrorKind, Operation, Rc, Remote, SendRequest, Status, WcFlags, WindowType,
};

const TYPES: [WindowType; 2] = [WindowType::One, WindowType::Two];
const WRITE: AccessFlags = AccessFlags::REMOTE_WRITE;

impl Scene {
    #[track_caller]
    fn begin_bind(&mut self, wr_id: u64) -> Remote {
        let bind = Bind::new(wr_id, &self.region, 0..64).access(WRITE);
        self.two.qp.bind(&mut self.window, bind.signaled()).unwrap();
        self.window.remote().expect("until more is known")
    }

    #[track_caller]
    fn bind_and_wait(&mut self, wr_id: u64) -> Remote {
        let remote = self.begin_bind(wr_id);
        let done = self.two.completion();
        assert_eq!((done.wr_id, done.status), (wr_id, Status::Success));
        remote
    }

    /// The peer invalidates the key; returns the completion on this side.
    #[track_caller]
    fn taken_by_the_peer(&mut self, key: u32) -> Completion {
        self.two.receive(3, 0..16);
        self.one.send(1, Operation::SendInvalidate(key), 0..4);
        assert_eq!(self.one.completion().status, Status::Success);
        self.two.completion()
    }

    fn connect_again(&mut self) {
        self.one.qp.reset().unwrap();
        self.two.qp.reset().unwrap();
        let context = self.two.pd.context().clone();
        connect(&context, &mut self.one.qp, &mut self.two.qp);
    }
}

fn refused(result: uverbs::Result<()>, hint: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.hint().unwrap().contains(hint), "{error}");
}

#[test]
fn a_window_that_the_peer_invalidated_is_not_unbound_again() {
    on_every_connecting_device(|target| {
        let mut scene = Scene::new(target, WindowType::Two);
        for round in 0..3 {
            let remote = scene.bind_and_wait(7);
            // Neither before the completion was polled, when only the kernel knows, nor afterwards.
            scene.two.receive(3, 0..16);
            scene.one.send(1, Operation::SendInvalidate(remote.rkey), 0..4);
            assert_eq!(scene.one.completion().status, Status::Success);
            let Scene { two, window, .. } = &mut scene;
            let error = two.qp.unbind(window, 4).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            if round == 1 {
                window.release().unwrap();
            }
            let done = two.completion();
            assert!(done.wr_id == 3 && done.flags.contains(WcFlags::WITH_INVALIDATE));
            assert_eq!(window.remote(), None);
            assert_eq!(window.invalidated(&done), round != 1, "a window that was released is another one");
            assert!(two.qp.unbind(window, 4).is_err());
        }
    });
}

#[test]
fn an_invalidate_is_learned_from_whoever_polls_it() {
    on_every_connecting_device(|target| {
        let mut scene = Scene::new(target, WindowType::Two);
        let remote = scene.bind_and_wait(1);
        // A completion that was not polled has no effect, even if a program constructs one.
        let forged = Completion {
            status: Status::Success,
            flags: WcFlags::WITH_INVALIDATE,
            immediate: remote.rkey,
            qp_num: scene.two.qp.number(),
            opcode: uverbs::abi::types::wc_opcode::RECV,
            ..Completion::default()
        };
        assert!(!scene.window.invalidated(&forged) && scene.window.remote() == Some(remote));
        let done = std::thread::scope(|threads| {
            let scene = &mut scene;
            threads.spawn(move || scene.taken_by_the_peer(remote.rkey)).join().unwrap()
        });
        assert_eq!(done.immediate, remote.rkey);
        assert_eq!(scene.window.remote(), None);
        // Without informing the window.
        let second = scene.bind_and_wait(2);
        assert_ne!(second.rkey, remote.rkey);
        assert_eq!(scene.write(second), Status::Success);
        // A completion of an earlier bind has no effect.
        assert!(!scene.window.invalidated(&done) && scene.window.remote() == Some(second));
    });
}

#[test]
fn binds_that_were_flushed_leave_nothing_that_is_believed() {
    on_every_connecting_device(|target| {
        for kind in TYPES {
            let mut scene = Scene::new(target, kind);
            // As often as there are values of a key's low byte, and once more.
            for round in 0..257 {
                scene.two.qp.to_error().unwrap();
                let remote = scene.begin_bind(round);
                if kind == WindowType::Two {
                    let bind = Bind::new(500, &scene.region, 0..64);
                    let error = scene.two.qp.bind(&mut scene.window, bind).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                }
                assert_eq!(scene.two.completion().status, Status::Flushed);
                assert_eq!(scene.window.remote(), None);
                let (two, window) = (&mut scene.two, &mut scene.window);
                assert!(two.qp.unbind(window, 4).is_err());
                if round % 64 == 0 {
                    scene.connect_again();
                    assert_eq!(scene.write(remote), Status::RemoteAccess);
                }
            }
            scene.connect_again();
            let remote = scene.bind_and_wait(1);
            assert_eq!(scene.write(remote), Status::Success);
        }
    });
}

#[test]
fn a_reset_leaves_a_bind_unknown_unless_its_success_was_polled() {
    on_every_connecting_device(|target| {
        for (kind, is_polled) in TYPES.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let mut scene = Scene::new(target, kind);
            let remote = if is_polled { scene.bind_and_wait(1) } else { scene.begin_bind(1) };
            scene.connect_again();
            if is_polled {
                assert_eq!(scene.window.remote(), Some(remote));
                assert_eq!(scene.write(remote), Status::Success);
            } else {
                assert_eq!(scene.window.remote(), None);
                let mut late = Completion::batch::<4>();
                while scene.two.cq.poll(&mut late) > 0 {}
                let second = scene.bind_and_wait(2);
                assert_ne!(second.rkey, remote.rkey);
                assert_eq!(scene.write(second), Status::Success);
            }
        }
    });
}

#[test]
fn the_end_of_a_queue_pair_leaves_a_bind_unknown_unless_its_success_was_polled() {
    on_every_connecting_device(|target| {
        for is_polled in [true, false] {
            let mut scene = Scene::new(target, WindowType::One);
            let remote = if is_polled {
                scene.bind_and_wait(1)
            } else {
                scene.two.qp.to_error().unwrap();
                scene.begin_bind(1)
            };
            // Another queue pair of the domain binds it.
            let qp = scene.two.pd.rc(&scene.two.cq).create().unwrap();
            drop(std::mem::replace(&mut scene.two.qp, qp));
            scene.connect_again();
            assert_eq!(scene.window.remote(), is_polled.then_some(remote));
            if is_polled {
                assert_eq!(scene.write(remote), Status::Success);
            }
            while scene.two.cq.poll(&mut Completion::batch::<4>()) > 0 {}
            let second = scene.bind_and_wait(2);
            assert_eq!(scene.write(second), Status::Success);
        }
    });
}

#[test]
fn a_window_is_released_in_every_state() {
    on_every_connecting_device(|target| {
        for kind in TYPES {
            let mut scene = Scene::new(target, kind);
            scene.window.release().unwrap();
            let first = scene.bind_and_wait(1);
            scene.window.release().unwrap();
            assert_eq!(scene.window.remote(), None);
            let second = scene.bind_and_wait(2);
            assert_eq!(scene.write(second), Status::Success);
            assert_eq!(scene.write(first), Status::RemoteAccess);
            // On a queue pair in the error state, after a flush, and after the region was destroyed.
            assert!(scene.two.qp.to_error().is_ok());
            scene.window.release().unwrap();
            scene.begin_bind(3);
            assert_eq!(scene.two.completion().status, Status::Flushed);
            scene.window.release().unwrap();
            let Scene { one, two, region, window } = scene;
            drop((one, two));
            region.destroy().map_err(|(_, error)| error).unwrap();
            window.destroy().map_err(|(_, error)| error).unwrap();
        }
    });
}

fn send(side: &mut Side<Rc>, keys: &[u32]) -> uverbs::Result<()> {
    let segments = [side.memory.segment(0..4).unwrap()];
    let request = |key: &u32| SendRequest::new(1, Operation::SendInvalidate(*key), &segments).signaled();
    side.qp.post_send(&keys.iter().map(request).collect::<Vec<_>>())
}

#[test]
fn a_key_is_invalidated_once() {
    on_every_connecting_device(|target| {
        let mut scene = Scene::new(target, WindowType::Two);
        let before = "has already sent an invalidate for that key";
        let first = scene.bind_and_wait(1);
        if target.device.driver() == "mlx5" {
            // The device checks: the second one moves the connection to the error state, and nothing else happens.
            scene.two.receive(3, 0..16);
            scene.two.receive(4, 0..16);
            send(&mut scene.one, &[first.rkey, first.rkey]).unwrap();
            let statuses = [(); 2].map(|()| scene.one.completion().status);
            return assert_eq!(statuses, [Status::Success, Status::RemoteAccess]);
        }
        refused(send(&mut scene.one, &[first.rkey, first.rkey]), before);
        scene.taken_by_the_peer(first.rkey);
        refused(send(&mut scene.one, &[first.rkey]), "");
        // From another queue pair, from the other side, and from another open device.
        refused(send(&mut scene.two, &[first.rkey]), "");
        if target.soft.is_none() {
            let (mut other, _peer) = rc_pair(target);
            refused(send(&mut other, &[first.rkey]), "");
        }
        // By another GID of the same device.
        let context = scene.two.pd.context().clone();
        let mut by = options(&context);
        let used = by.gid_index;
        let gids = context.gid_table().unwrap();
        if let Some(gid) = gids.iter().find(|gid| gid.index != u32::from(used)) {
            by.gid_index = gid.index as u8;
            let mut other = scene.one.pd.rc(&scene.one.cq).create().unwrap();
            let me = other.endpoint(&by, 1).unwrap();
            other.connect(&by, &me, &me).unwrap();
            let segments = [scene.one.memory.segment(0..4).unwrap()];
            let request = SendRequest::new(1, Operation::SendInvalidate(first.rkey), &segments);
            refused(other.post_send(&[request]), before);
        }
        // Nothing of the batch was posted, and the next bind gives a key that can be invalidated.
        let second = scene.bind_and_wait(2);
        refused(send(&mut scene.one, &[second.rkey, first.rkey]), before);
        let done = scene.taken_by_the_peer(second.rkey);
        assert!(scene.window.invalidated(&done));
        // The key is used again after 256 binds, and can then be sent again.
        for _ in 0..254 {
            let next = scene.bind_and_wait(3);
            scene.taken_by_the_peer(next.rkey);
        }
        let again = scene.bind_and_wait(4);
        assert_eq!(again.rkey, first.rkey);
        scene.taken_by_the_peer(again.rkey);
        refused(send(&mut scene.one, &[again.rkey]), "");
    });
}

#[test]
fn a_key_is_invalidated_once_however_many_others_were_sent() {
    on_every_connecting_device(|target| {
        if target.device.driver() == "mlx5" {
            return skip(target, "the device itself looks whether a key is bound");
        }
        let mut scene = Scene::new(target, WindowType::Two);
        let key = scene.bind_and_wait(1).rkey;
        // Its completion is polled, and the window is not informed.
        scene.taken_by_the_peer(key);
        // The window never had these keys; a flushed invalidate counts as sent.
        scene.one.qp.to_error().unwrap();
        for more in 1..256 {
            let other = key & !0xff | key.wrapping_add(more) & 0xff;
            if send(&mut scene.one, &[other]).is_ok() {
                assert_eq!(scene.one.completion().status, Status::Flushed);
            }
        }
        scene.connect_again();
        refused(send(&mut scene.one, &[key]), "");
        // They do not affect the keys that it gets.
        for wr_id in 2..5 {
            let next = scene.bind_and_wait(wr_id);
            scene.taken_by_the_peer(next.rkey);
        }
    });
}

#[test]
fn a_key_that_a_free_window_here_has_is_not_invalidated() {
    on_every_connecting_device(|target| {
        let mut scene = Scene::new(target, WindowType::Two);
        // The key of the window is also known after a flushed bind.
        scene.two.qp.to_error().unwrap();
        let told = scene.begin_bind(1).rkey;
        assert_eq!(scene.two.completion().status, Status::Flushed);
        scene.connect_again();
        let has = told & !0xff | told.wrapping_sub(1) & 0xff;
        let segments = [scene.one.memory.segment(0..4).unwrap()];
        let request = [SendRequest::new(1, Operation::SendInvalidate(has), &segments)];
        if target.device.driver() == "mlx5" {
            // The device checks.
            scene.two.receive(3, 0..16);
            scene.one.qp.post_send(&request).unwrap();
            return assert_eq!(scene.one.completion().status, Status::RemoteAccess);
        }
        refused(scene.one.qp.post_send(&request), "is not bound");
        // The key of a window of type 1 is left to the device.
        let mut window = scene.two.pd.alloc_window(WindowType::One).unwrap();
        scene.two.qp.bind(&mut window, Bind::new(2, &scene.region, 0..8).signaled()).unwrap();
        scene.two.completion();
        let key = window.rkey().unwrap();
        scene.two.receive(3, 0..16);
        scene.one.send(1, Operation::SendInvalidate(key), 0..4);
        assert_eq!(scene.two.completion().status, Status::RemoteInvalidRequest);
    });
}

/// The environment variables of the process that this one starts: the test, and the device.
const END: &str = "UVERBS_TEST_WINDOW_END";

#[test]
fn a_process_may_end_with_a_bound_window() {
    if let Ok(name) = std::env::var(END) {
        // The window first, so that it is older than the queue pair that binds it.
        let context = uverbs::devices().unwrap().named(&name).unwrap().open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut window = pd.alloc_window(WindowType::Two).unwrap();
        let region = pd.register(64, FOR_WINDOWS).unwrap();
        let mut cq = context.create_cq(4).unwrap();
        let mut qp = pd.rc(&cq).create().unwrap();
        let (options, mut done) = (options(&context), Completion::batch::<1>());
        let me = qp.endpoint(&options, 0).unwrap();
        qp.connect(&options, &me, &me).unwrap();
        qp.bind(&mut window, Bind::new(1, &region, 0..64).access(WRITE).signaled()).unwrap();
        while cq.poll(&mut done) == 0 {}
        assert_eq!(done[0].status, Status::Success);
        std::process::exit(0);
    }
    on_every_connecting_device(|target| {
        if target.soft.is_some() {
            return skip(target, "it ends with the process");
        }
        let start = Instant::now();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "window_states::a_process_may_end_with_a_bound_window"])
            .env(END, target.device.name());
        child.stdout(Stdio::null());
        assert!(child.status().unwrap().success());
        // rxe waits 50 seconds for a queue pair that is still in use.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    });
}
