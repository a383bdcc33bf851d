//! Reports as HTML that needs nothing else: no network, no script; charts are drawn when it is made, and it prints.
//! The style sheet has a light and a dark theme, and lays a page out for wide and narrow windows and for paper.
//!
//! ```text
//! Run(s), Info, Device(s), Curve(s), Outcome ─► a page of sections ─► tables (maud, which escapes) and charts (`chart`, plotters)
//! ```
//! What a page shows is in the JSON of the same command (docs/traces/reports.md).

mod advice;
mod chart;
mod comparison;
pub mod figures;
mod heat;
mod histograms;
mod info;
mod mrc;
mod replay;
mod what_if;

use maud::{DOCTYPE, Markup, PreEscaped, html};

pub use advice::{DiskAdvice, advice};
pub use comparison::{comparison, mismatches, value};
pub use histograms::histograms;
pub use info::info;
pub use mrc::mrc;
pub use replay::{notes, replay};
pub use what_if::what_if;

/// Columns with a longer cell are text, which may be broken.
const WIDE: usize = 24;
/// A longer heading may be broken within its words, so that names are.
const HEADING: usize = 12;
/// The axis of a chart over time.
const TIME: &str = "Time since the start";
const STYLE: &str = include_str!("style.css");

/// A page.
fn page(title: &str, lead: &Markup, sections: &Markup) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content={ "forebay " (version) };
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { (title) } (lead) }
                main { (sections) }
                footer.quiet { "Made by forebay " (version) "." }
            }
        }
    };
    page.into_string()
}

/// A first column with what belongs to each of many things, in as many tables as fit on paper: `columns` of each.
fn tables(first: &str, head: &[String], rows: &[(String, Vec<String>)], columns: usize) -> Markup {
    let part = |from: usize| {
        let within = from..head.len().min(from + columns);
        let names: Vec<&str> =
            [first].into_iter().chain(head[within.clone()].iter().map(String::as_str)).collect();
        let cells = |(name, cells): &(String, Vec<String>)| {
            [name.clone()].into_iter().chain(cells[within.clone()].iter().cloned()).collect()
        };
        table(&names, &rows.iter().map(cells).collect::<Vec<_>>())
    };
    html! { @for from in (0..head.len()).step_by(columns) { (part(from)) } }
}

/// A table whose first column is text.
fn table(head: &[&str], rows: &[Vec<String>]) -> Markup {
    let is_text = |column: usize| {
        rows.iter().any(|row| row.get(column).is_some_and(|cell| cell.len() > WIDE))
    };
    html! {
        // Roles, because a narrow window shows each row as a block.
        table role="table" {
            thead role="rowgroup" {
                tr role="row" {
                    @for (column, name) in head.iter().enumerate() {
                        th.text[is_text(column)].long[name.len() > HEADING] role="columnheader" scope="col" { (name) }
                    }
                }
            }
            tbody role="rowgroup" { @for row in rows { (table_row(head, row, &is_text)) } }
        }
    }
}

fn table_row(head: &[&str], row: &[String], is_text: &impl Fn(usize) -> bool) -> Markup {
    html! {
        tr role="row" {
            @for (column, cell) in row.iter().enumerate() {
                @if column == 0 { th role="rowheader" scope="row" { (cell) } }
                @else { td.text[is_text(column)] role="cell" data-head=(head[column]) { (cell) } }
            }
        }
    }
}

fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// A table of facts: name, value.
fn facts(rows: &[(&str, String)]) -> Markup {
    html! {
        table.facts role="table" {
            tbody role="rowgroup" {
                @for (name, value) in rows {
                    tr role="row" { th role="rowheader" scope="row" { (name) } td.text role="cell" { (value) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
