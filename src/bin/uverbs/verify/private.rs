//! What a report must not contain: names, addresses and keys of the machine.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use uverbs::{Context, Device, Guid};

/// What stands in place of something private.
const HIDDEN: &str = "(hidden)";

/// Words of this machine.
#[derive(Debug, Default)]
pub(super) struct Private(BTreeSet<String>);

impl Private {
    pub(super) fn of(device: &Device, context: &Context) -> Self {
        let mut words = BTreeSet::new();
        words.insert(device.name().to_lowercase());
        let node = device.node().and_then(|node| node.file_name()).and_then(|name| name.to_str());
        words.extend(node.map(str::to_lowercase));
        // One that is zero is none.
        for guid in [device.node_guid(), device.sys_image_guid()].into_iter().filter(|guid| guid.0 != 0) {
            words.extend(spellings(guid));
        }
        for gid in context.gid_table().into_iter().flatten() {
            words.insert(Ipv6Addr::from(gid.raw).to_string());
        }
        for entry in nix::ifaddrs::getifaddrs().into_iter().flatten() {
            words.insert(entry.interface_name.to_lowercase());
        }
        words.extend(device.interfaces().iter().map(|interface| interface.name.to_lowercase()));
        if let Ok(name) = fs::read_to_string("/proc/sys/kernel/hostname") {
            let name = name.trim().to_lowercase();
            words.extend(name.split('.').next().map(str::to_owned));
            words.insert(name);
        }
        words.remove("");
        Self(words)
    }

    /// A text without what is private: words of this machine, and all that has the form of an address or of a key.
    pub(super) fn hide(&self, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-' | '@');
        let (mut hidden, mut rest) = (String::new(), text);
        while let Some(begin) = rest.find(is_part) {
            let word = &rest[begin..];
            let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
            let word = &word[..end];
            hidden.push_str(&rest[..begin]);
            // The end of a sentence is no part of a word.
            let bare = word.trim_end_matches(['.', ':', '-']);
            if self.is_private(bare) {
                hidden.push_str(HIDDEN);
                hidden.push_str(&word[bare.len()..]);
            } else {
                hidden.push_str(word);
            }
            rest = &rest[begin + end..];
        }
        hidden.push_str(rest);
        hidden
    }

    fn is_private(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        // `NAME:PORT`, also of a port of the device.
        let before = word.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        self.0.contains(&word) || before.is_some_and(|(name, _)| self.0.contains(name)) || has_form(&word)
    }
}

/// A GUID as programs write it.
fn spellings(guid: Guid) -> [String; 4] {
    [guid.to_string(), format!("{:x}", guid.0), format!("{:016x}", guid.0), guid.0.to_string()]
}

/// Whether a word has the form of an address of the network or of memory, of a GUID, or of a key.
fn has_form(word: &str) -> bool {
    let are_digits = |text: &str, most: usize| {
        !text.is_empty() && text.len() <= most && text.chars().all(|c| c.is_ascii_hexdigit())
    };
    let groups = word.split(':').count();
    let is_grouped = matches!(groups, 4 | 6 | 8) && word.split(':').all(|group| are_digits(group, 4));
    let is_long = word.strip_prefix("0x").is_some_and(|digits| digits.len() > 4 && are_digits(digits, 16));
    let is_number = word.len() > 9 && word.chars().all(|c| c.is_ascii_digit()) && word != "4294967295";
    // "::" alone has no more than two characters.
    let is_address = word.len() > 2 && word.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok();
    is_grouped || is_long || is_number || is_address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_hidden_and_the_rest_stays() {
        let words = ["mlx5_7", "eth0", "ada", "ada.example.org"];
        let private = Private(words.into_iter().map(str::to_owned).collect());
        for (text, hidden) in [
            ("device mlx5_7 on eth0", "device (hidden) on (hidden)"),
            ("on ada.example.org: no", "on (hidden): no"),
            ("Ada's", "(hidden)'s"),
            ("from 192.0.2.1 to fe80::1.", "from (hidden) to (hidden)."),
            ("guid 506b:4b03:00c1:a2b4", "guid (hidden)"),
            ("mac 02:00:00:00:00:01", "mac (hidden)"),
            ("key 0x1ffed30 at 140737488355328", "key (hidden) at (hidden)"),
            (
                "qp.create: invalid input (EINVAL): 40 given, 0..30 allowed",
                "qp.create: invalid input (EINVAL): 40 given, 0..30 allowed",
            ),
            ("mlx5 adapts; eth01 is not eth0", "mlx5 adapts; eth01 is not (hidden)"),
            ("byte 0x1f; rxe_resp.c, Linux 6.1", "byte 0x1f; rxe_resp.c, Linux 6.1"),
        ] {
            assert_eq!(private.hide(text), hidden);
        }
    }

    #[test]
    fn a_port_behind_a_name_or_an_address_does_not_show_it() {
        let private = Private(["mlx5_7", "ada"].into_iter().map(str::to_owned).collect());
        for (text, hidden) in [
            ("connecting to 192.0.2.1:18516: no", "connecting to (hidden): no"),
            ("from [2001:db8::1]:4791.", "from [(hidden)]:4791."),
            ("Ada:18516 and mlx5_7:1", "(hidden) and (hidden)"),
            ("step:1 of eve:2", "step:1 of eve:2"),
        ] {
            assert_eq!(private.hide(text), hidden);
        }
    }

    #[test]
    fn a_guid_is_hidden_however_it_is_written() {
        let private = Private(spellings(Guid(0x0002_c903_0a1b_2c3d)).into());
        let text = "0002c9030a1b2c3d 2c9030a1b2c3d 0x0002c9030a1b2c3d 0002:c903:0a1b:2c3d 783964845059133";
        assert_eq!(private.hide(text), ["(hidden)"; 5].join(" "));
    }
}
