"""A bound on the time of commits, in seeds whose clocks jump: a leader without a fault of its own commits in
time.

A hung follower is dropped after the lag time and a dead one after its session timeout; neither depends on
a wall clock. In a seed without other faults no follower is dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place
from simulation.scenarios.stage import Stage

_SLACK_SECONDS = 4.0


class _Waiting(NamedTuple):
    log_end: int
    since: float


class CommitTime:
    def __init__(self, stage: Stage, lag_ms: int, session_seconds: float) -> None:
        self._stage = stage
        self._bound_seconds = lag_ms / 1000 + session_seconds + _SLACK_SECONDS
        self._waiting: dict[tuple[Place, int, int], _Waiting] = {}
        self.troubled: Collection[int] = ()
        """The brokers with a fault that may keep a leader from committing."""

    def look(self) -> None:
        now, waiting = self._stage.world.loop.time(), self._waiting
        self._waiting = {}
        for member in self._stage.members:
            if not member.is_serving or member.is_paused or member.node_id in self.troubled:
                continue
            for replica in member.replicas():
                place, epoch = (replica.name.topic, replica.name.partition), replica.partition.leader_epoch
                if not self._stage.leads(member.node_id, *place) or replica.partition.is_held:
                    continue  # under min ISR nothing is committed
                life = (place, member.node_id, epoch)
                high_watermark, log_end = replica.log.high_watermark, replica.log.log_end_offset
                before = waiting.get(life)
                if before is None or high_watermark >= before.log_end:
                    before = _Waiting(log_end, now)
                if now - before.since > self._bound_seconds and high_watermark < before.log_end:
                    raise InvariantViolated(
                        "I13",
                        f"{replica.name}: {before.log_end} was not committed for {now - before.since:.1f} seconds",
                    )
                self._waiting[life] = before
