"""A pool that was put back to a time before it had a disk: nothing that its newer log holds is passed by."""
import os
import shutil

from bed import pattern, test
from test_fence import FAR, SIZE, digest, dirty_disk, end, forget, image_of, serves_what_was_written
from test_write_back import attach, destaged, write_back


@test(forebay_only=True)
def a_pool_from_before_the_disk_is_refused_until_the_newer_one_is_back_or_it_is_taken_over(bed):
    pool, before, newer = bed.path("pool"), bed.path("pool.before"), bed.path("pool.newer")
    for how in ["stopped", "killed"]:
        first = write_back(bed, "file:" + bed.image("first.raw", SIZE), name="first")
        assert first.stop() == 0
        shutil.copyfile(pool, before)
        image = image_of(bed)
        disk = dirty_disk(bed, "file:" + image)
        end(disk, how)
        os.rename(pool, newer)
        shutil.copyfile(before, pool)
        as_it_was = digest(image)
        for _ in range(2):
            refused = bed.run(disk.command, code=None, timeout=30)
            assert refused.returncode == 1, refused.stderr
            for text in [pool + " is an old copy", "disk 'disk'", "--take-over "]:
                assert text in refused.stderr, "%r is not in: %s" % (text, refused.stderr)
        assert digest(image) == as_it_was
        uuid = refused.stderr.split("--take-over ")[1].split()[0]
        os.rename(newer, pool)
        disk.start()
        serves_what_was_written(disk)
        end(disk, how)
        # The newer one is gone for ever.
        shutil.copyfile(before, pool)
        taken = write_back(bed, "file:" + image, extra=["--take-over", uuid])
        attach(taken).pwrite(pattern(FAR, 4096, 99), FAR)
        destaged(taken)
        assert taken.stop() == 0
        disk.start()
        assert bytes(attach(disk).pread(4096, FAR)) == pattern(FAR, 4096, 99)
        assert disk.stop() == 0
        forget(bed, disk, image)
