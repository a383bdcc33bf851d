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
    let standings = match table::auto(folder.as_ref()) {
        Ok(standings) => standings,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    show_auto(&standings);
    println!("{good} figures are as close as they must be ({}), {bad} differ", table::TOLERANCE);
    if bad > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// `auto` beside the best of the others and the offline optimum.
fn show_auto(standings: &[table::Standing]) {
    println!("\n{:<30} {:>18} {:>8} {:>8} {:>8}", "misses", "best", "auto", "points", "belady");
    for row in standings {
        let (best, least) = row.best;
        let (auto, points, belady) = (row.auto, row.excess(), row.belady);
        println!(
            "{:<30} {best:>10} {least:>7.4} {auto:>8.4} {points:>+8.2} {belady:>8.4}",
            row.what
        );
    }
    let mean = standings.iter().map(table::Standing::excess).sum::<f64>() / standings.len() as f64;
    let most = standings.iter().map(table::Standing::excess).fold(f64::MIN, f64::max);
    println!(
        "above the best, in percentage points: auto {mean:.2} on the mean, {most:.2} at most;"
    );
    for (policy, mean) in table::excesses(standings) {
        println!("{policy:>12} {mean:.2} on the mean");
    }
}
