//! The pages of `docs/reference`, made from the types: `forebay reference PAGE` prints one.
//!
//! A test compares each page with the file that is committed. `make reference` writes the files anew.

mod cli;
mod configuration;
mod errors;
mod events;
mod markdown;
mod metrics;
mod states;
mod statistics;
mod tree;

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Page {
    /// Commands and options
    Cli,
    /// Keys of the configuration file
    Configuration,
    /// The same as a JSON schema, for editors
    Schema,
    /// Figures in JSON
    Statistics,
    /// Metrics over HTTP
    Metrics,
    /// States in JSON
    States,
    /// Events
    Events,
    /// Exit codes and errors
    Errors,
}

impl Page {
    /// What it says.
    pub fn text(self) -> String {
        match self {
            Page::Cli => cli::page(),
            Page::Configuration => configuration::page(),
            Page::Schema => configuration::schema(),
            Page::Statistics => statistics::page(),
            Page::Metrics => metrics::page(),
            Page::States => states::page(),
            Page::Events => events::page(),
            Page::Errors => errors::page(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn file(page: Page) -> &'static str {
        match page {
            Page::Cli => "cli.md",
            Page::Configuration => "configuration.md",
            Page::Schema => "configuration.schema.json",
            Page::Statistics => "statistics.md",
            Page::Metrics => "metrics.md",
            Page::States => "states.md",
            Page::Events => "events.md",
            Page::Errors => "errors.md",
        }
    }

    #[test]
    fn the_reference_is_what_the_program_makes() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");
        for page in Page::value_variants() {
            let (path, text) = (format!("{folder}/{}", file(*page)), page.text());
            if std::env::var_os("FOREBAY_BLESS").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let is_current = std::fs::read_to_string(&path).is_ok_and(|found| found == text);
            assert!(is_current, "docs/reference/{} is old: make reference", file(*page));
        }
    }

    #[test]
    fn the_reference_fits_a_narrow_window() {
        for page in Page::value_variants().iter().filter(|page| **page != Page::Schema) {
            let text = page.text();
            // A table has a line for each row, and what is quoted is as it is printed.
            let wide = text.split("```").step_by(2).flat_map(str::lines).filter(|line| {
                line.chars().count() > 100 && !line.starts_with('|') && !line.starts_with('#')
            });
            assert_eq!(wide.collect::<Vec<_>>(), [""; 0], "{page:?}");
        }
    }
}
