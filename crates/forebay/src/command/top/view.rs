//! Draws what `forebay top` knows: the list of disks, or one disk. Both fit 80 columns and 24 lines, and use more.

use forebay_backends::size::rounded;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::model::{Disk, Top, What};
use crate::cli::SortBy;
use crate::command::detail;
use crate::command::rates::Rates;
use crate::command::table::{self, count, of, time};

/// A column of the list.
struct Column {
    head: &'static str,
    by: Option<SortBy>,
    /// Columns of the terminal.
    width: u16,
    /// Shown on a terminal that is so wide.
    from: u16,
    text: fn(&str, &Disk) -> String,
}

const fn column(
    head: &'static str,
    by: Option<SortBy>,
    width: u16,
    from: u16,
    text: fn(&str, &Disk) -> String,
) -> Column {
    Column { head, by, width, from, text }
}

const WIDE: u16 = 110;
const WIDEST: u16 = 126;
const COLUMNS: [Column; 13] = [
    column("DISK", Some(SortBy::Name), 13, 0, |name, _| name.to_owned()),
    column("IOPS", Some(SortBy::Iops), 7, 0, |_, it| rate(it, Rates::iops, count)),
    column("READ/s", None, 9, WIDE, |_, it| rate(it, |now| now.read_bytes, size)),
    column("WRITTEN/s", None, 9, WIDE, |_, it| rate(it, |now| now.write_bytes, size)),
    column("HIT%", Some(SortBy::Hits), 5, 44, |_, it| {
        per_cent(it.rates.as_ref().and_then(Rates::hit_ratio))
    }),
    column("GUEST", Some(SortBy::Guest), 7, 52, |_, it| latency(it, |now| now.guest)),
    column("FLASH", Some(SortBy::Flash), 7, 80, |_, it| latency(it, |now| now.flash)),
    column("PRIMARY", Some(SortBy::Primary), 7, 60, |_, it| latency(it, |now| now.primary)),
    column("USED%", Some(SortBy::Used), 5, 80, |_, it| per_cent(it.used())),
    column("DIRTY", Some(SortBy::Dirty), 8, 70, |_, it| it.dirty().map_or("-".to_owned(), short)),
    column("CLIENTS", None, 7, WIDE, |_, it| {
        it.stats().map_or("-".to_owned(), |stats| stats.connections.to_string())
    }),
    column("SHARD", None, 5, WIDEST, |_, it| {
        it.stats().map_or("-".to_owned(), |stats| stats.shard.to_string())
    }),
    column("STATE", Some(SortBy::State), 13, 0, |_, it| it.state().0),
];

fn rate(disk: &Disk, of: fn(&Rates) -> u64, text: fn(u64) -> String) -> String {
    disk.rates.as_ref().map_or("-".to_owned(), |now| text(of(now)))
}

fn latency(disk: &Disk, of: fn(&Rates) -> Option<u64>) -> String {
    disk.rates.as_ref().and_then(of).map_or("-".to_owned(), time)
}

fn size(bytes: u64) -> String {
    rounded(bytes).to_string()
}

/// A size in eight letters: `99.9 MiB`, and `1023 MiB` without its tenth.
fn short(bytes: u64) -> String {
    let text = size(bytes);
    match text.split_once('.') {
        Some((whole, _)) if text.len() > 8 => {
            let unit = text.rsplit(' ').next().unwrap_or_default();
            format!("{whole} {unit}")
        }
        _ => text,
    }
}

/// A name in so many letters: of a longer one its beginning and its end, which often has a number.
fn elided(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width || width < 3 {
        return name.to_owned();
    }
    let end = (width - 1) / 2;
    let begin: String = name.chars().take(width - 1 - end).collect();
    begin + "…" + &name.chars().skip(length - end).collect::<String>()
}

fn per_cent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.1}", 100.0 * part))
}

/// The list as text, for `--once`.
pub(super) fn text(top: &Top) -> String {
    let shown: Vec<_> = COLUMNS.iter().filter(|column| column.from <= 80).collect();
    let heads: Vec<_> = shown.iter().map(|column| column.head).collect();
    let mut table = table::Table::new(&heads);
    for ((_, name), disk) in top.list() {
        table.row(shown.iter().map(|column| (column.text)(name, disk)).collect());
    }
    top.troubles.iter().fold(table.text(0), |text, trouble| text + trouble + "\n")
}

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, top: &mut Top) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(summary(top)).style(bold), head);
    match top.shown.clone() {
        Some(key) => {
            let lines = match top.disk(&key) {
                Some(disk) => one(&key.1, disk),
                None if !top.troubles.is_empty() => vec![
                    format!("disk {}: its daemon may be one that does not answer.", key.1),
                    "Esc goes back to the list.".to_owned(),
                ],
                None => vec![
                    format!("disk {}: it is gone. It was detached, or its daemon ended.", key.1),
                    "Esc goes back to the list.".to_owned(),
                ],
            };
            let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
            frame.render_widget(Paragraph::new(lines), body);
            frame.render_widget(Paragraph::new("Esc back   q quit").style(bold), foot);
        }
        None => {
            list(frame, top, body);
            let help = match top.is_typing {
                true => format!("filter: {}_   Enter keep it   Esc clear it", top.filter),
                false => {
                    "q quit  Up/Down select  Enter one disk  s sort  r reverse  / filter".to_owned()
                }
            };
            frame.render_widget(Paragraph::new(help).style(bold), foot);
        }
    }
}

