//! Compares every row of the tables with the golden list, and with the kernel's header if its source is available.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::tables;

#[path = "../../../common/skips.rs"]
mod skips;

const GOLDEN: &str = include_str!("../../golden/mlx5_ifc.txt");
const HEADER: &str = "include/linux/mlx5/mlx5_ifc.h";

/// Bit offset and width of fields, by structure and name.
type Layout = BTreeMap<(String, String), (usize, usize)>;

fn ours() -> Layout {
    let rows = tables()
        .flat_map(|(structure, fields)| fields.iter().map(move |(name, field)| (structure, name, field)));
    rows.map(|(structure, name, field)| {
        ((structure.to_string(), name.to_string()), (field.offset, field.width))
    })
    .collect()
}

fn golden() -> Layout {
    let lines = GOLDEN.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &str| {
        let [structure, name, offset, width] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let offset = usize::from_str_radix(offset.trim_start_matches("0x"), 16).expect("an offset");
        ((structure.to_owned(), name.to_owned()), (offset, width.parse().expect("a width")))
    };
    lines.map(row).collect()
}

#[test]
fn the_tables_are_the_golden_list() {
    assert_eq!(ours(), golden());
}

#[test]
fn the_tables_are_those_of_the_kernels_header() {
    let roots =
        std::env::var("UVERBS_LINUX_SOURCE").into_iter().chain(["/usr/src/linux-source-6.1".to_owned()]);
    let headers = roots.map(|root| PathBuf::from(root).join(HEADER));
    let Some(text) = headers.filter_map(|path| std::fs::read_to_string(path).ok()).next() else {
        skips::skipped(format_args!(
            "the kernel's header: no {HEADER} in UVERBS_LINUX_SOURCE or /usr/src/linux-source-6.1"
        ));
        return;
    };
    let header = Header::parse(&text);
    for ((structure, name), place) in ours() {
        assert_eq!(header.field(&structure, &name), Some(place), "{structure}.{name}");
    }
}

/// The library's structs of commands, which were written by hand from the header.
#[test]
fn the_librarys_commands_are_laid_out_like_this() {
    let place = |structure: &str, name: &str| {
        let (structure, name) = name.split_once('.').unwrap_or((structure, name));
        super::find(structure, name).unwrap_or_else(|| panic!("{structure}.{name}"))
    };
    for layout in uverbs::abi::layout::firmware_structs() {
        for field in layout.fields.iter().filter(|field| !field.c_name.is_empty()) {
            let (start, end) = (field.offset * 8, (field.offset + field.size) * 8);
            let name = format!("{}.{}", layout.c_name, field.c_name);
            let (first, last) = field.c_name.split_once("..").unwrap_or((field.c_name, field.c_name));
            if !first.is_empty() {
                assert_eq!(place(layout.c_name, first).offset, start, "begin of {name}");
            }
            if !last.is_empty() {
                let last = place(layout.c_name, last);
                assert_eq!(last.offset + last.width, end, "end of {name}");
            }
        }
    }
}

/// The places where the library reads capabilities, in bytes and bits of a byte.
#[test]
fn the_librarys_capabilities_are_here() {
    use uverbs::abi::mlx5::prm;

    use crate::bits::{Bits, BitsMut};
    use crate::command::LOG_RESERVED_QPNS;
    use crate::ifc::capability::{
        cmd_hca_cap, flow_table_fields_supported as fields, flow_table_nic_cap, flow_table_prop_layout,
    };
    let receive = flow_table_nic_cap::flow_table_properties_nic_receive;
    let support = flow_table_prop_layout::ft_field_support.within(receive);
    for (field, byte, bits) in [
        (cmd_hca_cap::flow_counter_bulk_alloc, prm::CAP_FLOW_COUNTER_BULK_ALLOC, 0xff),
        (cmd_hca_cap::log_max_flow_counter_bulk, prm::CAP_LOG_MAX_FLOW_COUNTER_BULK, 0xff),
        (cmd_hca_cap::hca_cap_2, prm::CAP_HAS_GENERAL_2, prm::CAP_HAS_2),
        (LOG_RESERVED_QPNS, prm::CAP_2_LOG_RESERVED_QPNS, 0x1f),
        (fields::outer_ip_version.within(support), prm::CAP_OUTER_IP_VERSION, prm::CAP_IP_VERSION),
        (fields::inner_ip_version.within(support), prm::CAP_INNER_IP_VERSION, prm::CAP_IP_VERSION),
    ] {
        let mut bytes = vec![0; prm::HCA_CAP_SIZE];
        bytes.set(field, u64::MAX);
        assert_eq!(bytes.iter().position(|byte| *byte != 0), Some(byte));
        assert_eq!((bytes[byte], bytes.wide(field).count_ones()), (bits, bits.count_ones()));
    }
    assert_eq!(cmd_hca_cap::general_obj_types.offset, prm::CAP_GENERAL_OBJ_TYPES * 8);
}

