"""Replica whose segment files were deleted or truncated while its broker was down: it gets its records again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from test_repair import COUNT, ORDERS, SCRUB, all_copied, contents, replica_of, started, stored

from support.eventually import eventually_async
from support.whole_brokers import Brokers, run


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.slow
@pytest.mark.parametrize("ruin", [remove, empty])
@pytest.mark.parametrize("place", [0, 1, -1], ids=["first", "middle", "last"])
def test_replica_without_a_segment_file_leaves_the_in_sync_set_and_is_fetched_again(
    tmp_path: Path, place: int, ruin: Callable[[Path], None]
) -> None:
    async def scenario(brokers: Brokers) -> None:
        await started(brokers, 2)
        await all_copied(brokers)
        await brokers.stop(2)
        ruin(stored(tmp_path, 2)[place].path)
        await brokers.start(2)
        assert brokers.members(2, ORDERS) == {1}
        assert any("log is damaged" in line for line in brokers.lines)
        await eventually_async(lambda: brokers.members(1, ORDERS) == {1, 2})
        log = replica_of(brokers, 2).log
        assert (log.damage, log.log_start_offset, log.log_end_offset) == ((), 0, COUNT)
        assert len(contents(tmp_path, [1, 2])) == 1

    run(tmp_path, scenario, **SCRUB)
