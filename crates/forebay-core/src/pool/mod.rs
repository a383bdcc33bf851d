//! The flash pool: segments, who leases them, and the records of the disks. No I/O.
