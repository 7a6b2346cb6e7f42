//! Connections by the connection manager: a child is refused everything, and its parent goes on.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use uverbs::cm::{Closed, Connection, Manager, SoftNetwork};
use uverbs::{QueuePair, Rc};

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// A manager and an address of the device; none where the lane names no address.
fn manager(target: &Target) -> Option<(Manager, IpAddr)> {
    if let Some(device) = &target.soft {
        let (network, address) = (SoftNetwork::default(), "10.0.0.1".parse().unwrap());
        network.join(device, address).unwrap();
        return Some((network.manager().unwrap(), address));
    }
    let address = std::env::var("UVERBS_TEST_ADDRESS").ok()?;
    Some((Manager::open().unwrap(), address.parse().unwrap()))
}

fn pair(
    cm: &Manager,
    address: SocketAddr,
    new: impl Fn() -> QueuePair<Rc> + Sync,
) -> (Connection, Connection) {
    let listener = cm.listen(address).unwrap();
    let address = listener.address().unwrap();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let target = cm.resolve(address).run().within(LONG).unwrap();
            target.connect(new()).unwrap().establish().within(LONG).unwrap()
        });
        let incoming = listener.next().within(LONG).unwrap();
        let server = incoming.accept(new()).unwrap().establish().within(LONG).unwrap();
        (client.join().unwrap(), server)
    })
}

pub(crate) fn everything() {
    on_every_connecting_device(|target| {
        let Some((cm, ip)) = manager(target) else {
            return skipped("the kernel's connection manager: UVERBS_TEST_ADDRESS names no address");
        };
        let context = target.open();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).unwrap());
        let new = || pd.rc(&cq).create().unwrap();
        let any = SocketAddr::new(ip, 0);
        let (mut client, server) = pair(&cm, any, new);
        let listener = cm.listen(any).unwrap();
        let address = listener.address().unwrap();
        let found = cm.resolve(address).run().within(LONG).unwrap();
        let waiting = found.connect(new()).unwrap();
        let other = cm.clone();

        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                gone(cm.listen(any));
                gone(cm.device_of(ip));
                gone(cm.resolve(address).run().within(LONG));
                gone(listener.next().within(LONG));
                gone(listener.address());
                gone(client.closed().within(LONG));
                gone(client.disconnect().within(LONG));
                gone(server.addresses());
                gone(waiting.establish().within(LONG).map_err(uverbs::Error::from));
                // What it drops is its parent's.
                drop((client, server, listener, cm, other));
            });
        }
        drop(waiting);
        std::thread::scope(|scope| {
            let leaves = scope.spawn(|| client.disconnect().within(LONG).unwrap());
            assert_eq!(server.closed().within(LONG).unwrap(), Closed::Disconnected);
            assert_eq!(leaves.join().unwrap(), Closed::Disconnected);
        });
        drop((client, server));
        drop(pair(&cm, any, new));
        assert_eq!(listener.next().within(Duration::ZERO).unwrap_err().kind(), ErrorKind::TimedOut);
        drop((listener, other));
    });
}
