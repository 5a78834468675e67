"""Hanging transactions: open in a partition, but unknown to every transaction coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.cli.admin_client import NO_TOPIC, reported
from penstock.cli.failures import Failure
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.transactions import OpenInPartition, TransactionDescription

_UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort")

_HINTS = {
    ErrorCode.invalid_txn_state: "Its coordinator knows the transaction: `penstock transaction list` shows it, and "
    "`penstock transaction abort ID` aborts it.",
    ErrorCode.coordinator_not_available: "A coordinator did not respond; try again when all brokers are running.",
    ErrorCode.concurrent_transactions: "Its producer has written meanwhile, so the transaction does not hang.",
}


async def open_in(client: InternalClient, topic: str, partition: int) -> list[OpenInPartition]:
    """Return the transactions that are open in a partition."""
    with reported(f"cannot list the transactions in {topic}-{partition}"):
        return await client.transactions.open_in(topic, partition)


async def describe_all(client: InternalClient, states: Sequence[str] = ()) -> list[TransactionDescription]:
    """Describe all transactional ids, or those in the given states. Ids that expire during the call are left out."""
    listed = await client.transactions.all(states)
    found = [await client.transactions.find(each.transactional_id) for each in listed]
    return [each for each in found if each is not None]


async def find_hanging(client: InternalClient, topics: Iterable[str]) -> list[OpenInPartition]:
    """Return the hanging transactions in all partitions of the given topics, or of all topics."""
    known_topics = {topic.name: topic for topic in await client.topics.all()}
    suspects: list[OpenInPartition] = []
    for name in sorted(set(topics) or known_topics):
        if name not in known_topics:
            raise Failure(f"there is no topic {name!r}", NO_TOPIC)
        for partition in range(len(known_topics[name].partitions)):
            suspects += await open_in(client, name, partition)
    if not suspects:
        return []
    described = await describe_all(client, _UNDER_WAY)
    known = {
        (each.producer_id, topic, partition)
        for each in described
        for topic, partitions in each.partitions.items()
        for partition in partitions
    }
    unknown = [each for each in suspects if (each.producer_id, each.topic, each.partition) not in known]
    # A transaction that ended after its partition was read is also unknown to coordinators, but is not hanging.
    return [each for each in unknown if not await _has_ended(client, each)]


async def abort_hanging(client: InternalClient, hanging: OpenInPartition) -> None:
    try:
        await client.transactions.abort_hanging(hanging)
    except BrokerError as error:
        if await _has_ended(client, hanging):
            return  # aborted by an earlier attempt, or ended by its producer
        place = f"{hanging.topic}-{hanging.partition}"
        raise Failure(
            f"the transaction of producer {hanging.producer_id} in {place} was not aborted ({error.code.name.upper()})",
            _HINTS.get(error.code, "Try again; `penstock transaction find-hanging` shows the transaction."),
        ) from error


async def _has_ended(client: InternalClient, transaction: OpenInPartition) -> bool:
    still_open = await open_in(client, transaction.topic, transaction.partition)
    return transaction.start_offset not in {each.start_offset for each in still_open}
