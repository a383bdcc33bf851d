//! Persistent reservations against a naive model: three initiators, one of them through two ports.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::persistent::{ALL_TG_PT, APTPL, Action, generation, keys, move_to, out, reservation};
use super::*;

/// Who: a letter and a port. The first four are attached.
type Who = (&'static str, u16);
const ATTACHED: [Who; 4] = [("a", 1), ("b", 1), ("c", 2), ("a", 2)];
const PORTS: [u16; 3] = [1, 2, 7];
const KINDS: [u8; 6] = [1, 3, 5, 6, 7, 8];

#[derive(Clone, Debug)]
enum Step {
    Out {
        from: usize,
        action: Action,
        kind: u8,
        key: Key,
        new_key: Key,
        flags: u8,
    },
    Move {
        from: usize,
        to: usize,
        key: Key,
        new_key: u64,
        unregister: bool,
    },
    Restart,
    /// From here on nothing can be stored, or again.
    Flash(bool),
}

/// A key: most are right, so that what they guard is reached.
#[derive(Clone, Copy, Debug)]
enum Key {
    /// The one of whoever acts.
    Own,
    /// The one of an attached nexus.
    Of(usize),
    /// Any.
    Is(u64),
}

fn own_key() -> impl Strategy<Value = Key> {
    prop_oneof![8 => Just(Key::Own), 1 => (0..4_u64).prop_map(Key::Is)]
}

fn any_key() -> impl Strategy<Value = Key> {
    let of = (0..4_usize).prop_map(Key::Of);
    prop_oneof![1 => Just(Key::Own), 3 => of, 3 => (0..4_u64).prop_map(Key::Is)]
}

fn step() -> impl Strategy<Value = Step> {
    use Action::{Clear, Preempt, PreemptAndAbort, Register, RegisterAndIgnore, Release, Reserve};
    let action = prop_oneof![
        4 => Just(Register),
        4 => Just(RegisterAndIgnore),
        5 => Just(Reserve),
        3 => Just(Release),
        1 => Just(Clear),
        4 => Just(Preempt),
        2 => Just(PreemptAndAbort),
    ];
    let kind = prop::sample::select(KINDS.to_vec());
    let flags = prop_oneof![6 => Just(0), 1 => Just(APTPL), 1 => Just(ALL_TG_PT), 1 => Just(APTPL | ALL_TG_PT)];
    let any_out = (0..4_usize, action, kind, own_key(), any_key(), flags).prop_map(
        |(from, action, kind, key, new_key, flags)| {
            let flags = match action {
                Register | RegisterAndIgnore => flags,
                Reserve | Release | Clear | Preempt | PreemptAndAbort => 0,
            };
            Step::Out { from, action, kind, key, new_key, flags }
        },
    );
    let any_move = (0..4_usize, 0..4_usize, own_key(), 1..4_u64, any::<bool>()).prop_map(
        |(from, to, key, new_key, unregister)| Step::Move { from, to, key, new_key, unregister },
    );
    let flash = any::<bool>().prop_map(Step::Flash);
    prop_oneof![20 => any_out, 2 => any_move, 1 => Just(Step::Restart), 1 => flash]
}

#[derive(Clone, Debug, Default)]
struct Model {
    keys: BTreeMap<Who, u64>,
    /// Type, and who holds it; with types 7 and 8 everybody registered does.
    held: Option<(u8, Who)>,
    generation: u32,
    stored: bool,
    told: BTreeMap<Who, Vec<&'static str>>,
    aborted: usize,
}

impl Model {
    fn key(&self, who: Who, key: Key) -> u64 {
        let of = |who: Who| self.keys.get(&who).copied().unwrap_or(0);
        match key {
            Key::Own => of(who),
            Key::Of(other) => of(ATTACHED[other]),
            Key::Is(key) => key,
        }
    }

    fn holds(&self, who: Who) -> bool {
        match self.held {
            Some((7 | 8, _)) => self.keys.contains_key(&who),
            Some((_, holder)) => holder == who,
            None => false,
        }
    }

    fn tell(&mut self, who: Who, code: &'static str) {
        let told = self.told.entry(who).or_default();
        if !told.contains(&code) {
            told.push(code);
        }
    }

    fn tell_registered(&mut self, except: Who, code: &'static str) {
        let registered: Vec<Who> = self.keys.keys().copied().filter(|who| *who != except).collect();
        registered.into_iter().for_each(|who| self.tell(who, code));
    }

    fn remove(&mut self, who: Who) {
        let held_alone = self.holds(who) && !matches!(self.held, Some((7 | 8, _)));
        self.keys.remove(&who);
        if held_alone || self.keys.is_empty() {
            if let Some((5 | 6, _)) = self.held {
                self.tell_registered(who, "6/2a/04");
            }
            self.held = None;
        }
    }

    /// The answer, `good` when the state changed or had not to.
    fn out(
        &mut self,
        who: Who,
        action: Action,
        kind: u8,
        key: u64,
        new_key: u64,
        flags: u8,
    ) -> &'static str {
        let registered = self.keys.get(&who).copied();
        match action {
            Action::Register if registered.unwrap_or(0) != key => return "conflict",
            Action::Register | Action::RegisterAndIgnore => {
                if registered.is_some() || new_key != 0 {
                    self.register(who, new_key, flags);
                }
                return "good";
            }
            _ if registered != Some(key) => return "conflict",
            Action::Reserve => match self.held {
                None => self.held = Some((kind, who)),
                Some((present, _)) if present == kind && self.holds(who) => {}
                Some(_) => return "conflict",
            },
            Action::Release if self.holds(who) => {
                let (present, _) = self.held.expect("it holds it");
                if present != kind {
                    return "5/26/04";
                }
                self.held = None;
                if present >= 5 {
                    self.tell_registered(who, "6/2a/04");
                }
            }
            Action::Release => {}
            Action::Clear => {
                self.tell_registered(who, "6/2a/03");
                self.keys.clear();
                self.held = None;
                self.generation += 1;
            }
            Action::Preempt => return self.preempt(who, kind, new_key, false),
            Action::PreemptAndAbort => return self.preempt(who, kind, new_key, true),
        }
        "good"
    }

    fn register(&mut self, who: Who, new_key: u64, flags: u8) {
        let ports = if flags & ALL_TG_PT == 0 { vec![who.1] } else { PORTS.to_vec() };
        for port in ports {
            if new_key == 0 {
                self.remove((who.0, port));
            } else {
                self.keys.insert((who.0, port), new_key);
            }
        }
        self.stored = flags & APTPL != 0;
        self.generation += 1;
    }

    fn preempt(&mut self, who: Who, kind: u8, victim: u64, abort: bool) -> &'static str {
        let takes = match self.held {
            None => false,
            Some((7 | 8, _)) => victim == 0,
            Some((_, holder)) => self.keys[&holder] == victim,
        };
        if !takes && victim == 0 {
            return "5/26/00 at 8";
        }
        let is_victim = |other: Who, key: u64| match takes {
            true => other != who && (victim == 0 || key == victim),
            false => key == victim,
        };
        let victims: Vec<Who> = self
            .keys
            .iter()
            .filter(|(other, key)| is_victim(**other, **key))
            .map(|it| *it.0)
            .collect();
        if !takes && victims.is_empty() {
            return "conflict";
        }
        for victim in victims {
            self.keys.remove(&victim);
            if victim != who {
                self.tell(victim, "6/2a/05");
                self.aborted += usize::from(abort && ATTACHED.contains(&victim));
            }
        }
        let before = self.held;
        if takes {
            self.held = Some((kind, who));
            if before.is_some_and(|(present, _)| present != kind) {
                self.tell_registered(who, "6/2a/04");
            }
        } else if self.keys.is_empty() {
            self.held = None;
        }
        self.generation += 1;
        "good"
    }

    fn move_to(
        &mut self,
        who: Who,
        to: Who,
        key: u64,
        new_key: u64,
        unregister: bool,
    ) -> &'static str {
        if who == to {
            return "5/26/00 at 24";
        }
        match self.held {
            Some((kind, holder)) if kind < 7 && holder == who && self.keys[&who] == key => {
                self.keys.insert(to, new_key);
                self.held = Some((kind, to));
                if unregister {
                    self.keys.remove(&who);
                }
                self.stored = false;
                self.generation += 1;
                "good"
            }
            _ => "conflict",
        }
    }

    fn restart(&mut self) {
        let Model { keys, held, stored, .. } = self.clone();
        *self = if stored && !keys.is_empty() {
            Model { keys, held, stored, ..Model::default() }
        } else {
            Model::default()
        };
        ATTACHED.into_iter().for_each(|who| self.tell(who, "6/29/00"));
    }

    /// May read, may write.
    fn allows(&self, who: Who) -> [bool; 2] {
        let registered = self.keys.contains_key(&who);
        match self.held {
            None => [true; 2],
            Some(_) if self.holds(who) => [true; 2],
            Some((kind, _)) if kind >= 5 && registered => [true; 2],
            Some((1 | 5 | 7, _)) => [true, false],
            Some(_) => [false; 2],
        }
    }
}

