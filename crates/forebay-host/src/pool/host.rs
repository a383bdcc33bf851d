//! What only the host knows: random numbers, the date, which boot this is.

use std::fs;
use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_core::ids::Uuid;

/// Random bytes.
/// Bytes that nobody outside knows.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A name that nothing else has (version 4).
pub fn new_uuid() -> io::Result<Uuid> {
    let mut bytes: [u8; 16] = random()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}

/// A number that nobody outside knows.
pub fn new_nonce() -> io::Result<u64> {
    Ok(u64::from_le_bytes(random()?))
}

/// What the host is called.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Which boot of the host this is; nobody's where the kernel does not tell.
pub fn boot() -> Uuid {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or("00");
        *byte = u8::from_str_radix(pair, 16).unwrap_or(0);
    }
    Uuid(bytes)
}
