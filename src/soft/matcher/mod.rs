//! From specs to a match: what mlx5 accepts, what it makes of it, and which errno it gives otherwise.
//!
//! [`Match::compile`] is `is_valid_attr` and `parse_flow_attr` of drivers/infiniband/hw/mlx5/fs.c (Linux 6.1):
//! each spec writes its value and mask into one block of fields ([`fields`]). A later spec of the same kind therefore replaces
//! an earlier one; specs of different kinds are all asked for. What only the steering core refuses, values outside
//! their mask, is [`Match::check_values`], because it comes after the counters are bound.

mod fields;

use super::flow_check::{Spec, Specs};
use super::packet::{Headers, Words};
use nix::errno::Errno;

/// What a device can match and do. [`Default`] is mlx5 as its driver is written, with every capability that
/// the driver asks for; a profile may take some away, or go where no mlx5 goes.
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
    /// ESP specs; the driver has no code for them.
    pub(crate) esp: bool,
    /// IPv4 time to live and flags; behind the driver's last field.
    pub(crate) ttl: bool,
    /// IPv6 hop limit; behind the driver's last field.
    pub(crate) hop_limit: bool,
    /// First word of GRE; refused by the driver.
    pub(crate) gre_flags: bool,
    /// ALLOW_LOOP_BACK, flag bit 0; refused by the driver.
    pub(crate) loop_back: bool,
    /// Who sends hears itself, without that flag.
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
    /// All that the soft device can do.
    pub(crate) fn all() -> Self {
        Self { esp: true, ttl: true, hop_limit: true, gre_flags: true, loop_back: true, ..Self::default() }
    }
}

/// What happens to a packet that matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions {
    /// Carried by the completion.
    pub(crate) tag: Option<u32>,
    /// Goes nowhere; it may still be counted.
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
    /// Matches every frame and does nothing to it.
    pub(crate) fn everything() -> Self {
        Self { value: Headers::none(), mask: Headers::none(), actions: Actions::default() }
    }

    /// Makes a match of the specs of a NORMAL rule, or says with mlx5's errno why not.
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

    /// A bit of a value outside its mask is refused: `check_valid_spec`, fs_core.c of mlx5_core, Linux 6.1.
    ///
    /// Only fields that reached the block are seen: not the time to live, say, nor a VLAN tag without a mask.
    pub(crate) fn check_values(&self) -> Result<(), Errno> {
        let (value, mask): (Words, Words) = (self.value.words(), self.mask.words());
        match value.iter().zip(&mask).all(|(value, mask)| value & !mask == 0) {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }
}

/// An ethertype beside an IP spec must be whole and must announce that IP: `is_valid_ethertype`. Of several
/// ethertypes, and of several IP specs, the last is looked at.
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
