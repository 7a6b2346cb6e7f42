//! Asynchronous events: what happened, and to which object.

use std::fmt;

use uverbs_abi::types::event_type;
use uverbs_abi::write::AsyncEventDesc;

/// An event of the device that is not an answer to a command. [`Context::next_event`](super::Context::next_event) returns it.
///
/// Events are not acknowledged: an event identifies its object by a number, so an object can be destroyed while events for it are
/// pending. The kernel then discards those that were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_async_event")]
pub struct AsyncEvent {
    /// What happened.
    pub kind: EventKind,
    /// The cookie of the object, or the number of the port; [`AsyncEvent::subject`] returns which of the two.
    pub element: u64,
}

/// The object that an event concerns.
///
/// Objects are identified by the cookie with which they were created, 0 by default.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The completion queue with this cookie.
    CompletionQueue(u64),
    /// The queue pair with this cookie.
    QueuePair(u64),
    /// The shared receive queue with this cookie.
    SharedReceiveQueue(u64),
    /// The work queue with this cookie.
    WorkQueue(u64),
    /// The port with this number, from 1.
    Port(u64),
    /// The whole device.
    Device,
    /// An event that this crate does not know, with the number that it contained.
    Unknown(u64),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CompletionQueue(cookie) => write!(f, "completion queue {cookie:#x}"),
            Self::QueuePair(cookie) => write!(f, "queue pair {cookie:#x}"),
            Self::SharedReceiveQueue(cookie) => write!(f, "shared receive queue {cookie:#x}"),
            Self::WorkQueue(cookie) => write!(f, "work queue {cookie:#x}"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Device => f.write_str("device"),
            Self::Unknown(element) => write!(f, "unknown object {element:#x}"),
        }
    }
}

impl AsyncEvent {
    /// The object that the event concerns.
    pub fn subject(&self) -> Subject {
        self.kind.subject(self.element)
    }
}

impl From<AsyncEventDesc> for AsyncEvent {
    fn from(record: AsyncEventDesc) -> Self {
        Self { kind: EventKind::from(record.event_type), element: record.element }
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject(), self.kind)
    }
}

macro_rules! kinds {
    ($($name:ident = $number:ident $alias:literal, $subject:ident $(($element:ident))?, $text:literal;)*) => {
        /// What happened.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[doc(alias = "ibv_event_type")]
        #[doc(alias = "ibv_event_type_str")]
        pub enum EventKind {
            $(
                #[doc = concat!("It ", $text, ".")]
                #[doc = concat!("`", $alias, "`.")]
                #[doc(alias = $alias)]
                $name,
            )*
            /// An event number that this crate does not know.
            Other(u32),
        }

        impl EventKind {
            /// The kernel's number of the event: one of [`uverbs_abi::types::event_type`].
            pub fn number(self) -> u32 {
                match self {
                    $(Self::$name => event_type::$number,)*
                    Self::Other(number) => number,
                }
            }

            fn subject(self, element: u64) -> Subject {
                match self {
                    $(Self::$name => kinds!(@ $subject $($element, element)?),)*
                    Self::Other(_) => Subject::Unknown(element),
                }
            }
        }

        impl From<u32> for EventKind {
            fn from(number: u32) -> Self {
                match number {
                    $(event_type::$number => Self::$name,)*
                    _ => Self::Other(number),
                }
            }
        }

        impl fmt::Display for EventKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Other(number) => write!(f, "had an event of the unknown kind {number}"),
                }
            }
        }
    };
    (@ $subject:ident) => { Subject::$subject };
    (@ $subject:ident $name:ident, $element:ident) => { Subject::$subject($element) };
}

kinds! {
    CqError = CQ_ERR "IBV_EVENT_CQ_ERR", CompletionQueue(c), "overran or failed";
    QpFatal = QP_FATAL "IBV_EVENT_QP_FATAL", QueuePair(c), "failed";
    QpRequestError = QP_REQ_ERR "IBV_EVENT_QP_REQ_ERR", QueuePair(c), "got an invalid request";
    QpAccessError = QP_ACCESS_ERR "IBV_EVENT_QP_ACCESS_ERR", QueuePair(c), "got a request without permission";
    QpEstablished = COMM_EST "IBV_EVENT_COMM_EST", QueuePair(c), "got a message before it was ready to send";
    SqDrained = SQ_DRAINED "IBV_EVENT_SQ_DRAINED", QueuePair(c), "has drained its send queue";
    PathMigrated = PATH_MIG "IBV_EVENT_PATH_MIG", QueuePair(c), "went to the alternate path";
    PathMigrationFailed = PATH_MIG_ERR "IBV_EVENT_PATH_MIG_ERR", QueuePair(c), "could not go to the alternate path";
    DeviceFatal = DEVICE_FATAL "IBV_EVENT_DEVICE_FATAL", Device, "failed, or is gone";
    PortActive = PORT_ACTIVE "IBV_EVENT_PORT_ACTIVE", Port(c), "became active";
    PortError = PORT_ERR "IBV_EVENT_PORT_ERR", Port(c), "went down";
    LidChange = LID_CHANGE "IBV_EVENT_LID_CHANGE", Port(c), "has another local identifier";
    PkeyChange = PKEY_CHANGE "IBV_EVENT_PKEY_CHANGE", Port(c), "has other partition keys";
    SmChange = SM_CHANGE "IBV_EVENT_SM_CHANGE", Port(c), "has another subnet manager";
    SrqError = SRQ_ERR "IBV_EVENT_SRQ_ERR", SharedReceiveQueue(c), "failed";
    SrqLimitReached = SRQ_LIMIT_REACHED "IBV_EVENT_SRQ_LIMIT_REACHED", SharedReceiveQueue(c), "has fewer requests left than its limit";
    QpLastWqeReached = QP_LAST_WQE_REACHED "IBV_EVENT_QP_LAST_WQE_REACHED", QueuePair(c), "takes nothing more from its shared receive queue";
    ClientReregister = CLIENT_REREGISTER "IBV_EVENT_CLIENT_REREGISTER", Port(c), "lost its registrations with the subnet manager";
    GidChange = GID_CHANGE "IBV_EVENT_GID_CHANGE", Port(c), "has other GIDs";
    WqFatal = WQ_FATAL "IBV_EVENT_WQ_FATAL", WorkQueue(c), "failed";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_a_kind_with_words_and_comes_back() {
        let mut texts = Vec::new();
        for number in 0..=event_type::WQ_FATAL {
            let event = AsyncEvent::from(AsyncEventDesc { element: 7, event_type: number, reserved: 0 });
            assert_eq!(event.kind.number(), number);
            assert!(!matches!(event.kind, EventKind::Other(_)), "{number}");
            texts.push(event.to_string());
        }
        assert_eq!(texts[15], "shared receive queue 0x7: has fewer requests left than its limit");
        assert_eq!(
            (texts[8].as_str(), texts[10].as_str()),
            ("device: failed, or is gone", "port 7: went down")
        );
        let count = texts.len();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), count, "two events with the same words");
    }

    #[test]
    fn a_number_of_tomorrow_is_kept() {
        let event = AsyncEvent::from(AsyncEventDesc { element: 3, event_type: 77, reserved: 0 });
        assert_eq!((event.kind.number(), event.subject()), (77, Subject::Unknown(3)));
        assert_eq!(event.to_string(), "unknown object 0x3: had an event of the unknown kind 77");
    }
}
