"""Planted bugs of a cluster: each breaks one rule of elections, in-sync sets, truncation or commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.cluster import leader_election, membership, rejoining
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.membership import BrokerIdentity
from penstock.config import Durability
from penstock.model import BrokerEpoch, BrokerId, Offset
from penstock.replication import fetcher, in_sync_writer, replica, replica_manager
from penstock.replication.fetcher import Fetcher
from penstock.replication.fetchers import Fetchers
from penstock.replication.in_sync import InSync
from penstock.replication.in_sync_writer import InSyncWriter
from penstock.replication.partition import ReplicatedPartition
from penstock.replication.replica import Replica
from penstock.replication.truncation import truncation_offset
from penstock.server.handlers import replica_fetch
from penstock.storage.log import Log
from penstock.storage.producer_state import ProducerStates
from simulation.faults.cluster_traits import LOST_LEADER


@planted_in_cluster("I11")
def committed_by_the_leader_alone() -> AbstractContextManager[Any]:
    """A record counts as committed as soon as the leader has it."""
    return patch.object(InSync, "committed_end", lambda self, log_end, flushed, durability: log_end)


@planted_in_cluster("I11", "I1")
def cut_at_the_high_watermark() -> AbstractContextManager[Any]:
    """A follower truncates to its high watermark whenever it gets a leader, as before KIP-101."""
    follow = Fetchers.follow

    def cut_and_follow(self: Fetchers, copy: Replica, leader: BrokerId) -> None:
        if copy.log.log_end_offset > copy.log.high_watermark and copy.log.jobs.begin_truncation():
            self._context.logs.truncate(copy.log, copy.log.high_watermark, self._context.clock.now_ms())
            copy.log.jobs.finish_truncation()
            copy.on_truncated()
        follow(self, copy, leader)

    return patch.object(Fetchers, "follow", cut_and_follow)


@planted_in_cluster("I9")
def histories_are_not_compared() -> AbstractContextManager[Any]:
    """A leader does not compare the epochs of a follower's log with its own."""
    return patch.object(replica, "diverging_epoch", lambda *_: None)


@planted_in_cluster("I9", "I13")
def nothing_is_cut() -> AbstractContextManager[Any]:
    """A follower whose log diverges from its leader's does not truncate it."""

    async def go_on(self: Fetcher, copy: Replica, *_: object) -> None:
        copy.log.leader_epochs.assign(copy.partition.leader_epoch, copy.log.log_end_offset)

    return patch.object(Fetcher, "_truncate", go_on)


@planted_in_cluster("I9", "I13")
def cut_too_little() -> AbstractContextManager[Any]:
    """A follower truncates to one record behind the end of the common epoch."""

    def later_end(epochs: Any, log_start: Any, log_end: Any, epoch: Any, end: Any) -> Offset | None:
        offset = truncation_offset(epochs, log_start, log_end, epoch, end)
        return None if offset is None else min(Offset(offset + 1), log_end)

    return patch.object(fetcher, "truncation_offset", later_end)


@planted_in_cluster("I10")
def no_epoch_fence() -> AbstractContextManager[Any]:
    """A request with another leader epoch is not refused."""
    return patch.object(Replica, "check_leader_epoch", lambda *_: None)


@planted_in_cluster("I11")
def shrink_counts_before_it_is_recorded() -> AbstractContextManager[Any]:
    """A proposed in-sync set counts before it is recorded."""
    refresh = InSync._refresh

    def refresh_for_pending(self: InSync) -> None:
        recorded = self.recorded
        self.recorded = recorded if self._pending is None else self._pending.members
        refresh(self)
        self.recorded = recorded

    return patch.object(InSync, "_refresh", refresh_for_pending)


def joins_before_the_epoch_start() -> AbstractContextManager[Any]:
    """A follower joins the in-sync set with all records below the high watermark that its leader knows.

    Seeds show it too rarely, because it heals within milliseconds: `test_cluster_members.py` has the
    scenario.
    """

    def may_join(self: InSync, member: BrokerId, high_watermark: Offset) -> bool:
        follower = self.followers.get(member)
        return follower is not None and member not in self.recorded and follower.log_end >= high_watermark

    return patch.object(InSync, "may_join", may_join)


@planted_in_cluster("I11")
def joins_below_the_high_watermark() -> AbstractContextManager[Any]:
    """A follower joins the in-sync set as soon as it has fetched."""

    def may_join(self: InSync, member: BrokerId, high_watermark: Offset) -> bool:
        follower = self.followers.get(member)
        return follower is not None and member not in self.recorded and follower.log_end >= 0

    return patch.object(InSync, "may_join", may_join)


@planted_in_cluster("I11")
def counted_when_it_is_sent() -> AbstractContextManager[Any]:
    """Records count as replicated when they are sent to a follower."""
    on_fetch = InSync.on_fetch

    def count(
        self: InSync,
        replica: BrokerId,
        broker_epoch: BrokerEpoch,
        offset: Offset,
        flushed: Offset,
        leader_log_end: Offset,
        *rest: Any,
    ) -> bool:
        return on_fetch(self, replica, broker_epoch, leader_log_end, leader_log_end, leader_log_end, *rest)

    return patch.object(InSync, "on_fetch", count)


