//! Unit attentions.

use super::*;

const READY: &[u8] = &[0; 6];

#[test]
fn an_attention_is_told_once_to_each_nexus_and_never_to_commands_that_must_work() {
    let mut world = World::new();
    world.unit.resize(BLOCKS * 1024);
    for from in [world.a, world.b] {
        world.check_of(from, &[0x12, 0, 0, 0, 4, 0], &[], "good 4");
        world.check_of(from, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], &[], "good 16");
        world.check_of(from, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], "6/2a/09");
        world.check_of(from, READY, &[], "good");
    }
    // As data: the same, and then nothing.
    let sense = |key, code, qualifier| {
        [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, qualifier, 0, 0, 0, 0]
    };
    world.a = world.c;
    assert_eq!(world.data(&[3, 0, 0, 0, 252, 0]), sense(6, 0x2a, 9));
    assert_eq!(world.data(&[3, 0, 0, 0, 252, 0]), sense(0, 0, 0));
    assert_eq!(world.data(&[3, 1, 0, 0, 252, 0]), [0x72, 0, 0, 0, 0, 0, 0, 0]);
    world.unit.resize(BLOCKS * 1024);
    world.check(READY, &[], "good");
}

#[test]
fn attentions_are_told_in_order_and_come_before_other_errors() {
    let mut world = World::new();
    world.unit.luns_changed(world.a);
    world.unit.cleared(world.a);
    world.unit.reset();
    world.check(&[0xff; 10], &[], "6/3f/0e");
    world.check(READY, &[], "6/2f/00");
    world.check(READY, &[], "6/29/00");
    world.check(READY, &[], "good");
    world.check_of(world.b, READY, &[], "6/29/00");
}

#[test]
fn too_many_attentions_become_a_power_on() {
    let mut world = World::new();
    let codes = [
        Code::CAPACITY_CHANGED,
        Code::LUNS_CHANGED,
        Code::COMMANDS_CLEARED,
        Code(0x29, 0x03),
        Code::MODE_PARAMETERS_CHANGED,
        Code::RESERVATIONS_PREEMPTED,
        Code::RESERVATIONS_RELEASED,
        Code::REGISTRATIONS_PREEMPTED,
        // I_T NEXUS LOSS: one more of any kind.
        Code(0x29, 0x07),
    ];
    for code in codes {
        world.unit.nexuses.of_mut(world.a).tell(code);
    }
    world.check(READY, &[], "6/29/00");
    world.check(READY, &[], "6/29/07");
    world.check(READY, &[], "good");
}

#[test]
fn a_new_session_is_told_of_the_power_on() {
    let mut world = World::new();
    world.unit.detach(world.b);
    let again = world.unit.attach(nexus("b", 1));
    assert_ne!(again, world.b);
    world.check_of(again, READY, &[], "6/29/00");
}

#[test]
#[should_panic(expected = "the nexus is attached")]
fn who_has_left_is_not_mistaken_for_who_came_after() {
    let mut world = World::new();
    world.unit.detach(world.b);
    world.unit.attach(nexus("d", 1));
    world.check_of(world.b, READY, &[], "good");
}
