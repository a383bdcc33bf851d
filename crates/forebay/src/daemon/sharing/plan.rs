//! What each disk that shares is to have, until there is a better plan.
//!
//! A plan is made of bytes, for the disks as they were then. Where other disks share now, or one brings another size,
//! it does not fit any more: what came with the change would be nobody's, and what a disk was given by command would go.

use std::collections::BTreeMap;

use forebay_trace::share::{self, Member};

use crate::config::values::Name;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Bytes that each brought when it was made.
    brought: BTreeMap<Name, u64>,
    bytes: BTreeMap<Name, u64>,
}

impl Plan {
    /// Bytes that a disk is to have.
    pub(super) fn of(&self, name: &Name) -> Option<u64> {
        self.bytes.get(name).copied()
    }

    /// The plan for these disks from now on; `None`: this one.
    pub(super) fn next(&self, disks: &[(&Name, Member<'_>)]) -> Option<Plan> {
        let members: Vec<Member<'_>> = disks.iter().map(|(_, member)| *member).collect();
        let each = |bytes: Vec<u64>| {
            disks.iter().map(|(name, _)| Name::clone(name)).zip(bytes).collect::<BTreeMap<_, _>>()
        };
        let brought = each(members.iter().map(|member| member.brings).collect());
        let bytes = match brought == self.brought {
            true => each(share::plan(&members)?),
            false => share::plan_anew(&members).map(each).unwrap_or_default(),
        };
        Some(Plan { brought, bytes })
    }
}

#[cfg(test)]
mod tests {
    use forebay_trace::share::Demand;

    use super::*;

    const GIB: u64 = 1 << 30;

    /// A disk by its name, with the GiB that it brings and has. It would gain nothing from more.
    fn disk(
        (name, brings, has): (&str, u64, u64),
        demand: &'static Demand,
    ) -> (Name, Member<'static>) {
        let member = Member {
            brings: brings * GIB,
            has: has * GIB,
            reservation: GIB,
            limit: 12 * GIB,
            shares: 1000,
            block_size: 4096,
            demand,
        };
        (Name(name.into()), member)
    }

    /// GiB that the disks are to have, if that is another plan.
    fn next(plan: &mut Plan, disks: &[(&str, u64, u64)]) -> Option<Vec<u64>> {
        static NONE: Demand = Demand::new();
        let disks: Vec<_> = disks.iter().map(|it| disk(*it, &NONE)).collect();
        let members: Vec<_> = disks.iter().map(|(name, member)| (name, *member)).collect();
        *plan = plan.next(&members)?;
        Some(disks.iter().map(|(name, _)| plan.of(name).unwrap() / GIB).collect())
    }

    /// Two that bring 4 GiB each, and of which a borrows two.
    fn lent() -> Plan {
        let each = |sizes: [u64; 2]| {
            ["a", "b"].map(|name| Name(name.into())).into_iter().zip(sizes.map(|it| it * GIB))
        };
        Plan { brought: each([4, 4]).collect(), bytes: each([6, 2]).collect() }
    }

    #[test]
    fn a_plan_that_fits_stays() {
        assert_eq!(next(&mut lent(), &[("a", 4, 6), ("b", 4, 2)]), None);
        // Also while it is not carried out.
        assert_eq!(next(&mut lent(), &[("a", 4, 4), ("b", 4, 4)]), None);
    }

    #[test]
    fn a_disk_that_brings_more_keeps_it_and_lends_no_more_of_others() {
        let mut plan = lent();
        assert_eq!(next(&mut plan, &[("a", 8, 8), ("b", 4, 2)]), Some(vec![8, 4]));
        assert_eq!(next(&mut plan, &[("a", 8, 8), ("b", 4, 2)]), None);
    }

    #[test]
    fn a_lender_has_back_its_own_when_the_borrower_has_gone() {
        assert_eq!(next(&mut lent(), &[("b", 4, 2)]), Some(vec![4]));
    }

    #[test]
    fn a_disk_that_comes_takes_nothing_from_others() {
        assert_eq!(
            next(&mut lent(), &[("a", 4, 6), ("b", 4, 2), ("c", 1, 1)]),
            Some(vec![6, 2, 1])
        );
    }

    #[test]
    fn what_a_disk_does_not_bring_any_more_goes_back() {
        assert_eq!(next(&mut lent(), &[("a", 4, 6), ("b", 1, 2)]), Some(vec![4, 1]));
    }
}
