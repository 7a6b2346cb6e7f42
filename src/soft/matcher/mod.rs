//! Converts specs to a match: which specs mlx5 accepts, how it interprets them, and with which errno it refuses others.
//!
//! [`Match::compile`] corresponds to `is_valid_attr` and `parse_flow_attr` of drivers/infiniband/hw/mlx5/fs.c (Linux 6.1): each spec
//! writes its value and mask into one block of fields ([`fields`]). A later spec of the same kind therefore replaces an earlier one, and
//! specs of different kinds all apply. Values outside their mask are refused only by the steering core; [`Match::check_values`] does this
//! separately, because it happens after the counters are bound.

mod fields;

use super::flow_check::{Spec, Specs};
use super::packet::{Headers, Words};
use nix::errno::Errno;

/// What a device can match and do. [`Default`] is mlx5 as its driver is written, with every capability that the driver checks. A profile
/// may remove some, or allow what no mlx5 supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The IP version is matched as such, not by ethertype: `ft_field_support.outer_ip_version`.
    pub(crate) ip_version: bool,
    /// Labels of MPLS can be matched: `ft_field_support.outer_first_mpls` and the like.
    pub(crate) mpls: bool,
    /// SNIFFER rules: `allow_sniffer_and_nic_rx_shared_tir`.
    pub(crate) sniffer: bool,
    /// DONT_TRAP rules: `nic_rx_multi_path_tirs`.
    pub(crate) dont_trap: bool,
    /// ESP specs, for which the driver has no code.
    pub(crate) esp: bool,
    /// IPv4 time to live and flags, which are after the driver's last field.
    pub(crate) ttl: bool,
    /// IPv6 hop limit, which is after the driver's last field.
    pub(crate) hop_limit: bool,
    /// First word of GRE, which the driver refuses.
    pub(crate) gre_flags: bool,
    /// ALLOW_LOOP_BACK, flag bit 0, which the driver refuses.
    pub(crate) loop_back: bool,
    /// A sender receives its own frames even without that flag.
    pub(crate) plug: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            ip_version: true,
            mpls: true,
            sniffer: true,
            dont_trap: true,
            esp: false,
            ttl: false,
            hop_limit: false,
            gre_flags: false,
            loop_back: false,
            plug: false,
        }
    }
}

impl Rules {
    /// Everything that the soft device can do.
    pub(crate) fn all() -> Self {
        Self { esp: true, ttl: true, hop_limit: true, gre_flags: true, loop_back: true, ..Self::default() }
    }
}

/// What happens to a packet that matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions {
    /// The tag in the completion.
    pub(crate) tag: Option<u32>,
    /// The packet is dropped. It may still be counted.
    pub(crate) drop: bool,
    /// Handle of the counters object.
    pub(crate) count: Option<u32>,
}

/// The specs of one rule, ready to be compared with [`Headers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) value: Headers,
    pub(crate) mask: Headers,
    pub(crate) actions: Actions,
}

impl Match {
    /// Matches every frame, without an action.
    pub(crate) fn everything() -> Self {
        Self { value: Headers::none(), mask: Headers::none(), actions: Actions::default() }
    }

    /// Creates a match from the specs of a NORMAL rule, or returns the errno with which mlx5 refuses them.
    pub(crate) fn compile(specs: &Specs, rules: &Rules) -> Result<Self, Errno> {
        let mut this = Self::everything();
        check_ether_type(specs, false, rules)?;
        check_ether_type(specs, true, rules)?;
        let mut previous = None;
        for spec in specs.iter() {
            this.add(spec, previous, rules)?;
            previous = Some(spec);
        }
        this.require_headers();
        Ok(this)
    }

    /// Whether the frame with these fields matches.
    #[cfg(test)]
    pub(crate) fn matches(&self, fields: &Headers) -> bool {
        let (value, mask, fields) = (self.value.words(), self.mask.words(), fields.words());
        (0..fields.len()).all(|word| fields[word] & mask[word] == value[word])
    }

    /// Refuses a value with bits outside its mask: `check_valid_spec`, fs_core.c of mlx5_core, Linux 6.1.
    ///
    /// Only fields in the block are checked: not the time to live, for example, nor a VLAN tag without a mask.
    pub(crate) fn check_values(&self) -> Result<(), Errno> {
        let (value, mask): (Words, Words) = (self.value.words(), self.mask.words());
        match value.iter().zip(&mask).all(|(value, mask)| value & !mask == 0) {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }
}

/// An ethertype together with an IP spec must have a full mask and must announce that IP version: `is_valid_ethertype`. Of several
/// ethertypes, and of several IP specs, the last one is checked.
fn check_ether_type(specs: &Specs, inner: bool, rules: &Rules) -> Result<(), Errno> {
    let ether_type = specs.iter().rev().find_map(|spec| match spec {
        Spec::Eth(spec) if spec.inner == inner && spec.mask.ether_type.get() != 0 => {
            Some((spec.val.ether_type.get(), spec.mask.ether_type.get()))
        }
        _ => None,
    });
    let expected = specs.iter().rev().find_map(|spec| match spec {
        Spec::Ipv4(spec) if spec.inner == inner => Some(0x0800),
        Spec::Ipv6(spec) if spec.inner == inner => Some(0x86dd),
        _ => None,
    });
    match (ether_type, expected) {
        (Some((value, 0xffff)), Some(expected)) if value == expected => Ok(()),
        (Some((0x8847 | 0x8848, 0xffff)), Some(_)) if rules.ip_version => Ok(()),
        (Some(_), Some(_)) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
