//! Pieces of a page in Markdown.

use std::fmt::Write as _;

/// Columns of a line of prose.
const WIDTH: usize = 99;

/// A paragraph of prose.
pub(super) fn paragraph(page: &mut String, text: &str) {
    page.push('\n');
    wrapped(page, text, "");
}

/// A list of points.
pub(super) fn list<T: AsRef<str>>(page: &mut String, points: impl IntoIterator<Item = T>) {
    page.push('\n');
    for point in points {
        page.push_str("- ");
        wrapped(page, point.as_ref(), "  ");
    }
}

fn wrapped(page: &mut String, text: &str, indent: &str) {
    let mut column = indent.len();
    let mut is_first = true;
    for word in words(text) {
        let width = word.chars().count();
        if !is_first && column + 1 + width > WIDTH {
            let _ = write!(page, "\n{indent}");
            column = indent.len();
        } else if !is_first {
            page.push(' ');
            column += 1;
        }
        page.push_str(word);
        column += width;
        is_first = false;
    }
    page.push('\n');
}

/// Words to wrap at. A piece of code stays in one line.
fn words(text: &str) -> Vec<&str> {
    let (mut found, mut start, mut is_code) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        if letter == '`' {
            is_code = !is_code;
        } else if letter.is_whitespace() && !is_code {
            found.push(&text[start..at]);
            start = at + letter.len_utf8();
        }
    }
    found.push(&text[start..]);
    found.retain(|word| !word.is_empty());
    found
}

/// Lines as they are.
pub(super) fn block(page: &mut String, language: &str, lines: &str) {
    let _ = write!(page, "\n```{language}\n{}\n```\n", lines.trim_end());
}

/// A table; a column that is empty in every row is left out.
pub(super) fn table<const N: usize>(page: &mut String, heads: [&str; N], rows: &[[String; N]]) {
    if rows.is_empty() {
        return;
    }
    let kept: Vec<usize> =
        (0..N).filter(|&at| rows.iter().any(|row| !row[at].is_empty())).collect();
    let line = |cells: &[String]| {
        let cells: Vec<&str> = kept.iter().map(|&at| cells[at].trim_end()).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    page.push('\n');
    page.push_str(&line(&heads.map(str::to_owned)));
    let _ = writeln!(page, "|{}", "---|".repeat(kept.len()));
    for row in rows {
        page.push_str(&line(&row.each_ref().map(|cell| cell.replace('|', "\\|"))));
    }
}

/// Text as the program says it, with commands, options and values in quotes as code.
pub(super) fn prose(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\'') {
        let (before, quoted) = (&rest[..at], &rest[at + 1..]);
        let opens = before.is_empty() || before.ends_with([' ', '(']);
        let end = quoted.find('\'').filter(|_| opens);
        out += &options(before);
        match end {
            Some(end) => {
                let _ = write!(out, "`{}`", &quoted[..end]);
                rest = &quoted[end + 1..];
            }
            None => {
                out.push('\'');
                rest = quoted;
            }
        }
    }
    out + &options(rest)
}

/// Options, with what they take, and URIs as code. Pages of the documentation as links.
fn options(text: &str) -> String {
    let is_code = |word: &str| word.starts_with("--") && word.len() > 2 || word.contains("://");
    let is_value = |word: &str| word.len() > 1 && word.chars().all(|it| it.is_ascii_uppercase());
    let bare = |word: &str| {
        let start = word.len() - word.trim_start_matches('(').len();
        (start, word.trim_end_matches([' ', ',', '.', ';', ':', ')']).len().max(start))
    };
    let mut out = String::new();
    let mut words = text.split_inclusive(' ').peekable();
    while let Some(word) = words.next() {
        let (start, end) = bare(word);
        if let Some(page) = word[start..end].strip_prefix("docs/") {
            out += &word.replacen(&word[start..end], &format!("[{page}](../{page})"), 1);
            continue;
        }
        if start >= end || !is_code(&word[start..end]) {
            out += word;
            continue;
        }
        let _ = write!(out, "{}`{}", &word[..start], &word[start..end]);
        let value = words.next_if(|next| &word[end..] == " " && is_value(&next[..bare(next).1]));
        let _ = match value.map(|value| (value, bare(value).1)) {
            Some((value, end)) => write!(out, " {}`{}", &value[..end], &value[end..]),
            None => write!(out, "`{}", &word[end..]),
        };
    }
    out
}

/// A sentence that begins and ends as one.
pub(super) fn sentence(text: &str) -> String {
    let text = prose(text.trim());
    let end = if text.ends_with(['.', ':', '?']) { "" } else { "." };
    text + end
}

/// The name of a heading in a link.
pub(super) fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
    heading.to_lowercase().chars().filter(kept).map(|it| if it == ' ' { '-' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_options_become_code() {
        let check = |text: &str, expect: &str| assert_eq!(prose(text), expect);
        check("as 'forebay run' does (--json)", "as `forebay run` does (`--json`)");
        check("the user's folder", "the user's folder");
        check("give --control PATH, or 'x' here.", "give `--control PATH`, or `x` here.");
        check("less (docs/traces/x.md).", "less ([traces/x.md](../traces/x.md)).");
        check("(--html) and --json I", "(`--html`) and `--json` I");
    }

    #[test]
    fn prose_wraps_between_words_and_not_in_code() {
        let mut page = String::new();
        paragraph(&mut page, &format!("{} `{}`", "x ".repeat(45), "y y y y y y y"));
        assert_eq!(page.lines().count(), 3, "{page}");
        assert!(page.lines().all(|line| line.len() <= 100), "{page}");
    }

    #[test]
    fn columns_without_content_are_left_out() {
        let mut page = String::new();
        let row = |a: &str, b: &str| [a.to_owned(), String::new(), b.to_owned()];
        table(&mut page, ["a", "b", "c"], &[row("1", "x|y"), row("2", "")]);
        assert_eq!(page, "\n| a | c |\n|---|---|\n| 1 | x\\|y |\n| 2 |  |\n");
    }
}
