//! Work that no completion tells of.

/// Places where work appears by itself, such as a ring in memory that is shared with a guest. While they are looked at,
/// whoever brings work need not tell; before the reactor sleeps he is asked to tell.
///
/// ```text
///   looked at ──rest──► asleep ──event (a completion)──► looked at
/// ```
pub trait Lookout {
    /// Whether there is a place to be looked at, so that a moment of looking may save a sleep.
    fn is_on(&self) -> bool;

    /// Whether there is work; asked again and again in a spin.
    fn has_work(&mut self) -> bool;

    /// The reactor is to sleep: from now on whoever brings work has to signal an event. True when there is work already,
    /// then it does not sleep.
    fn rest(&mut self) -> bool;
}

/// Nothing to look at.
impl Lookout for () {
    fn is_on(&self) -> bool {
        false
    }

    fn has_work(&mut self) -> bool {
        false
    }

    fn rest(&mut self) -> bool {
        false
    }
}
