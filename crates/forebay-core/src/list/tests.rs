use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const SLOTS: u32 = 12;

#[derive(Clone, Debug)]
enum Step {
    PushFront(usize, u32),
    Remove(u32),
    PopBack(usize),
    MoveToFront(u32),
    Replace(u32, u32),
    TurnToBack(u32),
    Count(u32, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS;
    prop_oneof![
        (0..2usize, slot.clone()).prop_map(|(list, slot)| Step::PushFront(list, slot)),
        slot.clone().prop_map(Step::Remove),
        (0..2usize).prop_map(Step::PopBack),
        slot.clone().prop_map(Step::MoveToFront),
        (slot.clone(), slot.clone()).prop_map(|(old, new)| Step::Replace(old, new)),
        slot.clone().prop_map(Step::TurnToBack),
        (slot, 0..4u8).prop_map(|(slot, count)| Step::Count(slot, count)),
    ]
}

proptest! {
    #[test]
    fn two_lists_over_the_same_links_behave_like_two_deques(steps in prop::collection::vec(step(), 0..200)) {
        let mut links = Links::new(SLOTS);
        let mut lists = [List::new(1), List::new(3)];
        let mut model: [VecDeque<(u32, u8)>; 2] = [VecDeque::new(), VecDeque::new()];
        let place = |model: &[VecDeque<(u32, u8)>; 2], slot: u32| {
            (0..2).find_map(|l| model[l].iter().position(|&(s, _)| s == slot).map(|at| (l, at)))
        };
        for step in steps {
            match step {
                Step::PushFront(list, slot) if place(&model, slot).is_none() => {
                    links.push_front(&mut lists[list], SlotId(slot));
                    model[list].push_front((slot, 0));
                }
                Step::Remove(slot) => if let Some((list, at)) = place(&model, slot) {
                    links.remove(&mut lists[list], SlotId(slot));
                    model[list].remove(at);
                },
                Step::PopBack(list) => {
                    let popped = links.pop_back(&mut lists[list]).map(|slot| slot.0);
                    prop_assert_eq!(popped, model[list].pop_back().map(|(slot, _)| slot));
                }
                Step::MoveToFront(slot) => if let Some((list, at)) = place(&model, slot) {
                    links.move_to_front(&mut lists[list], SlotId(slot));
                    let member = model[list].remove(at).unwrap();
                    model[list].push_front(member);
                },
                Step::Replace(old, new) if place(&model, new).is_none() => {
                    if let Some((list, at)) = place(&model, old) {
                        links.replace(&mut lists[list], SlotId(old), SlotId(new));
                        model[list][at].0 = new;
                    }
                }
                Step::TurnToBack(slot) => if let Some((list, at)) = place(&model, slot) {
                    links.turn_to_back(&mut lists[list], SlotId(slot));
                    let behind = model[list].len() - 1 - at;
                    model[list].rotate_right(behind);
                },
                Step::Count(slot, count) => if let Some((list, at)) = place(&model, slot) {
                    links.set_count(SlotId(slot), count);
                    model[list][at].1 = count;
                },
                Step::PushFront(..) | Step::Replace(..) => {}
            }
            for (list, model) in lists.iter().zip(&model) {
                links.check_invariants(list);
                let members: Vec<_> =
                    links.iter(list).map(|slot| (slot.0, links.count(slot))).collect();
                prop_assert_eq!(members, model.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}

#[test]
#[should_panic(expected = "in a list already")]
fn a_slot_cannot_be_in_two_lists() {
    let mut links = Links::new(2);
    links.push_front(&mut List::new(1), SlotId(0));
    links.push_front(&mut List::new(2), SlotId(0));
}

#[test]
fn a_node_takes_8_bytes() {
    assert_eq!(Links::new(1000).memory_bytes(), 8000);
    assert_eq!(Links::memory_bytes_for(1000), 8000);
}
