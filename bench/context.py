"""What every scenario gets: how long to measure, what to compare with, and where to say what it is doing."""

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
    """Start the servers anew before every measurement, to see them cold."""

    def scaled(self, full: int, quick: int) -> int:
        """An amount of work, less of it in a quick run."""
        return quick if self.quick else full

    @contextmanager
    def servers(self) -> Iterator[list[Target]]:
        """The contestants, running together, at page-cache durability unless their name says otherwise."""
        with ExitStack() as stack:
            yield [stack.enter_context(make()) for make in self.contestants]

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
