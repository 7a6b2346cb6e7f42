//! What reliable datagrams need is held until they have completed.

use super::*;

/// Single requests and batches, with one region and one address, and with several.
#[test]
fn requests_hold_what_they_need_and_a_batch_that_is_refused_holds_nothing() {
    on_every_device_with_srd(|target| {
        let context = target.open();
        let (mut one, mut two) = (Party::new(&context), Party::new(&context));
        let register = |party: &Party| party.pd.register(4096, AccessFlags::LOCAL_WRITE).unwrap();
        let sources = [(); 2].map(|()| register(&one));
        let rooms = [(); 2].map(|()| register(&two));
        let (ways, other, unused) = ([(); 2].map(|()| one.way()), one.way(), [&one, &two].map(register));
        for (source, text) in sources.iter().zip([b"first!", b"second"]) {
            source.write(0, text).unwrap();
        }
        let batches: [&[usize]; 6] = [&[0], &[0, 0, 0], &[0], &[0, 1, 0], &[1, 1], &[1]];
        let qp_num = two.qp.number();
        let to_two = |to| SrdDatagram { to, qp_num, qkey: QKEY, operation: SrdOperation::Send };
        for round in 0..9 {
            let segments = sources.each_ref().map(|region| [region.segment(..6).unwrap()]);
            let places = rooms.each_ref().map(|region| [region.segment(..6).unwrap()]);
            let [unsent, unfilled] = unused.each_ref().map(|region| [region.segment(..6).unwrap()]);
            let send = |at: usize, bytes: bool| {
                let message = to_two(&ways[at]);
                let request = match bytes {
                    true => SendRequest::inline(at as u64, message, [b"first!", b"second"][at]),
                    false => SendRequest::new(at as u64, message, &segments[at]),
                };
                request.signaled()
            };
            for batch in batches {
                let unsignaled = SendRequest::new(9, to_two(&other), &unsent);
                let refused = [send(0, false), unsignaled.signaled(), send(1, true), unsignaled];
                refuses(one.qp.post_send(&refused), ErrorKind::InvalidInput, EINVAL, "signaled");
                let many = vec![send(0, true); 1000];
                refuses(one.qp.post_send(&many), ErrorKind::Exhausted, ENOMEM, "nothing was posted");
                let sends: Vec<_> = batch.iter().map(|at| send(*at, round % 3 == 2)).collect();
                let three = [unfilled[0]; 3];
                let refused = [&places[0][..], &unfilled, &three].map(|room| ReceiveRequest::new(9, room));
                refuses(
                    two.qp.post_receive(&refused),
                    ErrorKind::InvalidInput,
                    EINVAL,
                    "allowed; nothing was posted",
                );
                let receives: Vec<_> =
                    batch.iter().map(|at| ReceiveRequest::new(*at as u64, &places[*at])).collect();
                two.qp.post_receive(&receives).unwrap();
                rooms.iter().for_each(|room| room.write(0, &[0; 6]).unwrap());
                one.qp.post_send(&sends).unwrap();
                let sum = |found: Vec<Completion>| {
                    assert!(found.iter().all(|found| found.status == Status::Success), "{found:?}");
                    found.iter().map(|found| found.wr_id).sum::<u64>()
                };
                let wanted = batch.iter().sum::<usize>() as u64;
                assert_eq!(sum(one.completions(batch.len())), wanted, "{round}");
                assert_eq!(sum(two.completions(batch.len())), wanted, "{round}");
                let mut bytes = [0; 6];
                rooms[batch[0]].read(0, &mut bytes).unwrap();
                assert!([b"first!", b"second"].contains(&&bytes));
            }
        }
        other.destroy().map_err(|(_, error)| error).unwrap();
        unused.into_iter().for_each(|region| region.destroy().map_err(|(_, error)| error).unwrap());
        let [_, room] = rooms;
        let receives = [room.segment(..6).unwrap()];
        two.qp.post_receive(&[ReceiveRequest::new(5, &receives); 2]).unwrap();
        assert_eq!(room.destroy().unwrap_err().1.kind(), ErrorKind::Busy, "it is posted");
        let ([way, _], [source, _]) = (ways, sources);
        let segments = [source.segment(..6).unwrap()];
        let message = datagram(&way, &two, SrdOperation::Send);
        one.qp.post_send(&[SendRequest::new(5, message, &segments).signaled(); 2]).unwrap();
        assert_eq!(way.destroy().unwrap_err().1.kind(), ErrorKind::Busy);
        assert_eq!(source.destroy().unwrap_err().1.kind(), ErrorKind::Busy);
        for party in [&mut one, &mut two] {
            let found = party.completions(2);
            assert!(found.iter().all(|found| found.status == Status::Success && found.wr_id == 5));
        }
    });
}