/// The unit with its four nexuses.
struct Pair {
    world: World,
    ids: [NexusId; 4],
    model: Model,
}

impl Pair {
    fn new() -> Pair {
        let mut pair =
            Pair { world: World::new(), ids: [World::new().a; 4], model: Model::default() };
        pair.restart();
        pair
    }

    fn restart(&mut self) {
        let state = self.world.flash.clone();
        let mut unit = LogicalUnit::new(export());
        unit.restore(&state).expect("what it said itself");
        self.ids = ATTACHED.map(|(name, port)| unit.attach(nexus(name, port)));
        let [a, b, c, _] = self.ids;
        self.world = World::with(unit, [a, b, c], state);
        self.model.restart();
        self.settle();
    }

    fn take(&mut self, step: &Step) {
        self.model.aborted = 0;
        let (before, flash) = (self.model.clone(), self.world.flash.clone());
        let (from, (cdb, list), expect) = match *step {
            Step::Restart => return self.restart(),
            Step::Flash(fails) => {
                self.world.flash_fails = fails;
                return;
            }
            Step::Out { from, action, kind, key, new_key, flags } => {
                let [key, new_key] = [key, new_key].map(|key| self.model.key(ATTACHED[from], key));
                let expect = self.model.out(ATTACHED[from], action, kind, key, new_key, flags);
                (from, out(action, kind, key, new_key, flags), expect)
            }
            Step::Move { from, to, key, new_key, unregister } => {
                let (who, to) = (ATTACHED[from], ATTACHED[to]);
                let key = self.model.key(who, key);
                let expect = self.model.move_to(who, to, key, new_key, unregister);
                let flags = u8::from(unregister) << 1;
                (from, move_to(key, new_key, flags, &nexus(to.0, to.1)), expect)
            }
        };
        let outcome = self.world.send(self.ids[from], &cdb, &list);
        let (answer, aborted) = match &outcome {
            Outcome::Settle { response, abort, .. } => (response_words(response), abort.len()),
            outcome => (words(outcome), 0),
        };
        if answer == "4/44/00" {
            assert!(self.world.flash_fails && (before.stored || self.model.stored), "{step:?}");
            assert_eq!((expect, &self.world.flash), ("good", &flash));
            self.model = before;
        } else {
            assert_eq!((answer.as_str(), aborted), (expect, self.model.aborted));
        }
        self.settle();
    }

