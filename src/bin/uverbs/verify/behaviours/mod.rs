//! Behaviours of a device: what this crate says of every device, each written once. `uverbs verify` and the tests in `tests/any` call
//! them, and add nothing.
//!
//! A behaviour creates its own objects and loops its messages back to itself. It resets nothing, and matches no packets that are meant for
//! others.

mod completion_counters;
mod connected;
mod device;
mod failures;
mod flows;
mod ground;
mod inline;
mod memory;
mod queues;
mod reliable;
mod shared_receives;
mod sides;

use std::fmt::{self, Debug};

use uverbs::{Error, ErrorKind};

pub(crate) use self::ground::{Frames, Ground, LIMIT};
pub(crate) use self::sides::{Pair, joined_pair};

/// A difference between what was expected and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) step: String,
    pub(crate) expected: String,
    pub(crate) seen: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, seen {}", self.step, self.expected, self.seen)
    }
}

/// Why a behaviour did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    Differs(Difference),
    /// The kernel, the driver or the device does not have it.
    Unsupported(Error),
    /// It cannot be tried here.
    Skipped(String),
    /// The user has ended the run.
    Interrupted,
}

pub(crate) type Held<T = ()> = Result<T, Stopped>;

/// An error where there should be none.
impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        differs(error.op(), "success", error)
    }
}

/// A call of which a device need not be capable.
pub(crate) trait Optional<T> {
    /// Ends the behaviour as not supported if the device says so, and as skipped if the process lacks a permission.
    fn optional(self) -> Held<T>;
}

impl<T> Optional<T> for uverbs::Result<T> {
    fn optional(self) -> Held<T> {
        self.map_err(|error| match error.kind() {
            ErrorKind::Unsupported => Stopped::Unsupported(error),
            ErrorKind::PermissionDenied => Stopped::Skipped(error.to_string()),
            _ => error.into(),
        })
    }
}

/// A destroy that must succeed.
pub(crate) trait Destroyed {
    fn destroyed(self) -> Held;
}

impl<T> Destroyed for Result<(), (T, Error)> {
    fn destroyed(self) -> Held {
        self.map_err(|(_, error)| error.into())
    }
}

/// What became of a behaviour. Once the user has ended the run, a difference may be a wait or a call that a signal has cut short: it is told
/// as what was seen until then.
pub(crate) fn unless_cut_short(held: Held, is_over: bool) -> Held {
    match held {
        Err(Stopped::Differs(difference)) if is_over => {
            Err(Stopped::Skipped(format!("the run was ended while it was tried; until then, {difference}")))
        }
        held => held,
    }
}

fn differs(step: &str, expected: impl fmt::Display, seen: impl fmt::Display) -> Stopped {
    let (expected, seen) = (expected.to_string(), seen.to_string());
    Stopped::Differs(Difference { step: step.to_owned(), expected, seen })
}

/// Ends the behaviour if something is not as expected.
pub(crate) fn same<T: PartialEq<U> + Debug, U: Debug>(step: &str, seen: T, expected: U) -> Held {
    if seen == expected {
        return Ok(());
    }
    Err(differs(step, format_args!("{expected:?}"), format_args!("{seen:?}")))
}

/// Ends the behaviour if a condition does not hold; `seen` is not printed if it does.
pub(crate) fn holds(step: &str, holds: bool, expected: &str, seen: impl fmt::Display) -> Held {
    if holds { Ok(()) } else { Err(differs(step, expected, seen)) }
}

/// Ends the behaviour if memory has other contents. Says where, and not what it is, which may be long.
pub(crate) fn same_bytes(step: &str, seen: &[u8], expected: &[u8]) -> Held {
    if seen == expected {
        return Ok(());
    }
    let at = seen.iter().zip(expected).position(|(seen, expected)| seen != expected);
    let at = at.unwrap_or(seen.len().min(expected.len()));
    let byte = |bytes: &[u8]| bytes.get(at).map_or("no byte".to_owned(), |byte| format!("{byte:#04x}"));
    let step = format!("{step}, byte {at} of {}", expected.len());
    Err(differs(&step, byte(expected), byte(seen)))
}

/// Ends the behaviour if a call is not refused with this kind and errno, and these words in its hint.
pub(crate) fn refused<T: Debug>(
    step: &str,
    result: uverbs::Result<T>,
    kind: ErrorKind,
    errno: i32,
    hint: &str,
) -> Held {
    match result {
        Ok(_) => Err(differs(step, format_args!("{kind:?}, errno {errno}"), "success")),
        Err(error) if (error.kind(), error.errno()) != (kind, Some(errno)) => {
            Err(differs(step, format_args!("{kind:?}, errno {errno}"), error))
        }
        Err(error) if !error.hint().unwrap_or_default().contains(hint) => {
            Err(differs(step, format_args!("a hint with {hint:?}"), error))
        }
        Err(_) => Ok(()),
    }
}

