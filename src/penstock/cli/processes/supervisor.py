"""Supervision of child processes: start them, restart a child that ends, stop all.

Each child gets one end of a socket pair. The child sends a byte when it serves. When this process ends for any reason,
the child reads the end of the stream. Children have their own sessions, so that a signal from the terminal reaches only
this process. Loop thread only.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

RESTART_SECONDS = 1.0
STOP_SECONDS = 60.0
"""Time in seconds that a child has to stop before it is killed."""

SERVING = b"s"


class ChildEnded(Exception):
    """A child ended before it served for the first time. The reason is in the child's own output."""

    def __init__(self, number: int, code: int) -> None:
        super().__init__(f"process {number} ended with exit code {code}")
        self.number = number
        self.code = code


class ProcessSupervisor:
    def __init__(
        self,
        command: Callable[[int, int], Sequence[str]],
        on_change: Callable[[], None] = lambda: None,
        on_end: Callable[[int, int], None] = lambda number, code: None,
        inherited: Iterable[int] = (),
    ) -> None:
        """`command` returns the command line of a child, given its number and the file descriptor of its end of the
        socket pair.

        `on_change` is called when a process has started or ended. `on_end` is called with the number and exit code of a
        child that ended without being asked to stop. `inherited` are file descriptors that all children keep open.
        """
        self.pids: dict[int, int] = {}
        """Process ids of the running children."""
        self._command = command
        self._on_change = on_change
        self._on_end = on_end
        self._inherited = tuple(inherited)
        self._children: dict[int, _Child] = {}

    async def start(self, numbers: Iterable[int]) -> None:
        """Start children and wait until all of them serve. Raises ChildEnded if one ends before it serves."""
        children = [self._add(number) for number in numbers]
        await asyncio.gather(*(child.first_start for child in children))

    def add(self, numbers: Iterable[int]) -> None:
        """Start children without waiting for them."""
        for number in numbers:
            self._add(number).first_start.cancel()

    async def stop(self, numbers: Iterable[int]) -> None:
        """Stop children with SIGTERM. A child that does not end within STOP_SECONDS is killed."""
        stopping = [child for number in numbers if (child := self._children.pop(number, None))]
        for child in stopping:
            child.is_wanted = False
            child.send(signal.SIGTERM)
        await asyncio.gather(*(self._wait_for(child) for child in stopping))

    async def stop_all(self) -> None:
        await self.stop(list(self._children))

    def _add(self, number: int) -> _Child:
        child = self._children[number] = _Child()
        child.task = asyncio.ensure_future(self._keep_running(number, child))
        return child

    async def _wait_for(self, child: _Child) -> None:
        assert child.task is not None
        if child.process is None:
            child.task.cancel()
        child.first_start.cancel()
        _, late = await asyncio.wait([child.task], timeout=STOP_SECONDS)
        if late:
            child.send(signal.SIGKILL)
            await asyncio.wait(late)

    async def _keep_running(self, number: int, child: _Child) -> None:
        while child.is_wanted:
            code = await self._run_once(number, child)
            # A child that ended by itself is a failed start. A killed child (negative code) is restarted.
            if code >= 0 and not child.first_start.done():
                child.first_start.set_exception(ChildEnded(number, code))
            if child.is_wanted:
                self._on_end(number, code)
                await asyncio.sleep(RESTART_SECONDS)

    async def _run_once(self, number: int, child: _Child) -> int:
        """Run a child until it ends and return its exit code."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            child.process = process = await asyncio.create_subprocess_exec(
                *self._command(number, theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *self._inherited),
                start_new_session=True,
            )
            theirs.close()
            self.pids[number] = process.pid
            self._on_change()
            if not child.is_wanted:
                child.send(signal.SIGTERM)
            listening = asyncio.ensure_future(self._hear(ours, child))
            code = await process.wait()
            listening.cancel()
            return code
        finally:
            child.process = None
            ours.close()
            theirs.close()
            if self.pids.pop(number, None) is not None:
                self._on_change()

    async def _hear(self, ours: socket.socket, child: _Child) -> None:
        with suppress(OSError):
            said = await asyncio.get_running_loop().sock_recv(ours, len(SERVING))
            if said == SERVING and not child.first_start.done():
                child.first_start.set_result(None)


class _Child:
    def __init__(self) -> None:
        self.is_wanted = True
        self.process: Process | None = None
        self.task: asyncio.Task[None] | None = None
        self.first_start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completed when the child has served for the first time."""

    def send(self, number: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)
