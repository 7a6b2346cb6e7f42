//! Any bytes are a request, a refusal or the beginning of a request. What the beginning decides does not change, whatever follows.

#[path = "../../../src/bin/uverbs/export/http/accept.rs"]
mod accept;
#[path = "../../../src/bin/uverbs/export/http/request.rs"]
mod request;

use request::{MAX_HEAD, Page};

pub(crate) fn run(data: &[u8]) {
    let data = &data[..data.len().min(MAX_HEAD)];
    let whole = request::parse(data);
    if let Some(request) = whole {
        match request.page {
            Ok(Page::Root | Page::Healthy | Page::Metrics { .. }) => {
                let method = data.trim_ascii_start();
                assert!(method.starts_with(b"GET ") || method.starts_with(b"HEAD "), "{data:?}");
                assert_eq!(request.head_only, method.starts_with(b"HEAD "));
            }
            Err(refusal) => assert!((400..600).contains(&refusal.0) && !refusal.1.is_empty()),
        }
    }
    for part in 1..8 {
        if let Some(early) = request::parse(&data[..data.len() * part / 8]) {
            assert_eq!(Some(early), whole, "{part} eighths of {data:?}");
        }
    }
    // However long it is, parsing ends.
    let mut full = data.to_vec();
    full.resize(MAX_HEAD, b'x');
    assert!(request::parse(&full).is_some());
}