/// A member of a structure in the header.
#[derive(Debug)]
struct Member {
    name: Option<String>,
    count: usize,
    kind: Type,
}

#[derive(Debug)]
enum Type {
    Bit,
    Named(String),
    Body { is_union: bool, members: Vec<Member> },
}

/// The structures of the header: each has one `u8` for every bit.
#[derive(Debug, Default)]
struct Header {
    types: BTreeMap<String, Type>,
}

impl Header {
    fn parse(text: &str) -> Self {
        let mut plain = String::new();
        for (i, part) in text.split("/*").enumerate() {
            plain.push_str(if i == 0 { part } else { part.split_once("*/").map_or("", |(_, rest)| rest) });
        }
        let mut words = Vec::new();
        let mut word = String::new();
        for c in plain.chars() {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            if "{}[];".contains(c) {
                words.push(c.to_string());
            }
        }
        let mut header = Self::default();
        let mut at = 0;
        while at + 2 < words.len() {
            let is_union = words[at] == "union";
            if (is_union || words[at] == "struct")
                && words[at + 1].starts_with("mlx5_ifc_")
                && words[at + 2] == "{"
            {
                let name = words[at + 1].clone();
                at += 3;
                let members = members(&words, &mut at);
                header.types.insert(name, Type::Body { is_union, members });
            } else {
                at += 1;
            }
        }
        header
    }

    fn size(&self, kind: &Type) -> usize {
        match kind {
            Type::Bit => 1,
            // A type of another header: no fields of our tables follow it.
            Type::Named(name) => self.types.get(name).map_or(0, |kind| self.size(kind)),
            Type::Body { is_union, members } => {
                let sizes = members.iter().map(|member| member.count * self.size(&member.kind));
                if *is_union { sizes.max().unwrap_or(0) } else { sizes.sum() }
            }
        }
    }

    fn field(&self, structure: &str, name: &str) -> Option<(usize, usize)> {
        self.inside(self.types.get(&format!("mlx5_ifc_{structure}_bits"))?, name)
    }

    fn inside(&self, kind: &Type, name: &str) -> Option<(usize, usize)> {
        let Type::Body { is_union, members } = kind else { return None };
        let mut offset = 0;
        for member in members {
            let size = member.count * self.size(&member.kind);
            match &member.name {
                Some(found) if found == name => return Some((offset, size)),
                None => {
                    if let Some((inner, size)) = self.inside(&member.kind, name) {
                        return Some((offset + inner, size));
                    }
                }
                Some(_) => {}
            }
            if !is_union {
                offset += size;
            }
        }
        None
    }
}

fn members(words: &[String], at: &mut usize) -> Vec<Member> {
    let mut members = Vec::new();
    while words[*at] != "}" {
        let kind = match (&words[*at][..], &words[*at + 1][..]) {
            ("u8", _) => {
                *at += 1;
                Type::Bit
            }
            (outer @ ("struct" | "union"), "{") => {
                let is_union = outer == "union";
                *at += 2;
                let members = self::members(words, at);
                Type::Body { is_union, members }
            }
            ("struct" | "union", named) => {
                let kind = Type::Named(named.to_owned());
                *at += 2;
                kind
            }
            other => panic!("{other:?} in a structure"),
        };
        let name = (words[*at] != ";").then(|| words[*at].clone());
        *at += usize::from(name.is_some());
        let mut count = 1;
        while words[*at] == "[" {
            let number = &words[*at + 1];
            let hexadecimal = number.strip_prefix("0x").map(|digits| usize::from_str_radix(digits, 16));
            // An array without a length adds no size; lengths by name do not occur in our tables.
            count *= hexadecimal.unwrap_or_else(|| number.parse()).unwrap_or(0);
            *at += if number == "]" { 2 } else { 3 };
        }
        *at += 1;
        members.push(Member { name, count, kind });
    }
    *at += 1;
    members
}
