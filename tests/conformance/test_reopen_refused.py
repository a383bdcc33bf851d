"""What cannot come of opening a disk again is found out before it ends, and leaves everything as it is."""
from bed import eventually, test
from test_reopen import begin, change, finish
from test_resize import lengthen
from test_settings import settings, told
from test_soak import SIZE


@test(forebay_only=True)
def what_could_not_be_opened_again_is_not_ended(bed):
    served, verifier = begin(bed, "a", 'flash = "%s:24MiB"\nmode = "write-back"\n' % bed.path("pool"))
    lengthen(bed.path("a.raw"), SIZE + 4096)
    for _ in range(2):
        changes = told(bed, served, "set", "a", "--iops-limit", "10", "--block-size", "4KiB", code=1)
        assert "first give 'forebay disk resize a'" in changes["a"][1], changes
        # All of it, or nothing.
        assert settings(bed, served)["iops-limit"]["value"] == "none"
    # Its mode was asked for together with that, and is not taken for itself.
    changes = told(bed, served, "set", "a", "--mode", "write-through", "--block-size", "4KiB", code=1)
    assert "disk resize a" in changes["a"][1] and served.stats("a")["mode"] == "write-back", changes
    bed.run([bed.program, "disk", "resize", "a", "--control", served.control])
    change(bed, served, verifier, block_size="4KiB", iops_limit="5000")
    finish(bed, served, verifier)


@test(forebay_only=True)
def what_no_engine_can_have_is_found_out_before_the_disk_ends(bed):
    served, verifier = begin(bed, "a", 'flash = "%s:24MiB"\nmode = "write-back"\n' % bed.path("pool"))
    eventually(lambda: served.stats("a")["flash"]["slots_used"] > 100, "something is cached on flash")
    for more in (["--dry-run"], []):
        changes = told(bed, served, "set", "a", "--block-size", "4KiB", "--metadata-limit", "64KiB", *more, code=1)
        assert "metadata" in changes["a"][1] and "goes on as it was" not in changes["a"][1], changes
    assert settings(bed, served)["block-size"]["value"] == "8KiB"
    assert "opened again" not in served.events() and served.stats("a")["flash"]["slots_used"] > 100
    # At a start neither.
    finish(bed, served, verifier)
    path = bed.path("forebay.toml")
    with open(path) as f:
        before = f.read()
    with open(path, "w") as f:
        f.write(before.replace('mode = "write-back"', 'mode = "write-back"\nblock-size = "4KiB"\nmetadata-limit = "64KiB"'))
    said = bed.run(served.server.command, code=1)
    with open(path, "w") as f:
        f.write(before)
    served.server.start()
    assert served.stats("a")["ring"]["blocks_kept"] > 100, said
    assert served.server.stop() == 0