    /// Everything that can be seen is as the model says.
    fn settle(&mut self) {
        for (who, id) in ATTACHED.into_iter().zip(self.ids) {
            let told = self.model.told.remove(&who).unwrap_or_default();
            assert_eq!(self.world.attentions(id), told, "{who:?}");
            let allows = [&[0x28][..], &[0x2a]].map(|code| {
                let bytes = [code, &[0, 0, 0, 0, 0, 0, 0, 1, 0]].concat();
                words(&self.world.send(id, &bytes, &[0; 512])) != "conflict"
            });
            assert_eq!(allows, self.model.allows(who), "{who:?}");
        }
        self.model.told.clear();
        let mut present = keys(&mut self.world);
        present.sort_unstable();
        let mut expect: Vec<u64> = self.model.keys.values().copied().collect();
        expect.sort_unstable();
        assert_eq!(present, expect);
        assert_eq!(generation(&mut self.world), self.model.generation);
        let held = self.model.held.map(|(kind, holder)| match kind {
            7 | 8 => (0, kind),
            _ => (self.model.keys[&holder], kind),
        });
        assert_eq!(reservation(&mut self.world), held);
        let is_stored = self.model.stored && !self.model.keys.is_empty();
        assert_eq!(!self.world.flash.is_empty(), is_stored);
        assert_eq!(
            [false, true].map(|write| self.world.allows_others(write)),
            self.model.allows(("z", 1))
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn reservations_are_as_the_model_says(steps in prop::collection::vec(step(), 1..40)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.take(step);
        }
    }
}
