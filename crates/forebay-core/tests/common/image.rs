//! An image of flash as text: the pages that are not zero, each as `page NUMBER` and rows of 32 bytes with their
//! offset; rows of zeroes are left out.

use std::collections::BTreeMap;
use std::fmt::Write;

use forebay_core::sealed::{PAGE_LEN, Page};

const BLANK: Page = [0; PAGE_LEN];

/// Pages by number; the others are zero.
#[derive(Default, PartialEq, Debug)]
pub struct Image(BTreeMap<u64, Page>);

impl Image {
    /// The page at byte `offset`.
    pub fn at(&mut self, offset: u64) -> &mut Page {
        self.0.entry(offset / PAGE_LEN as u64).or_insert(BLANK)
    }

    /// The same, to be looked at.
    pub fn page(&self, offset: u64) -> &Page {
        self.0.get(&(offset / PAGE_LEN as u64)).unwrap_or(&BLANK)
    }

    /// What a text says.
    pub fn parse(text: &str) -> Image {
        let mut image = Image::default();
        let mut page = 0;
        for line in text.lines() {
            let (first, second) = line.split_once(' ').unwrap();
            if first == "page" {
                page = second.parse().unwrap();
                continue;
            }
            let at = usize::from_str_radix(first, 16).unwrap();
            for index in 0..second.len() / 2 {
                let byte = u8::from_str_radix(&second[2 * index..2 * index + 2], 16).unwrap();
                image.0.entry(page).or_insert(BLANK)[at + index] = byte;
            }
        }
        image
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (number, page) in self.0.iter().filter(|(_, page)| **page != BLANK) {
            writeln!(text, "page {number}").unwrap();
            let rows = page.chunks(32).enumerate();
            for (row, bytes) in rows.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)) {
                write!(text, "{:03x} ", row * 32).unwrap();
                bytes.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
                text.push('\n');
            }
        }
        text
    }
}
