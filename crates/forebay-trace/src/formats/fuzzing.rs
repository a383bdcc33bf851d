//! Body of the fuzz target: hostile bytes in, promises checked. The target in `fuzz/` feeds it what
//! libFuzzer finds; the tests feed it random bytes and damaged files on the stable toolchain. With
//! the feature `planted-bugs` it must fail soon.

use std::io::Cursor;

use super::{Format, Options, Reader};
use crate::record::{END_MAX, LEN_MAX};

/// A trace file: the first byte chooses the format (beyond the table: found by content), the rest is
/// the file.
pub fn trace_reader(data: &[u8]) {
    let Some((&choice, file)) = data.split_first() else { return };
    let format = Format::ALL.get(usize::from(choice)).map(|&(format, _)| format);
    for skip_bad in [0, 3, u64::MAX] {
        let options = Options { format, skip_bad, ..Options::default() };
        let Ok(mut reader) = Reader::new(Cursor::new(file.to_vec()), "fuzz", &options) else {
            continue;
        };
        let mut errors = 0;
        for record in reader.by_ref() {
            assert_eq!(errors, 0, "nothing comes after an error");
            match record {
                Ok(record) => {
                    let len = u64::from(record.len);
                    assert!((1..=LEN_MAX).contains(&len) && record.end() <= END_MAX);
                }
                Err(error) => {
                    assert!(error.to_string().starts_with("fuzz: "));
                    errors += 1;
                }
            }
        }
        let counts = reader.counts();
        assert!(counts.bad <= skip_bad);
        assert_eq!(counts.bad > 0, counts.first_bad.is_some());
    }
}