fn summary(top: &Top) -> String {
    let (all, bad) = top.counts();
    let order = if top.is_reversed { ", reversed" } else { "" };
    let mut text = format!("forebay top: {}", of(all as u64, "disk"));
    if bad > 0 {
        text += &format!(", {bad} NOT SERVED");
    }
    text += &format!(", by {}{order}", top.sort);
    // Where there are several, one may be busy while another is not.
    if let [_, _, ..] = top.shards.as_slice() {
        let busiest = top.shards.iter().filter_map(|shard| shard.busy).fold(0.0, f64::max);
        text += &format!(", busiest shard {:.0} %", 100.0 * busiest);
    }
    if !top.filter.is_empty() {
        text += &format!(", with '{}'", top.filter);
    }
    if let Some(trouble) = top.troubles.first() {
        text += &format!("  NO ANSWER: {trouble}");
    }
    text
}

/// One disk alone.
fn one(name: &str, disk: &Disk) -> Vec<String> {
    let old = format!("disk {name}: NO ANSWER. Its shard thread hangs.");
    match (&disk.what, disk.stats()) {
        (What::Refused(reason), _) => {
            let head = format!("disk {name}: NOT SERVED");
            [head].into_iter().chain(reason.lines().map(str::to_owned)).collect()
        }
        (What::Silent(_), None) => vec![old],
        (What::Silent(_), Some(stats)) => {
            let figures = detail::lines(stats, None);
            [old + " Its last figures:"].into_iter().chain(figures).collect()
        }
        (What::Served(stats), _) => detail::lines(stats, disk.rates.as_ref()),
    }
}

fn list(frame: &mut Frame<'_>, top: &Top, area: ratatui::layout::Rect) {
    let list = top.list();
    if list.is_empty() {
        let text = match top.filter.is_empty() {
            true => "no disk is running".to_owned(),
            false => format!("no disk has '{}' in its name; Esc clears the filter", top.filter),
        };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let shown: Vec<_> = COLUMNS.iter().filter(|column| column.from <= area.width).collect();
    let longest = list.iter().map(|((_, name), _)| name.chars().count()).max().unwrap_or(0);
    let taken: u16 = shown.iter().map(|column| column.width + 1).sum();
    let spare = (area.width + 1).saturating_sub(taken);
    // What is left goes to the names, as far as they need it, and then to the states.
    let of_names = |column: &Column| (column.width + spare).min(column.width.max(longest as u16));
    let widths = shown.iter().map(|column| match column.by {
        Some(SortBy::Name) => Constraint::Length(of_names(column)),
        Some(SortBy::State) => Constraint::Min(column.width),
        _ => Constraint::Length(column.width),
    });
    let heads = shown.iter().map(|column| {
        let is_order = column.by == Some(top.sort);
        let style = if is_order { Modifier::BOLD | Modifier::UNDERLINED } else { Modifier::BOLD };
        aligned(column, column.head.to_owned()).style(Style::new().add_modifier(style))
    });
    // What is not on the screen needs no text.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let place = top.place(&list).unwrap_or(0);
    let first = place.saturating_sub(height / 2).min(list.len().saturating_sub(height));
    let rows = list.iter().skip(first).take(height).map(|((_, name), disk)| {
        let cells = shown.iter().map(|column| {
            let mut text = (column.text)(name, disk);
            if column.by == Some(SortBy::Name) {
                text = elided(&text, of_names(column).into());
            }
            aligned(column, text)
        });
        let (_, is_bad) = disk.state();
        let color = if is_bad { Color::Red } else { Color::Reset };
        Row::new(cells).style(Style::new().fg(color))
    });
    let table = Table::new(rows, widths)
        .header(Row::new(heads))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(place - first);
    frame.render_stateful_widget(table, area, &mut state);
}

/// Words to the left, figures to the right.
fn aligned(column: &Column, text: String) -> Cell<'static> {
    let is_word = matches!(column.by, Some(SortBy::Name | SortBy::State));
    let line = Line::from(text);
    Cell::from(if is_word { line } else { line.right_aligned() })
}
