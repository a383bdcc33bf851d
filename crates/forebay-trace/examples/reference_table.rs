//! Prints the simulator's figures beside the published ones; exits with 1 when one differs.
//!
//! `cargo run --release -p forebay-trace --example reference_table -- FOLDER` with the folder of the
//! traces (see `reference/table.rs`).

#[path = "../reference/table.rs"]
mod table;

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: reference_table FOLDER (of the traces that reference/table.rs names)");
        return ExitCode::from(2);
    };
    let (mut good, mut bad) = (0, 0);
    println!("{:<66} {:>9} {:>9} {:>9}", "", "published", "ours", "differ");
    let result = table::compare(folder.as_ref(), |cell| {
        let verdict = if cell.is_good() { "" } else { "  <-- differs" };
        good += u32::from(cell.is_good());
        bad += u32::from(!cell.is_good());
        let differ = cell.found - cell.expect;
        println!(
            "{:<66} {:>9.4} {:>9.4} {differ:>+9.5}{verdict}",
            cell.what, cell.expect, cell.found
        );
    });
    if let Err(error) = result {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    println!("{good} figures are as close as they must be ({}), {bad} differ", table::TOLERANCE);
    if bad > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
