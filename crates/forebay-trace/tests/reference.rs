//! The simulator against published figures of real traces, which the project does not keep: the
//! check runs when `FOREBAY_TRACES` names their folder. The same code is tested on made-up traces in
//! `simulate/tests.rs`.

#[path = "../reference/table.rs"]
mod table;

#[test]
fn figures_equal_the_published_ones() {
    let Some(folder) = std::env::var_os("FOREBAY_TRACES") else {
        println!("not asked for: FOREBAY_TRACES names no folder of traces");
        return;
    };
    let mut wrong = Vec::new();
    let compared = table::compare(folder.as_ref(), |cell| {
        if !cell.is_good() {
            wrong.push(format!("{}: {} instead of {}", cell.what, cell.found, cell.expect));
        }
    });
    compared.expect("the folder has the traces");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
