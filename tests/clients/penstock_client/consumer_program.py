"""A consumer process that tests kill. It appends its steps to a file, and stops at a chosen place.

    consumer_program.py BOOTSTRAP TOPIC DELIVERY NOTES STOP

STOP is `before-work` (committed, not processed), `after-work` (processed, next message not requested) or
`never`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from penstock import Consumer
from penstock.client.progress import AtMostOnce

STOP_AT = 3


def main(bootstrap: str, topic: str, delivery: Any, notes: str, stop: str) -> None:
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(text: str) -> None:
        os.write(file, f"{text}\n".encode())

    if stop == "before-work":
        stop_after_commit(note)
    with Consumer(
        topic,
        group=topic,
        bootstrap=bootstrap,
        delivery=delivery,
        commit_interval_ms=60_000 if stop == "after-work" else 20,
        config={"session.timeout.ms": 1000, "heartbeat.interval.ms": 100},
    ) as consumer:
        for message in consumer:
            note(message.raw.decode() if message.raw else "")
            if stop == "after-work" and message.offset == STOP_AT:
                note("stopped")
                threading.Event().wait()


def stop_after_commit(note: Any) -> None:
    arrived = AtMostOnce.arrived

    def arrived_and_stop(self: AtMostOnce, messages: Sequence[Any]) -> None:
        arrived(self, messages)
        note(f"committed {messages[-1].offset()}")
        threading.Event().wait()

    AtMostOnce.arrived = arrived_and_stop  # type: ignore[method-assign]


if __name__ == "__main__":
    main(*sys.argv[1:])