/// Ends the behaviour if an object can be destroyed that others use. Returns the object.
pub(crate) fn busy<T>(step: &str, result: Result<(), (T, Error)>) -> Held<T> {
    match result {
        Ok(()) => Err(differs(step, format_args!("Busy, errno {EBUSY}"), "success")),
        Err((object, error)) if (error.kind(), error.errno()) == (ErrorKind::Busy, Some(EBUSY)) => Ok(object),
        Err((_, error)) => Err(differs(step, format_args!("Busy, errno {EBUSY}"), error)),
    }
}

/// Why behaviours are skipped if there is no source of frames.
pub(crate) const NO_FRAMES: &str = "no frames can be made to arrive";

pub(crate) const EBUSY: i32 = 16;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOMEM: i32 = 12;
pub(crate) const EOPNOTSUPP: i32 = 95;

/// A behaviour. Its name is a sentence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// The part of the crate that it is about.
    pub(crate) area: &'static str,
    pub(crate) name: &'static str,
    /// Whether it creates flows.
    pub(crate) has_flows: bool,
    pub(crate) run: fn(&Ground<'_>) -> Held,
}

macro_rules! list {
    ($($area:ident $words:literal $has_flows:literal: $($name:ident)+;)+) => {
        /// All behaviours, in the order in which they are run.
        pub(crate) const ALL: &[Behaviour] = &[$($(
            Behaviour { area: $words, name: stringify!($name), has_flows: $has_flows, run: $area::$name },
        )+)+];

        /// The behaviours by their area, for tests.
        pub(crate) mod each {
            $(#[allow(unused_imports, reason = "the program goes through the list")]
            pub(crate) mod $area {
                $(pub(crate) use super::super::$area::$name;)+
            })+
        }
    };
}

list! {
    device "device" false:
        an_open_device_answers_queries
        a_port_tells_its_speed_where_kernel_and_driver_can
        a_port_that_is_not_there_is_refused
        the_gid_table_holds_what_single_ports_have
        the_chosen_gid_is_the_first_of_those_that_can_be_used
        objects_come_and_go_in_any_order
        an_object_in_use_is_given_back
        event_files_do_not_wait;
    memory "memory" false:
        memory_is_copied_in_and_out_within_its_bounds
        bad_sizes_and_flags_are_refused
        access_flags_that_do_not_fit_together_are_named
        a_region_has_an_address_and_a_key_for_the_peer
        rights_of_a_region_can_be_changed
        windows_are_made
        extended_domains_are_opened;
    queues "completion queues" false:
        a_resized_queue_keeps_what_waits_in_it
        a_queue_is_not_resized_below_what_waits_in_it
        announcements_are_moderated_where_the_driver_can
        completions_are_announced_when_it_was_asked_for;
    connected "messages" false:
        messages_arrive_in_their_order_with_their_numbers
        many_messages_arrive_whole_and_are_counted
        a_message_arrives_with_its_number
        inline_bytes_are_copied_when_they_are_posted
        remote_memory_is_written_and_read
        remote_memory_is_written_and_read_back
        atomic_operations_give_the_old_value
        requests_complete_in_their_order_and_only_the_signaled
        a_full_queue_is_refused_and_all_that_was_posted_arrives
        an_unreliable_connection_carries_messages_and_writes
        datagrams_come_after_a_routing_header_and_need_the_key;
    shared_receives "shared receives" false:
        receives_are_taken_from_one_queue
        the_limit_is_told_once_each_time_it_is_armed
        a_queue_in_use_is_busy_and_may_be_dropped_first;
    failures "failures" false:
        a_wrong_key_is_a_remote_access_error_and_the_rest_is_flushed
        memory_without_the_right_is_a_remote_access_error
        without_a_receive_the_sender_gives_up_when_it_was_told_to
        a_receive_too_small_is_an_error_on_both_sides
        everything_posted_is_flushed_in_order_and_nothing_comes_later;
    completion_counters "completion counters" false:
        a_counter_records_how_many_operations_have_completed
        failures_go_to_the_error_value_and_leave_the_value_alone
        bytes_are_counted_in_place_of_operations;
    reliable "reliable datagrams" false:
        messages_come_in_whole_with_their_numbers
        many_messages_go_round_the_rings_and_each_completes_once
        a_drain_waits_for_everything_and_a_reset_begins_anew;
    flows "flow counters" true:
        read_before_a_flow_is_invalid
        the_highest_index_is_the_last_that_a_read_returns
        a_buffer_without_room_for_the_highest_index_is_invalid
        attach_while_bound_is_busy_and_allowed_again_after
        counters_in_use_are_busy_and_given_back
        a_reader_reads_without_a_guard_and_keeps_its_flow
        a_snapshot_is_read_again_when_it_is_too_old
        the_example_of_the_manual_runs
        points_at_one_index_are_summed_and_gaps_are_zero
        flows_on_one_object_accumulate
        values_never_go_down
        thousands_of_packets_are_counted_without_exception;
}
