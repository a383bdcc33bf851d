#!/usr/bin/python3
"""What libCacheSim, the field's cache simulator in C, takes for the uses in FILE: one JSON object on standard output.

    cachesim.py FILE BLOCKS POLICY...

FILE is in its own binary format (oracleGeneral: of each use 4 bytes of time, 8 of block, 4 of size, 8 unused); the cache has
BLOCKS blocks. For each policy: CPU seconds of this process, and the miss ratio. `cargo bench -p forebay-trace --bench mrc` runs it,
with the Python of target/libcachesim, where `scripts/setup bench` installs the package.
"""
import json
import sys
import time

import libcachesim

POLICIES = {"lru": libcachesim.LRU, "sieve": libcachesim.Sieve, "arc": libcachesim.ARC, "s3fifo": libcachesim.S3FIFO}


def main():
    file, blocks, policies = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    parameters = libcachesim.ReaderInitParam()
    parameters.ignore_obj_size = True
    reader = libcachesim.TraceReader(
        trace=file, trace_type=libcachesim.TraceType.ORACLE_GENERAL_TRACE, reader_init_params=parameters
    )
    # Into the page cache.
    reader.get_num_of_req()
    out = {}
    for policy in policies:
        reader.reset()
        cache = POLICIES[policy](cache_size=blocks)
        start = time.process_time()
        misses, _ = cache.process_trace(reader)
        out[policy] = {"seconds": time.process_time() - start, "miss_ratio": misses}
    print(json.dumps(out))


main()
