//! Any capture is read to its end or to an error; its frames pass the device and are counted exactly.

use std::io::Cursor;

use uverbs::soft::Capture;
use uverbs::{AccessFlags, Completion, Eth, FlowRule, Point, ReceiveRequest, SoftDevice};

use super::bytes::Bytes;

pub(crate) fn run(data: &[u8]) {
    let mut data = Bytes(data);
    let (receives, cqe) = (data.u8() % 16, 1 + u32::from(data.u8() % 32));
    let Ok(mut capture) = Capture::from_reader(Cursor::new(data.0.to_vec())) else { return };
    let device = SoftDevice::default();
    {
        let context = device.open().expect("open");
        let mut cq = context.create_cq(cqe).expect("cq");
        let pd = context.alloc_pd().expect("pd");
        let mut qp = pd.raw_packet(&cq).receive_depth(16).connect(1).expect("qp");
        let memory = pd.register(4096, AccessFlags::LOCAL_WRITE).expect("memory");
        for i in 0..receives {
            let at = usize::from(i) * 256;
            let segments = [memory.segment(at..at + 256).expect("inside")];
            qp.post_receive(&[ReceiveRequest::new(i.into(), &segments)]).expect("receive");
        }
        let counters = context.create_counters().expect("counters");
        counters.attach(Point::Packets, 0).expect("attach");
        counters.attach(Point::Bytes, 1).expect("attach");
        // All frames, as tools that list captures count them; and then one address, so that more of the steering runs.
        let all = qp.create_flow(&FlowRule::normal(1).eth(Eth::any()).count(&counters)).expect("flow");
        let one = FlowRule::normal(1).priority(1).eth(Eth::any().dst([2, 0, 0, 0, 0, 1]));
        let _one = qp.create_flow(&one).expect("flow");

        let mut expected = [0; 2];
        while let Ok(Some(frame)) = capture.next_frame() {
            expected[0] += 1;
            expected[1] += frame.bytes.len() as u64;
            device.inject(frame.bytes);
        }
        assert!(matches!(capture.next_frame(), Ok(None)), "nothing comes after the end");
        assert_eq!(all.reader().expect("reader").read().expect("read"), expected);
        // The same frames once more, many at a time.
        let mut again = Capture::from_reader(Cursor::new(data.0.to_vec())).expect("it was one before");
        let mut played = 0;
        while let Ok(frames @ 1..) = device.play(&mut again) {
            played += frames;
        }
        assert_eq!(played, expected[0]);
        assert_eq!(all.reader().expect("reader").read().expect("read"), expected.map(|value| 2 * value));
        let mut completions = Completion::batch::<32>();
        assert!(cq.poll(&mut completions) <= receives.into());
    }
    assert!(device.resources().is_empty());
}
