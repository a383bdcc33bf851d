"""Without a folder on tmpfs a write is acknowledged when it is on flash: the core of write-back again."""
import functools
import subprocess

import test_write_back
import test_write_back_restarts
from bed import Skip, Test, TESTS

WRITE_BACK = [
    test_write_back.write_back_serves_and_destages,
    test_write_back.nothing_acknowledged_is_lost_by_kills_under_load_in_write_back,
    test_write_back.a_log_that_is_dirty_outlives_a_kill_with_primary_storage_too_slow_to_destage,
    test_write_back.sigterm_keeps_what_is_dirty_and_the_next_run_goes_on,
    test_write_back_restarts.kills_during_recovery_lose_nothing,
]

def without_tmpfs(function):
    @functools.wraps(function)
    def run(bed):
        # A folder of the test lies over the host's shared memory, for Forebay alone.
        hidden = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                  'mount --bind "$0" /dev/shm && unset XDG_RUNTIME_DIR && exec "$@"', bed.directory]
        if subprocess.run([*hidden, "true"], capture_output=True).returncode != 0:
            raise Skip("this user may not make mount namespaces")
        bed.prefix = hidden
        function(bed)
        logs = "".join(server.log() for server in bed.servers)
        assert "no folder on tmpfs" in logs, "it does not say that there is no staging file"

    run.__module__ = __name__
    return run


for each in WRITE_BACK:
    TESTS.append(Test(without_tmpfs(each), forebay_only=True, alone=False, timeout=240))
