use std::path::Path;

/// The sources below `folder`, each text in one line; what is made into pages left out.
fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("reference") {
            sources(&path, all);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = std::fs::read_to_string(path).unwrap();
            text.split("\\\n").for_each(|part| all.push_str(part.trim_start()));
        }
    }
}

#[test]
fn the_sentences_of_the_page_are_in_the_program() {
    let mut program = String::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), &mut program);
    let sentences = super::SENTENCES.iter().flat_map(|(_, events)| events.iter());
    for part in sentences.flat_map(|(_, text, _)| text.split('…')) {
        let part = part.trim_matches([' ', ',', ';', ':', '.', '(', ')']);
        // The name of a signal is put before what is said of it.
        let part = part.strip_prefix("SIGTERM: ").unwrap_or(part);
        assert!(program.contains(part), "nobody says '{part}'");
    }
}

/// A pool has the write logs of all its disks: nobody is sent to take its flash away before they are empty.
#[test]
fn what_says_to_replace_or_empty_flash_says_to_flush_its_disks_first() {
    let rules =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus/forebay.rules.yml");
    let rules = std::fs::read_to_string(rules).unwrap();
    let mut texts: Vec<_> = rules.lines().map(str::to_owned).collect();
    for event in super::EXAMPLES {
        texts.extend([super::describe(event).1, super::to_do(event).to_owned()]);
    }
    let mut found = 0;
    for text in texts {
        let text = text.to_lowercase();
        let taken = ["replace the flash", "remove the file", "blkdiscard", "wipefs"];
        if let Some(at) = taken.iter().filter_map(|words| text.find(words)).min() {
            assert!(text[..at].contains("flush"), "{text}");
            found += 1;
        }
    }
    assert!(found > 8, "{found} texts say so");
}
