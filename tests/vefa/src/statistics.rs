//! Counts of events, for the driver's statistics and for the control line.

/// Defines counters that can be listed by name.
macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Statistics {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Statistics {
            pub(crate) fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

statistics! {
    tx_bytes,
    tx_packets,
    rx_bytes,
    rx_packets,
    /// Dropped: datagrams, and messages without a receive.
    rx_drops,
    /// Messages with a queue key that is not that of their queue pair.
    qkey_violations,
    send_bytes,
    send_requests,
    receive_bytes,
    receive_requests,
    read_requests,
    read_bytes,
    read_errors,
    read_response_bytes,
    write_requests,
    write_bytes,
    write_errors,
    write_receive_bytes,
    retries,
    /// Requests without a response in time.
    timeouts,
    completions,
    completion_events,
    commands,
    resets,
    /// Accesses to addresses that are not memory of the guest.
    faults,
    complaints,
}

impl Statistics {
    /// The values for a type of GET_STATS, in the order of the kernel's structures; `None` if the type is unknown.
    pub(crate) fn of_type(&self, kind: u8) -> Option<Vec<u64>> {
        Some(match kind {
            0 => vec![
                self.tx_bytes,
                self.tx_packets,
                self.rx_bytes,
                self.rx_packets,
                self.rx_drops,
                self.qkey_violations,
            ],
            1 => vec![self.send_bytes, self.send_requests, self.receive_bytes, self.receive_requests],
            2 => vec![self.read_requests, self.read_bytes, self.read_errors, self.read_response_bytes],
            3 => vec![self.write_requests, self.write_bytes, self.write_errors, self.write_receive_bytes],
            // Retransmitted bytes and packets, timeouts, unresponsive peers, impaired connections.
            4 => vec![0, self.retries, self.timeouts, self.timeouts, 0],
            _ => return None,
        })
    }
}
