"""A program with producers and readers of one topic, driven by lines on its standard input.

The programs are `Counts.java`, `go_topics/counts` and `counts.js`. Each line is a command, and has one line as answer:

- `open NAME MODE METADATA_AGE_MS` opens a producer with this client id: `opened`
- `send NAME FIRST COUNT` sends the values `NAME:FIRST` and on, as their own keys unless the mode is `unkeyed`: `sent`
  and their partitions
- `read NAME KIND PLACE` opens a consumer with this client id, of a group or of the partitions `0,1`: `reads`
- `close NAME` closes it: `closed`

The answer is `failed` and a reason if a client fails. A reader prints `value NAME PARTITION OFFSET VALUE` for each
record, and `broken` if it ends by an error.
"""

from __future__ import annotations

import queue
import subprocess
import threading
from collections import defaultdict
from collections.abc import Sequence

ANSWER_S = 150.0


class ClientFailed(AssertionError):
    """A client reported an error."""


class CountedClient:
    def __init__(self, command: Sequence[str], bootstrap: str, topic: str) -> None:
        self.read: defaultdict[str, dict[tuple[int, int], str]] = defaultdict(dict)
        """Values that each reader has read, by partition and offset, in the order of reading."""
        self.broken: list[str] = []
        """Readers that ended by an error, and offsets that a reader read out of order."""
        self._answers: queue.Queue[str] = queue.Queue()
        self._last: dict[tuple[str, int], int] = {}
        """Last offset that a reader has read of a partition."""
        self._process = subprocess.Popen(
            [*command, bootstrap, topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def open(self, name: str, mode: str, metadata_age_ms: int) -> None:
        self._ask(f"open {name} {mode} {metadata_age_ms}", "opened")

    def send(self, name: str, first: int, count: int) -> list[int]:
        """Send values, wait for all of them, and return their partitions."""
        return [int(word) for word in self._ask(f"send {name} {first} {count}", "sent").split()]

    def start_reading(self, name: str, kind: str, place: str) -> None:
        for key in [key for key in self._last if key[0] == name]:
            del self._last[key]
        self._ask(f"read {name} {kind} {place}", "reads")

    def close(self, name: str) -> None:
        self._ask(f"close {name}", "closed")

    def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(ANSWER_S)
        finally:
            self._process.kill()

    def _ask(self, line: str, expected: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        try:
            word, _, rest = self._answers.get(timeout=ANSWER_S).partition(" ")
        except queue.Empty:
            raise ClientFailed(f"no answer to {line!r}") from None
        if word != expected:
            raise ClientFailed(rest)
        return rest

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "value":
                self._note(*rest.split(" ", 3))
            elif word == "broken":
                self.broken.append(rest)
            else:
                self._answers.put(f"{word} {rest}")
        self._answers.put("failed the program has ended")

    def _note(self, name: str, partition: str, offset: str, value: str) -> None:
        place = int(partition), int(offset)
        last = self._last.get((name, place[0]), -1)
        if place[1] <= last:
            self.broken.append(f"{name} reads {place} after offset {last}")
        self._last[name, place[0]] = place[1]
        if self.read[name].setdefault(place, value) != value:
            self.broken.append(f"{name} reads {value} and {self.read[name][place]} at {place}")
