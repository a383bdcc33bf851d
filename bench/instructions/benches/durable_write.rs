//! Instructions of durable writes of 4 KiB in the engine, counted under valgrind: 1024 of them in
//! batches of 32, from the request to its reply, and on to primary storage. The disk is observed as
//! it is by default. Nothing is copied, and no page of the log is built: that is the executor's.

use forebay_instructions::limit::at_most;
use forebay_instructions::writes::Writes;
use gungraun::prelude::*;

#[library_benchmark]
#[bench::lap(setup = Writes::new, config = at_most(8_800_000))]
fn engine(mut writes: Writes) -> Writes {
    writes.lap();
    writes
}

library_benchmark_group!(name = writes, benchmarks = engine);

main!(library_benchmark_groups = writes);
