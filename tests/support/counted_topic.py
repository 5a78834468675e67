"""A topic whose number of partitions changes, as its administrator sees it. Requests are repeated while brokers die."""

from __future__ import annotations

from itertools import count

from confluent_kafka.admin import AdminClient, NewPartitions

from penstock.client.internal_calls import InternalCalls
from penstock.client.internal_connection import InternalConnection
from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.drain_progress import read_progress
from penstock.internal_client.inspection import InspectionCalls
from support.eventually import eventually

ANSWER_S = 10.0
PATIENCE_S = 120.0


class CountedTopic:
    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap, self.name = bootstrap, name
        self._calls = InternalCalls(InternalConnection(bootstrap), ANSWER_S, {})
        self._strangers = count()

    def set_count(self, number: int, change: str = "set", *, waits_for_groups: bool = True) -> None:
        """Request a count until there is an answer. An attempt without an answer may have had its effect."""

        def asked() -> bool:
            try:
                self._calls.run(
                    lambda client: client.topics.reduce_partitions(
                        self.name, number, change, waits_for_groups=waits_for_groups
                    )
                )
            except BrokerError as error:
                return error.code is ErrorCode.invalid_partitions
            except (PenstockError, OSError):
                return False
            return True

        eventually(asked, f"{change} {number} is answered", within_s=PATIENCE_S)

    def grow(self, number: int) -> None:
        """Create removed partitions again, as Kafka's tools do."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})

        def asked() -> bool:
            [grown] = admin.create_partitions([NewPartitions(self.name, number)]).values()
            return grown.exception(ANSWER_S) is None or len(self.phases()) == number

        eventually(asked, "partitions are created again", within_s=PATIENCE_S)

    def phases(self) -> list[str]:
        """Phases of all partitions; empty while no broker responds."""
        try:
            return list(self._calls.run(lambda client: client.topics.phases(self.name))["phases"])
        except (PenstockError, OSError):
            return []

    def until(self, *phases: str) -> None:
        """Wait until the partitions have these phases."""
        wanted = list(phases)
        eventually(
            lambda: self.phases() == wanted,
            f"the partitions are {wanted}",
            within_s=PATIENCE_S,
            details=self.waits_for,
        )

    def waits_for(self) -> dict[int, tuple[str, tuple[str, ...]]]:
        """Phases of the partitions that go, and the conditions that they wait for."""
        progress = self._calls.run(lambda client: read_progress(InspectionCalls(client.routes), self.name))
        return {each.partition: (each.phase, each.waits_for) for each in progress.going}

    def leaders(self) -> list[int]:
        """Leaders of all partitions, also of those that new clients are not shown."""
        route = eventually(
            lambda: self._calls.run(lambda client: client.topics.get(self.name, fresh=True)),
            "a broker names the leaders",
            within_s=PATIENCE_S,
            ignoring=(PenstockError, OSError),
        )
        return [int(partition.leader) for partition in route.partitions]

    def shown(self) -> int:
        """Number of partitions that a new client is shown."""
        settings = {"bootstrap.servers": self.bootstrap, "client.id": f"stranger-{next(self._strangers)}"}
        admin = AdminClient({**settings, "log_level": 3})
        return len(admin.list_topics(self.name, PATIENCE_S).topics[self.name].partitions)

    def until_shown(self, number: int) -> None:
        """Wait until new clients are shown this number of partitions."""
        eventually(
            lambda: self.shown() == number, f"new clients see {number} partitions", within_s=PATIENCE_S
        )
