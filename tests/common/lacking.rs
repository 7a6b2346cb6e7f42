//! What the soft device does not have, of what `uverbs verify` tries.
#![allow(unreachable_pub, reason = "shared by test binaries")]

/// The behaviours that are not supported there: moderation, the speed of a port, and reliable datagrams.
pub const LACKING: [&str; 5] = [
    "a_drain_waits_for_everything_and_a_reset_begins_anew",
    "a_port_tells_its_speed_where_kernel_and_driver_can",
    "announcements_are_moderated_where_the_driver_can",
    "many_messages_go_round_the_rings_and_each_completes_once",
    "messages_come_in_whole_with_their_numbers",
];
