//! What the fence tells an operator of a log that waits for a decision.

/// The log of a disk is to be given up, or was, of which the destager had sent a part.
pub(in crate::fence) const TORN_WITHOUT_LOG: &str = "a part of the log may be on primary storage already, and the rest of it is not: the image \
     alone may be torn. Copy it before the log is given up, and check its file systems then";

/// A log is used up to its damage only, or was, and the destager had sent some of what is behind that.
pub(in crate::fence) const TORN_WITH_REST: &str = "a part of what is lost of the log may be on primary storage already, and the rest of it \
     is not: the image may be torn also with what is left of the log. Copy it before that is written over it, and check its file \
     systems then";

/// A log that can be used up to a point only, and what of it is lost then.
pub(in crate::fence) fn cut(why: &str, missing: u64, is_unreadable: bool) -> String {
    let lost = match missing {
        0 => "no write behind that is known of: what is told of the log is all that can be read of it".to_owned(),
        _ if is_unreadable => format!(
            "at least {missing} writes that were durable or staged are lost with either decision: they cannot be read, or come \
             after one that cannot. What is told of the log is what is left of it before them"
        ),
        _ => format!(
            "at least {missing} writes that were durable or staged are lost, whatever is decided: they are missing, or come \
             after one that is. What is told of the log is what is left of it before them"
        ),
    };
    let copy = match is_unreadable {
        true => {
            ". What cannot be read now may be read again, or from a copy: copy the flash first, and decide when neither helps"
        }
        false => "",
    };
    format!("the log cannot be used whole: {why}; {lost}{copy}")
}
