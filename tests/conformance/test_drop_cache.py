"""Dropping a disk's cache by command, which is what tells of a change by somebody else while the disk is served."""
import json

from bed import pattern, test
from test_fence import FAR, dirty_disk, image_of, serves_what_was_written, written_at
from test_write_back import attach, disk_command


@test(forebay_only=True)
def drop_cache_drops_what_is_clean_with_a_client_at_work(bed):
    image = image_of(bed)
    disk = dirty_disk(bed, "file:" + image)
    h = attach(disk)
    for n in range(64):
        h.pread(8192, FAR + n * 8192)
    cached = disk.stats()["vfrc"]["numBlocksCurrentlyCached"]
    assert cached >= 64, cached
    # Somebody else writes while the disk is served: nothing but this command would tell it.
    written_at(image, FAR)
    assert bytes(h.pread(4096, FAR)) == pattern(FAR, 4096)
    dropped = json.loads(disk_command(bed, disk, "drop-cache", "disk", "--json"))
    assert dropped["blocks"] >= 64 and dropped["block_size"] == 8192, dropped
    assert bytes(h.pread(4096, FAR)) == pattern(FAR, 4096, 99)
    serves_what_was_written(disk)
    assert "blocks" in disk_command(bed, disk, "drop-cache", "disk")
    assert "strong" not in disk_command(bed, disk, "show", "disk"), "it is new"
    assert disk.stop() == 0
    # That write came before the last look at primary storage.
    disk.start()
    assert "evidence at start strong" in disk_command(bed, disk, "show", "disk")
    disk.kill()
