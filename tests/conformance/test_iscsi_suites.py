"""iSCSI: libiscsi's suites, and the tests of theirs that may skip themselves."""
import iscsi
from bed import test
from iscsi import url

# Tests that are right only where a physical block is a logical one, with the options under which that is so.
# GetLBAStatus.UnmapSingle unmaps i blocks, asks for LBA i + 1, and expects the first descriptor to begin at i plus the blocks of
# a physical one. SBC-3, "LBA status descriptor relationships": the first descriptor begins at the STARTING LOGICAL BLOCK
# ADDRESS of the CDB, here i + 1. The same where those are one.
ELSEWHERE = {"GetLBAStatus.UnmapSingle": ["--physical-block", "512B"]}


# Suites that skip tests: they need a removable or a read-only medium, SANITIZE, EXTENDED COPY, or a promise that a long
# write is never torn by a loss of power.
MAY_SKIP = {"PreventAllow", "StartStopUnit", "ReadOnly", "Sanitize", "ExtendedCopy", "ReceiveCopyResults",
            "WriteAtomic16"}
# A WRITE SAME of no blocks is refused, as page B0 says (WSNZ). Where it is taken, WriteSame10.UnmapUntilEnd sends a block of
# ones with UNMAP and expects zeroes; but with LBPRZ such a block is written, as if UNMAP were not set (sg_write_same(8)
# says so, too): anything else would be another's bytes in place of what was sent.
MAY_SKIP_TESTS = {"WriteSame10.ZeroBlocks", "WriteSame16.ZeroBlocks"}


# Each suite with a second path, over another portal of the same target: no test may fail or hang.
@test(forebay_only=True, timeout=900)
def libiscsis_suites_pass_over_two_portals(bed):
    disk = iscsi.start(bed, extra=["--iscsi", "127.0.0.2:0"])
    failed, counts = [], {}

    def judge(suite, disk, is_judged):
        results, said = iscsi.run_suite(suite, [url(disk), url(disk, number=1)])
        for name, (result, why) in results.items():
            name = suite + "." + name
            if not is_judged(name):
                continue
            counts[result] = counts.get(result, 0) + 1
            print("%-8s %s %s" % (result, name, why), flush=True)
            may_skip = result == iscsi.SKIPPED and (suite in MAY_SKIP or name in MAY_SKIP_TESTS)
            if result != iscsi.PASSED and not may_skip:
                failed.append("%s %s" % (name, why))
                print(said)

    for suite in iscsi.suites():
        judge(suite, disk, lambda name: name not in ELSEWHERE)
    assert disk.stop() == 0
    for name, options in ELSEWHERE.items():
        disk = iscsi.start(bed, extra=["--iscsi", "127.0.0.2:0", *options])
        judge(name.split(".")[0], disk, lambda its: its == name)
        assert disk.stop() == 0
    print(counts)
    assert counts.get(iscsi.PASSED, 0) >= 193, counts
    assert not failed, failed
