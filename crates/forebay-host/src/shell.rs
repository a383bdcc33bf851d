//! Words of command lines that are printed for people to copy.

use std::ffi::OsStr;

/// A word as a shell takes it: in quotes where it would be more than one word, or another one.
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref().to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@,%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_reaches_a_command_as_it_is() {
        for word in
            ["", "a", "/x/y.sock", "c d.sock", "it's", "$HOME", "a*b", "~", "x;y", "ä", "\"", "\\"]
        {
            let output = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(word))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
        assert_eq!(quoted("/x/y-1.2_3:a@b=c"), "/x/y-1.2_3:a@b=c");
        assert_eq!(quoted("c d"), "'c d'");
    }
}
