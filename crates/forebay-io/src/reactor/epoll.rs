//! placeholder
use super::Driver;
pub(super) struct Epoll;
impl Epoll {
    pub(super) fn new(_entries: u32) -> std::io::Result<Box<dyn Driver>> {
        Err(std::io::Error::from_raw_os_error(libc::ENOSYS))
    }
}
