"""Ends of broker processes, as far as the cluster promises to survive them, and how long a broker stays down."""

from __future__ import annotations

from random import Random

from penstock.simulation.faults.survival import Survival
from penstock.simulation.scenarios.cluster_member import ClusterMember
from penstock.simulation.scenarios.cluster_stage import ClusterStage


class Outages:
    def __init__(
        self, stage: ClusterStage, survival: Survival, random: Random, session_seconds: float
    ) -> None:
        self.survival = survival
        self.session_seconds = session_seconds
        self._stage = stage
        self._random = random

    def end(self, member: ClusterMember) -> None:
        """Crash the process, if that is survivable."""
        if member.is_running and self.survival.may_crash(member):
            member.crash()

    def keep_down(self, member: ClusterMember) -> None:
        """Delay the next start, perhaps beyond the end of the session."""
        longest = self._random.choice((0.1, 1.0, 2 * self.session_seconds))
        member.down_until = self._stage.world.loop.time() + self._random.uniform(0.0, longest)
