"""The fallback without io_uring: the core of the other tests again, on epoll."""
import functools

import test_crash
import test_fio
import test_hostile
import test_libnbd
import test_tools
import test_staging
from bed import Test, TESTS

CORE = [
    *test_staging.WRITE_BACK,
    test_tools.nbdcopy_in_and_out_again_gives_the_same_bytes,
    test_tools.qemu_io_reads_back_every_pattern_it_wrote,
    test_tools.qemu_io_zeroes_and_discards,
    test_libnbd.unaligned_requests_of_one_sector_work_everywhere,
    test_libnbd.requests_of_32_mib_are_served,
    test_libnbd.many_requests_in_flight_all_come_back_with_their_own_data,
    test_libnbd.overlapping_writes_in_flight_end_as_one_of_them_in_every_sector,
    test_fio.fio_verifies_write_through_with_ram_and_flash,
    test_fio.fio_verifies_pass_through,
    test_hostile.a_client_that_vanishes_in_the_middle_of_a_request_harms_nobody,
    test_hostile.a_client_that_does_not_read_pins_no_slot,
    test_crash.nothing_acknowledged_is_lost_by_kills_under_load_in_write_through,
    test_crash.sigterm_answers_what_is_in_flight,
]


def on_epoll(function):
    @functools.wraps(function)
    def run(bed):
        disk = bed.disk

        def with_epoll(*arguments, extra=(), **options):
            server = disk(*arguments, extra=[*extra, "--reactor", "epoll"], **options)
            assert "epoll" in server.said, "it does not say that it runs on epoll: " + server.said
            return server

        bed.disk = with_epoll
        function(bed)

    run.__module__ = __name__
    return run


for each in CORE:
    TESTS.append(Test(on_epoll(each), forebay_only=True, alone=False, timeout=240))