@planted_in_cluster("I11", "I1", "I3", needs={"leave_one", "auto"})
def no_fsync_before_a_set_of_one() -> AbstractContextManager[Any]:
    """The leader is recorded as the only in-sync replica before it has fsynced its log."""

    async def flush(self: InSyncWriter, proposal: object) -> bool:
        return True

    return patch.object(InSyncWriter, "_flush", flush)


@planted_in_cluster("I1", "I3", "I11", needs={"leave_one", "auto"})
def alone_without_fsync() -> AbstractContextManager[Any]:
    """A leader that is alone in sync commits what is in its page cache."""
    advance = ReplicatedPartition.advance

    def advance_at_once(self: ReplicatedPartition) -> bool:
        durability = self.durability
        if self._is_alone and durability is Durability.AUTO:
            self.durability = Durability.OS
        has_moved = advance(self)
        self.durability = durability
        return has_moved

    return patch.object(ReplicatedPartition, "advance", advance_at_once)


@planted_in_cluster("I1", "I3", "I11", needs={"lose_power"})
def unclean_restart_stays_in_sync() -> AbstractContextManager[Any]:
    """A broker that did not stop in order stays in its in-sync sets."""
    return patch.object(membership, "rejoin_rule", lambda *_: lambda *_: None)


@planted_in_cluster("I1", "I5", "I11", needs={"empty_disk"})
def emptied_disk_stays_in_sync() -> AbstractContextManager[Any]:
    """A broker with an emptied disk counts as one that stopped in order."""
    is_whole = BrokerIdentity.is_whole

    def as_if_whole(self: BrokerIdentity, last: Any) -> bool:
        is_other_disk = last is not None and last.directory_id != self.directory_id
        return is_other_disk or is_whole(self, last)

    return patch.object(BrokerIdentity, "is_whole", as_if_whole)


@planted_in_cluster("I10")
def any_replica_is_elected() -> AbstractContextManager[Any]:
    """A leader is elected from all replicas."""
    first_alive = leader_election.first_alive

    def first(image: ClusterImage, partition: PartitionState, members: Any) -> BrokerId:
        return first_alive(image, partition, partition.replicas)

    return patch.object(leader_election, "first_alive", first)


@planted_in_cluster("I10")
def elected_in_the_same_epoch() -> AbstractContextManager[Any]:
    """A new leader gets no new epoch."""
    return patch.object(
        leader_election, "led_by", lambda partition, leader: replace(partition, leader=leader)
    )


@planted_in_cluster("I2", "sequence")
def followers_forget_producers() -> AbstractContextManager[Any]:
    """A follower does not record the sequences of idempotent producers."""
    append = Log.append_as_follower

    def forget(self: Log, *arguments: Any) -> None:
        with patch.object(ProducerStates, "record", lambda *_: None):
            append(self, *arguments)

    return patch.object(Log, "append_as_follower", forget)


@planted_in_cluster("T15", needs={"leave_one", "os"})
def too_few_in_sync_are_enough() -> AbstractContextManager[Any]:
    """acks=all is acknowledged under min ISR."""
    return no_minimum("refuses_acks_all")


@planted_in_cluster("T15", needs={"internal min in sync", "leave_one"})
def coordinators_ignore_min_insync_replicas() -> AbstractContextManager[Any]:
    """Commits of offsets and transactions are acknowledged under min ISR."""
    return no_minimum("is_under_min_insync")


@contextmanager
def no_minimum(check: str) -> Iterator[None]:
    """Take out one check of `min.insync.replicas`, and the rule that nothing is committed under min ISR."""
    with (
        patch.object(Replica, check, property(lambda _: False)),
        patch.object(InSync, "_is_enough", lambda *_: True),
    ):
        yield


@planted_in_cluster("T15", needs={LOST_LEADER})
def records_are_committed_under_min_isr() -> AbstractContextManager[Any]:
    """A leader under min ISR commits records that the recorded eligible leaders lack."""
    refresh = InSync._refresh

    def refresh_without_hold(self: InSync) -> None:
        refresh(self)
        self._conditions = tuple(replace(condition, is_held=False) for condition in self._conditions)

    return patch.object(InSync, "_refresh", refresh_without_hold)


@planted_in_cluster("I1", "I3", "I11", needs={LOST_LEADER})
def sole_in_sync_replica_leads_after_it_lost_data() -> AbstractContextManager[Any]:
    """The only member of an in-sync set stays in it when it has lost records that eligible leaders have."""
    return patch.object(rejoining, "_yield", lambda _, partition, *__: partition)


@planted_in_cluster("I1", "I3", "I5", "I8", "I11", needs={"shared_machine", "auto"})
def replicas_counted_by_brokers_instead_of_machines() -> AbstractContextManager[Any]:
    """Two in-sync brokers on one machine commit records that neither of them has fsynced."""
    return patch.object(InSync, "_is_one_machine", lambda self, members: set(members) == {self._me})


@planted_in_cluster("I13", needs={"jump_clock"})
def replica_lag_is_measured_by_the_wall_clock() -> AbstractContextManager[Any]:
    """A wall clock that is set back keeps a hung follower in the in-sync set, and commits wait for it."""

    @contextmanager
    def plant() -> Iterator[None]:
        with ExitStack() as patches:
            for module in (in_sync_writer, replica_manager, replica_fetch):
                patches.enter_context(patch.object(module, "monotonic_ms", lambda clock: clock.now_ms()))
            yield

    return plant()
