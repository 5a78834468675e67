"""The frame of every seed: actors take steps beside a main task until that ends, or until one finds a
violation.

`BrokerScenario` plays a broker alone, `ClusterScenario` a cluster. Everything is drawn from the seed: a
second run of the seed does the same.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from simulation.clients.actor import Actor
from simulation.clients.client import NoAnswer
from simulation.machine.host import SimulatedWorld
from simulation.machine.loop import SimulationLoop
from simulation.machine.trace import Trace
from simulation.models.history import InvariantViolated
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage

START_SECONDS = 120.0
"""A broker that takes longer to start is stuck."""


@dataclass(frozen=True, slots=True)
class Report:
    """The work that a passed seed has done."""

    seed: int
    digest: str
    """Digest of the trace, equal in every run of the seed."""
    events: int
    operations: int
    """Operations of clients."""
    starts: int
    """Starts of brokers, those that ended with a crash too."""
    virtual_seconds: float


class Scenario(ABC):
    _stage: Stage

    def __init__(self, seed: int, loop: SimulationLoop, trace: Trace) -> None:
        self._world = SimulatedWorld(seed, loop, trace)
        self._random = self._world.random("scenario")
        self._starts = 0

    @property
    @abstractmethod
    def traits(self) -> frozenset[str]:
        """The traits of a seed: its faults, its settings and its kinds of clients."""

    @abstractmethod
    async def run(self) -> Report:
        """Play the seed to its end; InvariantViolated when a broker broke a promise."""

    def _report(self) -> Report:
        loop, trace = self._world.loop, self._world.trace
        return Report(
            self._world.seed, trace.digest(), trace.events, self._stage.operations, self._starts, loop.time()
        )

    async def _start_broker(self, broker: BrokerHost) -> None:
        """Start a broker in time; SimulatedCrash when it died meanwhile."""
        self._starts += 1
        try:
            async with asyncio.timeout(START_SECONDS):
                await broker.start()
        except TimeoutError:
            raise InvariantViolated("liveness", f"{broker.host.name} does not start") from None

    # --- tasks

    async def _racing(self, main: Coroutine[Any, Any, None], others: Sequence[asyncio.Task[None]]) -> None:
        """Run `main` to its end, unless another task finds a violation before."""
        task = asyncio.ensure_future(main)
        await asyncio.wait([task, *others], return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            if other.done():
                task.cancel()
                other.result()
        await task

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- actors

    def _begin(self, actors: Iterable[Actor]) -> list[asyncio.Task[None]]:
        return [asyncio.ensure_future(self._act(actor)) for actor in actors]

    async def _act(self, actor: Actor) -> None:
        random = self._world.random(f"{actor.name}/pace")
        pause_seconds = self._pause_seconds(actor, random)
        while not self._is_over(actor):
            await asyncio.sleep(random.expovariate(1 / pause_seconds))
            if self._stage.is_quiet:
                continue
            try:
                await actor.step()
            except (NoAnswer, BrokerError) as error:
                self._stage.note(actor.name, "step", type(error).__name__, error)
                self._check_answer(actor, error)

    @abstractmethod
    def _pause_seconds(self, actor: Actor, random: Random) -> float:
        """The mean pause between two steps of the actor."""

    def _is_over(self, actor: Actor) -> bool:
        """Whether the actor has stopped taking steps."""
        return False

    def _check_answer(self, actor: Actor, error: NoAnswer | BrokerError) -> None:
        if isinstance(error, BrokerError) and error.code is ErrorCode.unknown_server_error:
            raise InvariantViolated("T27", f"{actor.name} got UNKNOWN_SERVER_ERROR") from error

    # --- errors of brokers

    def _check_problems(self, brokers: Iterable[BrokerHost]) -> None:
        """No broker has logged a traceback, and no task has died of an exception."""
        for broker in brokers:
            if broker.problems:
                raise InvariantViolated("traceback", f"{broker.host.name}: " + "\n".join(broker.problems))
        for context in self._world.loop.unhandled:
            error = context.get("exception")
            raise InvariantViolated("traceback", f"not caught: {context['message']}: {error!r}") from error
