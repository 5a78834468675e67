"""Reassignments of a plan: all of them are started in the brokers at once, and this process waits for their completion.

If the command is run again, it finds the reassignments in progress and waits for them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from penstock.cli.cluster.replicas import ClusterReplicas, Replicas, read_replicas
from penstock.cli.failures import Failure
from penstock.cli.progress import CopyProgress, copy_progress
from penstock.cluster.balance import differences
from penstock.cluster.replica_layout import Assignment
from penstock.internal_client.client import InternalClient
from penstock.model import BrokerId, TopicPartition

POLL_SECONDS = 0.5
PAUSE_PER_POLL = 10
"""Pause between polls as a multiple of a poll's duration, which limits the load on the brokers."""
MAX_POLLS_WITHOUT_REASSIGNMENT = 10


@dataclass(frozen=True, slots=True)
class PlannedReassignment:
    name: TopicPartition
    before: Replicas
    after: Replicas
    missing_bytes: int

    @property
    def added(self) -> Replicas:
        return tuple(broker for broker in self.after if broker not in self.before)

    def is_in_progress(self, replicas: ClusterReplicas) -> bool:
        return self.name in replicas.reassigning and self._has_target(replicas.assignment[self.name])

    def is_complete(self, replicas: ClusterReplicas) -> bool:
        """Return True if the partition has its target replicas, or if its topic was deleted."""
        assigned = replicas.assignment.get(self.name)
        return assigned is None or (self.name not in replicas.reassigning and self._has_target(assigned))

    def _has_target(self, assigned: tuple[BrokerId, ...]) -> bool:
        return set(assigned) == set(self.after)


def reassignments_of(replicas: ClusterReplicas, planned: Assignment) -> list[PlannedReassignment]:
    """Return the reassignments of the plan, including those in progress."""
    changed = differences(replicas.assignment, planned)
    in_progress = {name: planned[name] for name in replicas.reassigning if name in planned}
    return [
        PlannedReassignment(name, replicas.present[name], after, replicas.missing_bytes(name, after))
        for name, after in sorted((changed | in_progress).items())
    ]


async def execute(
    client: InternalClient, replicas: ClusterReplicas, wanted: list[PlannedReassignment]
) -> None:
    """Start the reassignments, wait for their completion, then elect the preferred leaders."""
    new = {each.name: each.after for each in wanted if not each.is_in_progress(replicas)}
    await client.reassignments.begin(new)
    with copy_progress(sum(each.missing_bytes for each in wanted), len(wanted)) as progress:
        await _wait_for_completion(client, wanted, progress)
    # The controller elects a preferred leader that is not in sync yet at a later time.
    await client.reassignments.elect_preferred(each.name for each in wanted)


async def _wait_for_completion(
    client: InternalClient, wanted: list[PlannedReassignment], progress: CopyProgress
) -> None:
    total_bytes = sum(each.missing_bytes for each in wanted)
    idle_polls = 0
    while True:
        began = time.monotonic()
        replicas = await read_replicas(client)
        took_seconds = time.monotonic() - began
        left = [each for each in wanted if not each.is_complete(replicas)]
        missing_bytes = sum(replicas.missing_bytes(each.name, each.after) for each in left)
        progress.show(max(0, total_bytes - missing_bytes), len(wanted) - len(left))
        if not left:
            return
        # The broker that answers the first poll may not know the reassignments yet.
        idle_polls = 0 if any(each.name in replicas.reassigning for each in left) else idle_polls + 1
        if idle_polls > MAX_POLLS_WITHOUT_REASSIGNMENT:
            raise _was_cancelled(left[0], replicas)
        await asyncio.sleep(max(POLL_SECONDS, took_seconds * PAUSE_PER_POLL))


def _was_cancelled(reassignment: PlannedReassignment, replicas: ClusterReplicas) -> Failure:
    assigned = ",".join(map(str, replicas.assignment[reassignment.name]))
    target = ",".join(map(str, reassignment.after))
    return Failure(
        f"the reassignment of {reassignment.name} to brokers {target} was cancelled or replaced by another client: "
        f"its replicas are on brokers {assigned}",
        "Stop the other reassignment tool, then run this command again.",
    )
