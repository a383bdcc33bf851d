//! Vital product data: the pages that INQUIRY shows with EVPD.
//!
//! The limits in page B0 are the constants that the commands check.

use super::export::{Export, Port};
use super::identity::VENDOR;
use super::nexus::NexusId;
use super::provisioning::{SAME_MAX, UNMAP_BLOCKS_MAX, UNMAP_DESCRIPTORS_MAX};
use super::transfer::{COMPARE_MAX, TRANSFER_MAX};
use super::unit::{BLOCK, LogicalUnit};

const PAGES: [u8; 9] = [0x00, 0x80, 0x83, 0x86, 0x87, 0x88, 0xb0, 0xb1, 0xb2];

/// A transfer of this many blocks is served well.
const TRANSFER_OPTIMAL: u32 = (1 << 20) / BLOCK as u32;

/// Whom a designator names.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Association {
    LogicalUnit = 0,
    TargetPort = 1,
    TargetDevice = 2,
}

/// A page, `None` when there is no such page.
pub(super) fn page(unit: &LogicalUnit, nexus: NexusId, code: u8) -> Option<Vec<u8>> {
    let body = match code {
        0x00 => PAGES.to_vec(),
        0x80 => unit.identity.serial.clone().into_bytes(),
        0x83 => device_identification(unit, nexus),
        0x86 => extended_inquiry(),
        // One set of mode pages for all nexuses.
        0x87 => vec![0x3f, 0xff, 0, 0],
        0x88 => unit.export.ports.iter().flat_map(scsi_port).collect(),
        0xb0 => block_limits(&unit.export),
        // Not a rotating medium.
        0xb1 => padded(vec![0x00, 0x01], 60),
        // LBPU, LBPWS, LBPWS10, LBPRZ, ANC_SUP; thin.
        0xb2 => vec![0, 0xe6, 0x02, 0],
        _ => return None,
    };
    let mut bytes = vec![0, code];
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&body);
    Some(bytes)
}

fn padded(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    bytes.resize(len, 0);
    bytes
}

fn device_identification(unit: &LogicalUnit, nexus: NexusId) -> Vec<u8> {
    let vendor = [VENDOR.as_slice(), unit.identity.serial.as_bytes()].concat();
    let mut bytes = designator(Association::LogicalUnit, 1, 3, &unit.identity.naa);
    bytes.extend(designator(Association::LogicalUnit, 2, 1, &vendor));
    let relative = unit.nexuses.of(nexus).nexus.port;
    if let Some(port) = unit.export.ports.iter().find(|port| port.relative == relative) {
        let number = |number: u16| [[0, 0], number.to_be_bytes()].concat();
        bytes.extend(designator(Association::TargetPort, 1, 4, &number(port.relative)));
        bytes.extend(designator(Association::TargetPort, 1, 5, &number(port.group)));
        bytes.extend(designator(Association::TargetPort, 3, 8, &text(&port.name())));
        bytes.extend(designator(Association::TargetDevice, 3, 8, &text(&port.target)));
    }
    bytes
}

/// A SCSI name string: UTF-8 that ends with a zero and is a multiple of four bytes long.
fn text(name: &str) -> Vec<u8> {
    padded(name.as_bytes().to_vec(), (name.len() + 1).next_multiple_of(4))
}

/// `code_set`: 1 binary, 2 ASCII, 3 UTF-8. `kind`: 1 T10, 3 NAA, 4 port, 5 group, 8 name.
fn designator(association: Association, code_set: u8, kind: u8, name: &[u8]) -> Vec<u8> {
    // Ports and devices belong to iSCSI (5), which PIV says is valid.
    let (protocol, piv) = match association {
        Association::LogicalUnit => (0, 0),
        Association::TargetPort | Association::TargetDevice => (5 << 4, 1 << 7),
    };
    let name = &name[..name.len().min(255)];
    let head = [protocol | code_set, piv | (association as u8) << 4 | kind, 0, name.len() as u8];
    [head.as_slice(), name].concat()
}

fn extended_inquiry() -> Vec<u8> {
    let mut body = vec![0; 60];
    // HEADSUP, ORDSUP, SIMPSUP; V_SUP; LUICLR.
    body[1] = 0x07;
    body[2] = 0x01;
    body[3] = 0x01;
    body
}

fn scsi_port(port: &Port) -> Vec<u8> {
    let name = designator(Association::TargetPort, 3, 8, &text(&port.name()));
    let [high, low] = port.relative.to_be_bytes();
    let [len_high, len_low] = (name.len() as u16).to_be_bytes();
    let head = [0, 0, high, low, 0, 0, 0, 0, 0, 0, len_high, len_low];
    [head.as_slice(), &name].concat()
}

fn block_limits(export: &Export) -> Vec<u8> {
    let atomic = export.atomic_write_max / BLOCK as u32;
    let physical = export.blocks_per_physical();
    // WSNZ.
    let mut body = vec![1, COMPARE_MAX];
    body.extend_from_slice(&(u16::try_from(physical).unwrap_or(0)).to_be_bytes());
    for limit in [
        TRANSFER_MAX,
        TRANSFER_OPTIMAL,
        TRANSFER_MAX, // to fetch
        UNMAP_BLOCKS_MAX,
        UNMAP_DESCRIPTORS_MAX,
        physical, // granularity of UNMAP
        1 << 31,  // its alignment is 0, and valid
        0,        // WRITE SAME, upper half
        SAME_MAX,
        atomic,
        u32::from(atomic > 0), // alignment
        u32::from(atomic > 0), // granularity
        0,                     // with a boundary
        0,
    ] {
        body.extend_from_slice(&limit.to_be_bytes());
    }
    body
}
