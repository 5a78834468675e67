"""Connection of the admin client to the cluster: requests with a timeout, translated errors, offset lookups.

Shared by `Topics` and `Groups`; every call of the admin client uses `ask` or `metadata`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec

from penstock.client.bootstrap import client_settings
from penstock.client.errors import ClientError, TimedOut, TopicUnknown, from_kafka, translated
from penstock.client.internal_calls import InternalCalls
from penstock.client.internal_connection import InternalConnection
from penstock.client.offset_lookup import END, Where, lookup_of

T = TypeVar("T")
Place = tuple[str, int]

REQUEST_TIMEOUT_S = 30.0
RETRY_S = 0.05
NEWS_SPREAD_S = 2.0
"""Time within which all brokers learn of a new topic, in seconds."""
_NO_LEADER_YET = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE")
_NOT_HEARD_OF = "UNKNOWN_TOPIC_OR_PART"
_ERRORS: Mapping[str, type[ClientError]] = {
    "UNKNOWN_TOPIC_OR_PARTITION": TopicUnknown,
    "REQUEST_TIMED_OUT": TimedOut,
}


class Cluster:
    def __init__(
        self,
        bootstrap: str | None,
        connect_timeout_s: float,
        request_timeout_s: float,
        config: Mapping[str, Any],
    ) -> None:
        self._timeout_s = request_timeout_s
        self.calls = InternalCalls(InternalConnection(bootstrap, config), request_timeout_s, _ERRORS)
        """Requests that librdkafka cannot send."""
        self.admin = AdminClient({**client_settings(bootstrap, connect_timeout_s, config), **config})

    def ask(self, futures: Mapping[Any, Future[T]], what: str) -> list[T]:
        """Wait for all requests and return their responses; raise the first error only after all of them have ended."""
        answers = []
        problem: ClientError | None = None
        for future in futures.values():
            try:
                answers.append(future.result(self._timeout_s))
            except KafkaException as error:
                problem = problem or from_kafka(error, what)
            except TimeoutError:
                problem = problem or TimedOut(
                    f"{what}: no answer; is a broker running at the bootstrap address?"
                )
        if problem is not None:
            raise problem
        return answers

    def metadata(self) -> ClusterMetadata:
        with translated("cannot look up the topics"):
            return self.admin.list_topics(timeout=self._timeout_s)

    def places(self, topic: str, partitions: Iterable[int] | None = None) -> list[Place]:
        """Return these partitions of a topic, or all of them."""
        found = self.metadata().topics.get(topic)
        if found is None:
            raise TopicUnknown(
                f"there is no topic {topic!r}; create it with `penstock topic create` or Admin"
            )
        return [
            (topic, number) for number in (sorted(found.partitions) if partitions is None else partitions)
        ]

    def offsets(self, places: Iterable[Place], where: Where) -> dict[Place, int]:
        """Return an offset for each partition. A time after the last message is resolved to the end offset."""
        chosen = list(places)
        lookup = lookup_of(where)
        if lookup is None:
            assert isinstance(where, int)
            return dict.fromkeys(chosen, where)
        if not chosen:
            return {}
        found = self._look_up({TopicPartition(*place): lookup for place in chosen})
        late = [place for place, offset in found.items() if offset < 0]
        return found | (self.offsets(late, END) if late else {})

    def _look_up(self, asked: Mapping[TopicPartition, OffsetSpec]) -> dict[Place, int]:
        """Look up offsets. Retries while a new partition has no leader, or its leader does not know the
        partition yet.
        """
        started = time.monotonic()
        while True:
            answers = self.admin.list_offsets(asked, request_timeout=self._timeout_s)
            try:
                found = self.ask(answers, "cannot look up offsets")
            except ClientError as error:
                if time.monotonic() - started >= self._patience_s(error):
                    raise
                time.sleep(RETRY_S)
            else:
                places = ((each.topic, each.partition) for each in answers)
                return {place: answer.offset for place, answer in zip(places, found, strict=True)}

    def _patience_s(self, error: ClientError) -> float:
        if error.code in _NO_LEADER_YET:
            return self._timeout_s
        return NEWS_SPREAD_S if error.code == _NOT_HEARD_OF else 0.0
