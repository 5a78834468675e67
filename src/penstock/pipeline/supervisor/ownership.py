"""Ownership of pipelines: at most one supervisor at a time runs a pipeline.

A supervisor becomes the owner by initialising the transactional id of the pipeline, which fences earlier owners. Every
few seconds an owner verifies that its producer epoch is still the newest; its driver stops a pipeline that was not
verified for LEASE_SECONDS. A new owner waits longer than this before it starts the pipeline, unless the previous owner
has released it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import BrokerError
from penstock.internal_client.pipelines import PipelineCalls, StoredPipeline
from penstock.internal_client.routes import Routes
from penstock.internal_client.transactions import ProducerIdentity, TransactionCalls
from penstock.pipeline.offsets import ClusterUnreachable, run

LEASE_SECONDS = 15.0
MARGIN_SECONDS = 3.0
_TIMEOUT_MS = 60_000
_RETRY_SECONDS = 5.0


class Ownership:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def take(self, pipeline: StoredPipeline) -> tuple[ProducerIdentity, Mapping[str, Any]]:
        """Become the owner. Returns the producer identity that proves ownership, and the last reported state of this
        pipeline.
        """

        async def ask(routes: Routes) -> tuple[ProducerIdentity, Mapping[str, Any]]:
            token = await TransactionCalls(routes).begin(_id_of(pipeline), _TIMEOUT_MS, is_held=False)
            known = (await PipelineCalls(routes).statuses()).get(pipeline.name, {})
            return token, known if known.get("id") == pipeline.id else {}

        return run(self._bootstrap, ask, _RETRY_SECONDS)

    def still_owned(self, owned: Mapping[str, tuple[StoredPipeline, ProducerIdentity]]) -> set[str]:
        """Names of the pipelines whose producer identity is still the newest. Empty if no broker responds."""

        async def ask(routes: Routes) -> set[str]:
            calls = TransactionCalls(routes, _RETRY_SECONDS)
            found = set()
            for name, (pipeline, token) in owned.items():
                try:
                    known = await calls.find(_id_of(pipeline))
                except (BrokerError, OSError):
                    continue
                if known is not None and known.producer == token:
                    found.add(name)
            return found

        try:
            return run(self._bootstrap, ask, _RETRY_SECONDS) if owned else set()
        except (ClusterUnreachable, BrokerError):
            return set()

    def report(self, statuses: Mapping[str, Mapping[str, Any]], events: Iterable[tuple[str, Any]]) -> bool:
        """Store states and events. Returns False if no broker stored them; the caller sends them again later."""

        async def ask(routes: Routes) -> None:
            calls = PipelineCalls(routes)
            for name, status in statuses.items():
                await calls.report(name, status)
            for name, event in events:
                await calls.log(name, event)

        try:
            run(self._bootstrap, ask, _RETRY_SECONDS)
        except (ClusterUnreachable, BrokerError, OSError):
            return False
        return True


def _id_of(pipeline: StoredPipeline) -> str:
    return f"penstock-pipeline/{pipeline.name}/{pipeline.id}"
