"""Ends of broker processes, as far as the cluster promises to survive them, and how long a broker stays down."""

from __future__ import annotations

from random import Random

from simulation.faults.survival import Survival
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage


class Outages:
    def __init__(self, stage: Stage, survival: Survival, random: Random, session_seconds: float) -> None:
        self.survival = survival
        self.session_seconds = session_seconds
        self._stage = stage
        self._random = random

    def end(self, member: BrokerHost) -> None:
        """Crash the process, if that is survivable."""
        if member.is_running and self.survival.may_crash(member):
            member.crash()

    def keep_down(self, member: BrokerHost) -> None:
        """Delay the next start, perhaps beyond the end of the session."""
        longest = self._random.choice((0.1, 1.0, 2 * self.session_seconds))
        member.down_until = self._stage.world.loop.time() + self._random.uniform(0.0, longest)
