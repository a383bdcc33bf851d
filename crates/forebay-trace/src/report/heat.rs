//! Heat maps: how much is in which cell of two axes, stronger where there is more.

use maud::{Markup, html};
use plotters::prelude::*;

use super::chart::{Axis, Hue, MARGIN, Paint, Places, both, description, figure, over_axes};
use super::figures::count;

const STEPS: usize = 5;

/// Cells, and what they are.
pub(super) struct Heat<'a> {
    pub title: &'a str,
    /// What is counted.
    pub unit: &'a str,
    pub hue: Hue,
    /// The share of a column and a row on its axis.
    pub cell: (f64, f64),
    /// Column, row, how much; row by row.
    pub cells: &'a [(usize, usize, u64)],
    /// Columns and rows that are shown.
    pub shown: (usize, usize),
}

/// The least of each step: each is as many times the one before.
fn steps(most: u64) -> [u64; STEPS] {
    let times = (most.max(1) as f64).powf(1.0 / STEPS as f64);
    std::array::from_fn(|step| times.powi(step as i32).round() as u64)
}

fn step_of(steps: &[u64; STEPS], number: u64) -> usize {
    steps.iter().rposition(|&least| number >= least).unwrap_or(0)
}

/// Neighbours in a row that are of one step are one: row, first column, the one behind the last, step.
fn runs(cells: &[(usize, usize, u64)], steps: &[u64; STEPS]) -> Vec<(usize, usize, usize, usize)> {
    let mut runs: Vec<(usize, usize, usize, usize)> = Vec::new();
    for &(column, row, number) in cells.iter().filter(|(_, _, number)| *number > 0) {
        let step = step_of(steps, number);
        match runs.last_mut() {
            Some(run) if (run.0, run.2, run.3) == (row, column, step) => run.2 += 1,
            _ => runs.push((row, column, column + 1, step)),
        }
    }
    runs
}

/// The map over its axes, and what its colours stand for.
pub(super) fn heat(heat: &Heat<'_>, x: Axis, y: Axis) -> Markup {
    let (width, height) = heat.cell;
    let (columns, rows) = heat.shown;
    let most = heat.cells.iter().map(|(_, _, number)| *number).max().unwrap_or(0);
    let steps = steps(most);
    let across = Places { range: 0.0..columns.max(1) as f64 * width, scale: x.scale };
    let up = Places { range: 0.0..rows.max(1) as f64 * height, scale: y.scale };
    let drawings = both(|area, frame| {
        let mut chart = over_axes(area, frame, MARGIN, (&x, &across), (&y, &up))?;
        let rectangle = |(row, from, to, step): (usize, usize, usize, usize)| {
            let low = (from as f64 * width, row as f64 * height);
            let high = (to as f64 * width, (row + 1) as f64 * height);
            Rectangle::new([low, high], Paint::Step(heat.hue, step as u8).number().filled())
        };
        chart.draw_series(runs(heat.cells, &steps).into_iter().map(rectangle))?;
        Ok(())
    });
    // A step that begins where the next does has nothing.
    let last = steps.iter().rposition(|&least| least <= most).unwrap_or(0);
    let key = (0..=last).filter(|&step| step == last || steps[step] < steps[step + 1]);
    let words =
        |step: usize| match (steps[step], if step == last { most } else { steps[step + 1] - 1 }) {
            (low, high) if low == high => count(low),
            (low, high) => format!("{}–{}", count(low), count(high)),
        };
    let keys = html! {
        @if most > 0 {
            @for step in key {
                @let colour = Paint::Step(heat.hue, step as u8).colour();
                span.key { i style={ "background:" (colour) } {} (words(step)) }
            }
            span.key { (heat.unit) }
        }
    };
    let densest = heat.cells.iter().max_by_key(|(_, _, number)| *number);
    let what = densest.map_or("Nothing".to_owned(), |(column, row, number)| {
        let [time, place] = [(x.words)(*column as f64 * width), (y.words)(*row as f64 * height)];
        format!("Most in a cell: {} {} at {time}, {place}", count(*number), heat.unit)
    });
    let said = description("Heat map", (&x, &across), (&y, &up), &what);
    figure(heat.title, &said, &keys, &drawings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_go_from_one_to_the_most() {
        assert_eq!(steps(100_000), [1, 10, 100, 1000, 10_000]);
        assert_eq!(steps(1), [1; 5]);
        assert_eq!(step_of(&steps(100_000), 9), 0);
        assert_eq!(step_of(&steps(100_000), 10), 1);
        assert_eq!(step_of(&steps(100_000), 100_000), 4);
    }

    #[test]
    fn neighbours_of_one_step_are_one() {
        let cells = [(0, 0, 1), (1, 0, 9), (2, 0, 10), (4, 0, 10), (5, 1, 10), (6, 1, 0)];
        let found = runs(&cells, &steps(100_000));
        assert_eq!(found, [(0, 0, 2, 0), (0, 2, 3, 1), (0, 4, 5, 1), (1, 5, 6, 1)]);
    }
}
