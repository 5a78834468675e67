"""Administration of declared pipelines: `Admin().pipelines`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.client.errors import ClientError, InvalidSetting
from penstock.client.internal_calls import InternalCalls
from penstock.client.internal_connection import InternalConnection

if TYPE_CHECKING:
    from penstock.internal_client.pipelines import PipelineCalls, StoredPipeline

T = TypeVar("T")


class PipelineUnknown(ClientError, LookupError):
    """The pipeline does not exist."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    state: str
    paused: bool
    revision: int
    definition: Mapping[str, Any]
    status: Mapping[str, Any]
    """Statistics reported by the supervisor that runs the pipeline: `rows`, `bytes`, `lag_records`, `last_success_ms`,
    `failures`, `error`, ...
    """


class Pipelines:
    def __init__(self, connection: InternalConnection, timeout_s: float) -> None:
        self._calls = InternalCalls(connection, timeout_s, {})

    def apply(self, definition: Mapping[str, Any]) -> Pipeline:
        """Declare a pipeline, or change its definition. `definition` has the format of the file of `penstock pipeline
        apply`.

        Raises InvalidSetting, which lists all problems.
        """
        from penstock.declared.checking import check_pipeline

        problems = check_pipeline(definition)
        if problems:
            raise InvalidSetting("; ".join(f"{each.pointer or '/'}: {each.text}" for each in problems))
        self._run(lambda calls: calls.put(definition))
        return self.describe(definition["name"])

    def list(self) -> list[Pipeline]:
        """List the pipelines by name."""
        return self._run(_read)

    def describe(self, name: str) -> Pipeline:
        """Describe a pipeline; PipelineUnknown if there is none."""
        found = [each for each in self.list() if each.name == name]
        if not found:
            raise PipelineUnknown(f"there is no pipeline {name!r}")
        return found[0]

    def pause(self, name: str) -> Pipeline:
        """Pause a pipeline: it stops after the batch in progress."""
        return self._change(name, lambda calls, stored: calls.set_paused(stored, True))

    def resume(self, name: str) -> Pipeline:
        """Resume a paused pipeline at its last position."""
        return self._change(name, lambda calls, stored: calls.set_paused(stored, False))

    def run(self, name: str) -> Pipeline:
        """Ask the supervisor to run a scheduled pipeline now. Returns without waiting for the run."""
        return self._change(name, lambda calls, stored: calls.request_run(stored))

    def logs(self, name: str, most: int = 100) -> Sequence[dict[str, Any]]:
        """Return the last `most` events of a pipeline, oldest first."""
        self.describe(name)
        return self._run(lambda calls: calls.events(name, most))

    def delete(self, name: str) -> None:
        """Delete a pipeline. The data that it has written stays."""
        self.describe(name)
        self._run(lambda calls: calls.delete(name))

    def _change(
        self, name: str, change: Callable[[PipelineCalls, StoredPipeline], Awaitable[StoredPipeline]]
    ) -> Pipeline:
        async def work(calls: PipelineCalls) -> None:
            stored = await calls.get(name)
            if stored is None:
                raise PipelineUnknown(f"there is no pipeline {name!r}")
            await change(calls, stored)

        self._run(work)
        return self.describe(name)

    def _run(self, work: Callable[[PipelineCalls], Awaitable[T]]) -> T:
        return self._calls.run(lambda client: work(client.pipelines))


async def _read(calls: PipelineCalls) -> list[Pipeline]:
    from penstock.internal_client.pipelines import description

    statuses = await calls.statuses()
    found = [description(each, statuses.get(each.name)) for each in await calls.all()]
    return [Pipeline(**{name: value for name, value in each.items() if name != "id"}) for each in found]
