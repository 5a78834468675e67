"""Context of a scenario: duration, servers to compare with, and progress output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.comparison import Measure, Metric, Row, compare
from bench.driver import Figures
from bench.target import Target


@dataclass(frozen=True, slots=True)
class Context:
    rounds: int
    warm_ups: int
    quick: bool
    contestants: tuple[Callable[..., Target], ...]
    say: Callable[[str], None]
    fresh: bool = False
    """Restart the servers before every measurement, to measure them cold."""
    beside: tuple[Callable[..., Target], ...] = ()
    """Servers that are measured in the same rounds as those of paired scenarios, without a ratio."""

    def scaled(self, full: int, quick: int) -> int:
        """Amount of work, reduced in a quick run."""
        return quick if self.quick else full

    @contextmanager
    def servers(self, *beside: Callable[..., Target]) -> Iterator[list[Target]]:
        """Servers to compare, running together with durability=os unless their name says otherwise, and others
        beside them.
        """
        with ExitStack() as stack:
            yield [stack.enter_context(make()) for make in (*self.contestants, *beside)]

    def compare(
        self, scenario: str, metrics: Sequence[Metric], servers: Sequence[Target], measure: Measure
    ) -> list[Row]:
        chosen = _on_fresh_server(measure) if self.fresh else measure
        return compare(
            scenario, metrics, servers, chosen, rounds=self.rounds, warm_ups=self.warm_ups, say=self.say
        )


def _on_fresh_server(measure: Measure) -> Measure:
    def restart_and_measure(server: Target) -> Figures:
        server.stop()
        server.start()
        return measure(server)

    return restart_and_measure
