"""A simulated machine: the wall clock and the boot id that the brokers on it share. A power loss ends the
boot.
"""

from __future__ import annotations

from collections.abc import Callable

from simulation.machine.clock import SimulatedClock


class SimulatedMachine:
    def __init__(self, name: str, now: Callable[[], float]) -> None:
        """`now` is the `time` method of the loop."""
        self.name = name
        self.clock = SimulatedClock(now)
        self._boots = 1

    @property
    def boot_id(self) -> str:
        return f"{self.name}/{self._boots}"

    def boot(self) -> None:
        """Start the machine again after a power loss."""
        self._boots += 1
