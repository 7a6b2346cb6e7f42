//! Datagrams by the connection manager: refused in a child, whose drops leave the parent's look-ups and memberships as they are.

use std::net::SocketAddr;
use std::time::Duration;

use uverbs::cm::SoftNetwork;
use uverbs::{SoftDevice, Status, Ud};

use super::*;

const LONG: Duration = Duration::from_secs(20);

pub(crate) fn datagrams() {
    let (network, device) = (SoftNetwork::default(), SoftDevice::default());
    network.join(&device, "10.0.0.1".parse().unwrap()).unwrap();
    let manager = network.manager().unwrap();
    let (datagrams, context) = (manager.datagrams(), device.open().unwrap());
    let side = || Side::<Ud>::new(&context, |pd, cq| pd.ud(cq).create().unwrap());
    let (mut one, mut two) = (side(), side());
    let listener = datagrams.listen("10.0.0.1:7174".parse().unwrap()).unwrap();
    let address = SocketAddr::from(([10, 0, 0, 1], 7174));
    let find = || datagrams.resolve(address).run().within(LONG).unwrap();
    let found = || datagrams.group("239.1.2.3".parse().unwrap()).run().within(LONG).unwrap();
    let group = found();
    let member = found().join(&mut two.qp).unwrap().run().within(LONG).unwrap();
    let join = found().join(&mut one.qp).unwrap().only_send();
    let (target, look_up) = (find(), find().look_up(&mut one.qp).unwrap());
    let asks = find().look_up(&mut one.qp).unwrap().run();
    let unanswered = asks.within(Duration::from_millis(10)).unwrap_err();
    assert_eq!(unanswered.kind(), ErrorKind::TimedOut);
    let incoming = listener.next().within(LONG).unwrap();

    if let Some(child) = split() {
        wait_for(child);
    } else {
        in_the_child(|| {
            gone(datagrams.resolve(address).run().within(LONG));
            gone(datagrams.group("239.1.2.3".parse().unwrap()).run().within(LONG));
            gone(datagrams.listen("10.0.0.1:7175".parse().unwrap()));
            gone(listener.next().within(LONG));
            gone(listener.address());
            gone(target.device());
            gone(target.look_up(&mut one.qp));
            gone(look_up.run().within(LONG).map_err(uverbs::Error::from));
            gone(incoming.device());
            gone(incoming.accept(&mut two.qp));
            gone(group.device());
            gone(join.run().within(LONG));
            gone(member.lost().within(LONG));
            gone(member.leave());
            drop((group, listener, manager));
        });
    }

    two.receive(7, 1000..1100);
    let speaks = join.run().within(LONG).unwrap();
    one.send(1, speaks.destination().datagram(), 0..8);
    assert_eq!((one.completion().status, two.completion().wr_id), (Status::Success, 7));
    let service = std::thread::scope(|scope| {
        let asks = scope.spawn(|| look_up.run().within(LONG).unwrap());
        listener.next().within(LONG).unwrap().accept(&mut two.qp).unwrap().send().unwrap();
        asks.join().unwrap()
    });
    assert_eq!(service.destination.qp_num(), two.qp.number());
    speaks.leave().unwrap();
    member.leave().unwrap();
    drop((target, group, incoming, listener));
    assert_eq!(network.identifiers(), 0);
}
