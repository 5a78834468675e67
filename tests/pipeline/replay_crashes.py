"""Kill a task of a replay at every step of its transactions, one process after another.

This is a script, because its children are forks of a process that has loaded all modules and started no
thread: `replay_crashes.py BOOTSTRAP SOURCE TARGET` prints one line for each crash and ends with an
undisturbed run.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from confluent_kafka import Producer

from penstock.pipeline import replay_writer
from penstock.pipeline.columns import ALL
from penstock.pipeline.fetching import read_range
from penstock.pipeline.offsets import topics_of
from penstock.pipeline.options import parse
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.read_settings import ReadSettings

RECORDS = 40
STEPS = [
    ("init_transactions", 1),
    ("begin_transaction", 1),
    ("produce", 1),
    ("produce", 5),
    ("send_offsets_to_transaction", 1),
    ("commit_transaction", 1),
    ("commit_transaction", 2),
]


class Dying(Producer):  # type: ignore[misc]
    """Producer that dies before or after the nth call of a method."""

    name, call, is_after = "", 0, False
    calls = 0

    def _step(self, name: str, *arguments: Any, **options: Any) -> Any:
        counts = name == Dying.name
        Dying.calls += counts
        dies = counts and Dying.calls == Dying.call
        if dies and not Dying.is_after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = getattr(Producer, name)(self, *arguments, **options)
        if dies:
            self.flush(10)  # the records are stored, in a transaction that stays open
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def init_transactions(self, *arguments: Any) -> Any:
        return self._step("init_transactions", *arguments)

    def begin_transaction(self, *arguments: Any) -> Any:
        return self._step("begin_transaction", *arguments)

    def produce(self, *arguments: Any, **options: Any) -> Any:
        return self._step("produce", *arguments, **options)

    def send_offsets_to_transaction(self, *arguments: Any) -> Any:
        return self._step("send_offsets_to_transaction", *arguments)

    def commit_transaction(self, *arguments: Any) -> Any:
        return self._step("commit_transaction", *arguments)


def main() -> None:
    bootstrap, source, target = sys.argv[1:]
    replay_writer._TRANSACTION_ROWS = 3
    for name, call in STEPS:
        for is_after in (False, True):
            pid = os.fork()
            if pid == 0:
                Dying.name, Dying.call, Dying.is_after = name, call, is_after
                vars(replay_writer)["Producer"] = Dying
                _run(bootstrap, source, target)
            _, status = os.waitpid(pid, 0)
            died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            moment = "after" if is_after else "before"
            print(name, call, moment, "killed" if died else f"ended {status}", flush=True)
    _run(bootstrap, source, target)


def _run(bootstrap: str, source: str, target: str) -> None:
    try:
        [topic] = topics_of(parse({"bootstrap": bootstrap, "subscribe": source})).values()
        wanted = OffsetRange(source, topic.id, 0, 0, RECORDS)
        to = replay_writer.ReplayTarget(bootstrap, target, 1, "crashes", {source: topic.id}, None, None)
        list(replay_writer.write_rows(to, read_range(ReadSettings(bootstrap), wanted, ALL)))
    except BaseException as error:  # noqa: BLE001 - a fork must not go on as its parent
        print(f"failed: {error!r}", flush=True)
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
