//! `uverbs info`: what a device is and can do.
//!
//! Names, values and layout are those of `ibv_devinfo -v`, so that the two can be compared. After them comes a section that only this
//! program has.

mod caps;
mod port;
mod section;
pub(crate) mod words;

use serde_json::{Value, json};
use uverbs::abi::write::ExQueryDeviceResp;
use uverbs::{Context, Device, ErrorKind, Guid};

use self::section::Section;
use crate::Outcome;
use crate::devices::NetDevice;
use crate::output::Output;
use crate::target::Named;

/// Options of `uverbs info`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    device: Named,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, trace: bool) -> Outcome {
    let target = args.device.find(trace)?;
    let context = target.open()?;
    let answer = context.query_device()?;
    let (_, transport) = words::transport(target.device.node_type());
    let mut device = device(&context, context.device(), &answer)?;
    let gids = context.gid_table()?;
    let mut ports = Vec::new();
    for number in 1..=answer.base.phys_port_cnt {
        let port = port::port(&context, number, &gids, transport)?;
        device.text.push_str(&port.text);
        ports.push(Value::Object(port.json));
    }
    device.json.insert("ports".to_owned(), ports.into());
    device.nest("uverbs", own(&context, context.device()));
    let mut output = Output::new();
    if args.json { output.json(&device.json) } else { output.text(device.text) }
}

/// Everything except the ports.
fn device(context: &Context, device: &Device, answer: &ExQueryDeviceResp) -> Outcome<Section> {
    let base = answer.base;
    let mut section = Section::new(1, 5);
    section.text.push_str(&format!("hca_id:\t{}\n", device.name()));
    section.json.insert("hca_id".to_owned(), device.name().into());
    let (transport, number) = words::transport(device.node_type());
    section.coded("transport", transport, number);
    section.text("fw_ver", firmware(context, base.fw_ver));
    section.text("node_guid", Guid(base.node_guid.get()));
    section.text("sys_image_guid", Guid(base.sys_image_guid.get()));
    section.text("vendor_id", format_args!("{:#06x}", base.vendor_id));
    section.number("vendor_part_id", base.vendor_part_id);
    section.text("hw_ver", format_args!("{:#X}", base.hw_ver));
    let board = device.sysfs().and_then(|path| std::fs::read_to_string(path.join("board_id")).ok());
    if let Some(board) = board.as_deref().map(str::trim_end).filter(|board| !board.is_empty()) {
        section.text("board_id", board);
    }
    section.number("phys_port_cnt", base.phys_port_cnt);
    section.text("max_mr_size", format_args!("{:#x}", base.max_mr_size));
    section.text("page_size_cap", format_args!("{:#x}", base.page_size_cap));
    section.number("max_qp", base.max_qp);
    section.number("max_qp_wr", base.max_qp_wr);
    caps::flags(&mut section, base.device_cap_flags);
    section.number("max_sge", base.max_sge);
    section.number("max_sge_rd", base.max_sge_rd);
    section.number("max_cq", base.max_cq);
    section.number("max_cqe", base.max_cqe);
    section.number("max_mr", base.max_mr);
    section.number("max_pd", base.max_pd);
    section.number("max_qp_rd_atom", base.max_qp_rd_atom);
    section.number("max_ee_rd_atom", base.max_ee_rd_atom);
    section.number("max_res_rd_atom", base.max_res_rd_atom);
    section.number("max_qp_init_rd_atom", base.max_qp_init_rd_atom);
    section.number("max_ee_init_rd_atom", base.max_ee_init_rd_atom);
    section.coded("atomic_cap", words::atomics(base.atomic_cap), base.atomic_cap);
    section.number("max_ee", base.max_ee);
    section.number("max_rdd", base.max_rdd);
    section.number("max_mw", base.max_mw);
    section.number("max_raw_ipv6_qp", base.max_raw_ipv6_qp);
    section.number("max_raw_ethy_qp", base.max_raw_ethy_qp);
    section.number("max_mcast_grp", base.max_mcast_grp);
    section.number("max_mcast_qp_attach", base.max_mcast_qp_attach);
    section.number("max_total_mcast_qp_attach", base.max_total_mcast_qp_attach);
    section.number("max_ah", base.max_ah);
    section.number("max_fmr", base.max_fmr);
    if base.max_fmr != 0 {
        section.number("max_map_per_fmr", base.max_map_per_fmr);
    }
    section.number("max_srq", base.max_srq);
    if base.max_srq != 0 {
        section.number("max_srq_wr", base.max_srq_wr);
        section.number("max_srq_sge", base.max_srq_sge);
    }
    section.number("max_pkeys", base.max_pkeys);
    section.number("local_ca_ack_delay", base.local_ca_ack_delay);
    caps::extended(&mut section, answer, context.query_device_mlx5()?.as_ref());
    section.number("num_comp_vectors", context.completion_vectors());
    Ok(section)
}

/// The firmware's version. If there is no text for the device, the number is split up as libibverbs does it.
fn firmware(context: &Context, number: u64) -> String {
    let part = |shift: u32| number >> shift & 0xffff;
    let said = context.firmware(number);
    if said.is_empty() { format!("{}.{}.{}", part(32), part(16), part(0)) } else { said }
}

/// What this program adds.
fn own(context: &Context, device: &Device) -> Section {
    let mut section = Section::new(2, 5);
    section.text("driver", device.driver());
    section.number("driver_abi", device.abi_version());
    match device.node() {
        Some(path) => section.text("node", path.display()),
        None => section.field("node", "none: embedded in this program", Value::Null),
    }
    let interfaces = NetDevice::all(device);
    let names: Vec<_> = interfaces.iter().map(|net| format!("{} (port {})", net.name, net.port)).collect();
    section.field(
        "net_devices",
        if names.is_empty() { "none".to_owned() } else { names.join(", ") },
        json!(interfaces),
    );
    let flows = context.has_flows().map(|has| match has {
        true => Ok("supported (the driver has a function for them)"),
        false => Err(format!("the driver {} has no flows", device.driver())),
    });
    support(&mut section, "flows", flows);
    // Found out by making one, which nothing else can see, and destroying it again.
    let counters = match context.create_counters() {
        Ok(counters) => {
            counters.destroy().map(|()| Ok("supported: packets, bytes")).map_err(|(_, error)| error)
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Ok(Err(error.hint().unwrap_or("the driver has none").to_owned()))
        }
        Err(error) => Err(error),
    };
    support(&mut section, "flow_counters", counters);
    section
}

/// Supported; unsupported, and why; or unknown, and why.
fn support(section: &mut Section, key: &str, found: uverbs::Result<Result<&str, String>>) {
    match found {
        Ok(Ok(text)) => section.field(key, text, json!({ "supported": true })),
        Ok(Err(why)) => {
            section.field(
                key,
                format_args!("unsupported: {why}"),
                json!({ "supported": false, "reason": why }),
            );
        }
        Err(error) => {
            let why = error.to_string();
            section.field(key, format_args!("unknown: {why}"), json!({ "supported": null, "reason": why }));
        }
    }
}
