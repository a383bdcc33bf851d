"""What was published of host flash caches comes out of the whole chain: a trace, three replays through the daemon, a report."""
from ab import hit_ratio
from bed import test
from published import Database, hot_region


@test(forebay_only=True, alone=True)
def a_hit_ratio_in_the_eighties_makes_reads_two_to_four_times_faster(bed):
    ab = hot_region(bed)
    assert 0.8 <= hit_ratio(ab.warm) < 0.9, hit_ratio(ab.warm)
    # Four in kind: what a busy machine adds is in both.
    assert 2 <= ab.times_faster() <= 5, ab.times_faster()
    for said in ("warm cache vs. no cache", "read latency, mean"):
        assert said in ab.text, said
    with open(ab.page) as f:
        assert "warm cache vs. no cache" in f.read()


@test(forebay_only=True, alone=True)
def a_database_read_at_random_gains_nothing_until_it_fits(bed):
    database = Database(bed)
    part, whole = database.with_cache(2 / 3), database.with_cache(1)
    assert 0.5 < hit_ratio(part.warm) < 0.8 and hit_ratio(whole.warm) == 1.0
    # Of ten pages one is not cached: the slowest of them takes about what it took. (p99 would judge a busy machine, too.)
    assert part.times_faster("p90_ns") < 2, part.times_faster("p90_ns")
    assert whole.times_faster("p90_ns") > 5 * part.times_faster("p90_ns"), whole.times_faster("p90_ns")
