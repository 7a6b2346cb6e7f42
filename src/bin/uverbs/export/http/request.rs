//! Parses the head of a request and decides on the response. The input may be any bytes.

use super::accept;

/// Maximum length of a head. Prometheus sends some hundred bytes.
pub(crate) const MAX_HEAD: usize = 8 * 1024;
/// Maximum number of header fields.
const MAX_FIELDS: usize = 64;

/// The pages that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Metrics {
        open_metrics: bool,
    },
    Root,
    /// Whether the program answers: no device is read for it.
    Healthy,
}

/// A refusal: the status code of HTTP and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) u16, pub(crate) &'static str);

pub(crate) const BAD_REQUEST: Refusal = Refusal(400, "Bad Request");
pub(crate) const NOT_FOUND: Refusal = Refusal(404, "Not Found");
pub(crate) const METHOD_NOT_ALLOWED: Refusal = Refusal(405, "Method Not Allowed");
pub(crate) const TIMEOUT: Refusal = Refusal(408, "Request Timeout");
pub(crate) const CONTENT_TOO_LARGE: Refusal = Refusal(413, "Content Too Large");
pub(crate) const HEAD_TOO_LARGE: Refusal = Refusal(431, "Request Header Fields Too Large");
pub(crate) const VERSION_NOT_SUPPORTED: Refusal = Refusal(505, "HTTP Version Not Supported");

/// A complete head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) page: Result<Page, Refusal>,
    /// The response has no body (HEAD).
    pub(crate) head_only: bool,
}

/// Parses a head. Returns `None` if it is not complete yet.
pub(crate) fn parse(bytes: &[u8]) -> Option<Request> {
    let refused = |refusal| Some(Request { page: Err(refusal), head_only: false });
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len <= MAX_HEAD => {}
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return None,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return refused(HEAD_TOO_LARGE),
        Err(httparse::Error::Version) => return refused(VERSION_NOT_SUPPORTED),
        Err(_) => return refused(BAD_REQUEST),
    }
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return refused(BAD_REQUEST);
    };
    let head_only = method == "HEAD";
    let page = page(method, target, version, head.headers);
    Some(Request { page, head_only })
}

fn page(method: &str, target: &str, version: u8, fields: &[httparse::Header<'_>]) -> Result<Page, Refusal> {
    let named = |name: &'static str| {
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    };
    // RFC 9112, 3.2: exactly one in version 1.1, and not more in 1.0.
    if named("host").count() != 1 && (version == 1 || named("host").count() > 1) {
        return Err(BAD_REQUEST);
    }
    let accepts = named("accept").filter_map(|value| str::from_utf8(value).ok());
    let page = match path(target) {
        "/metrics" => Page::Metrics { open_metrics: accept::wants_open_metrics(accepts) },
        "/" => Page::Root,
        "/-/healthy" => Page::Healthy,
        _ => return Err(NOT_FOUND),
    };
    if !matches!(method, "GET" | "HEAD") {
        return Err(METHOD_NOT_ALLOWED);
    }
    let is_empty = |value: &[u8]| value.iter().all(|digit| *digit == b'0');
    if named("transfer-encoding").next().is_some() || !named("content-length").all(is_empty) {
        return Err(CONTENT_TOO_LARGE);
    }
    Ok(page)
}

/// The path of a request target, which may be a complete URL (RFC 9112, 3.2.2).
fn path(target: &str) -> &str {
    let is_http =
        |scheme: &&str| scheme.eq_ignore_ascii_case("http://") || scheme.eq_ignore_ascii_case("https://");
    let schemes = [target.get(..7), target.get(..8)];
    let target = match schemes.into_iter().flatten().find(is_http) {
        Some(scheme) => {
            let rest = &target[scheme.len()..];
            rest.find(['/', '?']).map_or("/", |at| &rest[at..])
        }
        None => target,
    };
    let end = target.find(['?', '#']).unwrap_or(target.len());
    if end == 0 && target.starts_with('?') { "/" } else { &target[..end] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(text: &str) -> Result<Page, Refusal> {
        parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} is not whole")).page
    }

    const TEXT: Page = Page::Metrics { open_metrics: false };

    #[test]
    fn three_pages_are_there() {
        for (text, wanted) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", TEXT),
            ("GET /metrics?x=1 HTTP/1.1\r\nhost: a\r\nAccept: */*\r\n\r\n", TEXT),
            ("GET http://a:1/metrics HTTP/1.1\r\nHost: a\r\n\r\n", TEXT),
            ("GET HTTP://a HTTP/1.1\r\nHost: a\r\n\r\n", Page::Root),
            ("GET https://a?x HTTP/1.1\r\nHost: a\r\n\r\n", Page::Root),
            ("GET / HTTP/1.0\r\n\r\n", Page::Root),
            ("GET /-/healthy HTTP/1.0\r\n\r\n", Page::Healthy),
            ("GET /metrics HTTP/1.0\n\n", TEXT),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", TEXT),
            (
                "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text\r\n\r\n",
                Page::Metrics { open_metrics: true },
            ),
        ] {
            assert_eq!(page_of(text), Ok(wanted), "{text:?}");
        }
        let request = parse(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is whole");
        assert_eq!(request, Request { page: Ok(Page::Root), head_only: true });
    }

    #[test]
    fn all_else_is_refused() {
        let long = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(MAX_FIELDS + 1));
        for (text, wanted) in [
            ("GET /metric HTTP/1.1\r\nHost: a\r\n\r\n", NOT_FOUND),
            ("GET //metrics HTTP/1.1\r\nHost: a\r\n\r\n", NOT_FOUND),
            ("GET /../metrics HTTP/1.1\r\nHost: a\r\n\r\n", NOT_FOUND),
            ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", NOT_FOUND),
            ("POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n", METHOD_NOT_ALLOWED),
            ("get /metrics HTTP/1.1\r\nHost: a\r\n\r\n", METHOD_NOT_ALLOWED),
            ("GET /metrics HTTP/1.1\r\n\r\n", BAD_REQUEST),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", BAD_REQUEST),
            ("GET /metrics HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", BAD_REQUEST),
            ("GET /metrics\r\n\r\n", BAD_REQUEST),
            ("\0\0\0\0", BAD_REQUEST),
            ("\x16\x03\x01\x02", BAD_REQUEST),
            ("GET /metrics HTTP/2.0\r\n\r\n", VERSION_NOT_SUPPORTED),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", CONTENT_TOO_LARGE),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", CONTENT_TOO_LARGE),
            (&*long, HEAD_TOO_LARGE),
            (&*many, HEAD_TOO_LARGE),
            (&long[..MAX_HEAD], HEAD_TOO_LARGE),
        ] {
            assert_eq!(page_of(text), Err(wanted), "{text:?}");
        }
    }

    #[test]
    fn a_part_of_a_head_waits_for_the_rest() {
        let text = "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..end]), None, "{end}");
        }
        assert!(parse(text.as_bytes()).is_some());
    }
}
