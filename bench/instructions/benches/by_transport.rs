//! Instructions of RAM read hits by transport, counted under valgrind: 1024 hits of 4 KiB over an
//! index of 64 Ki blocks. A client asks for 32 at a time and takes all answers. Its protocol's
//! driver, the reactor and the engine are the real ones. The disk is observed as it is by default,
//! by flight recorder and miss-ratio curve. Each fails above its limit.
//!
//! | | beside the engine |
//! |---|---|
//! | `engine` | nothing: what the others are compared with |
//! | `vhost_user` | a ring in a guest's memory; 780 instructions copy the block in moves of 16 bytes |
//! | `nbd` | a unix socket, structured replies |
//! | `iscsi` | a unix socket, READ (10), no digests |
//!
//! The kernel's instructions are not counted. A system call costs only what it takes to make it,
//! and bytes that go through a socket cost nothing. The small shard of `src/shard.rs` takes 40 to 50
//! instructions of a hit. The client takes 3 at most: for each batch it makes a write and a read,
//! or as a guest two stores and a load.

use forebay_instructions::engine::Bare;
use forebay_instructions::iscsi::Iscsi;
use forebay_instructions::limit::at_most;
use forebay_instructions::load::Served;
use forebay_instructions::nbd::Nbd;
use forebay_instructions::socket::Socket;
use forebay_instructions::vhost_user::Guest;
use gungraun::prelude::*;

#[library_benchmark]
#[bench::lap(setup = Bare::new, config = at_most(801_000))]
fn engine(mut bare: Bare) -> Bare {
    bare.lap();
    bare
}

#[library_benchmark]
#[bench::lap(setup = forebay_instructions::vhost_user::served, config = at_most(3_530_000))]
fn vhost_user(mut served: Served<Guest>) -> Served<Guest> {
    served.lap();
    served
}

#[library_benchmark]
#[bench::lap(setup = forebay_instructions::nbd::served, config = at_most(1_965_000))]
fn nbd(mut served: Served<Socket<Nbd>>) -> Served<Socket<Nbd>> {
    served.lap();
    served
}

#[library_benchmark]
#[bench::lap(setup = forebay_instructions::iscsi::served, config = at_most(4_135_000))]
fn iscsi(mut served: Served<Socket<Iscsi>>) -> Served<Socket<Iscsi>> {
    served.lap();
    served
}

library_benchmark_group!(name = hits, benchmarks = [engine, vhost_user, nbd, iscsi]);

main!(library_benchmark_groups = hits);
