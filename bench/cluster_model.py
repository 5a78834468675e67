"""`python -m bench.cluster_model`: predictions for larger clusters, from costs measured with `make bench
ARGS="--cluster"`.

docs/performance.md has the formulas. Each broker has one core, and every partition three replicas.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields

COPIES = 3
FETCH_WAIT_S = 0.5
PARTITIONS_PER_WRITE = 500
SIZES = (3, 100, 1_000)


@dataclass(frozen=True, slots=True)
class Costs:
    cpu_s_per_gb: float
    """CPU seconds of one of three brokers per GB written to all of them in full batches."""
    cpu_us_per_request: float
    """CPU seconds of one of three brokers per request of one record."""
    idle_fetch_us: float
    """CPU seconds of an idle fetch, for leader and follower together."""
    zookeeper_read_us: float
    idle_mb: float
    partition_kb: float
    connection_kb: float
    led: float = 100
    """Partitions that each broker leads."""
    partitions_per_topic: float = 10
    clients: float = 1_000
    """Client connections of each broker."""
    zookeepers: float = 3


@dataclass(frozen=True, slots=True)
class Model:
    brokers: int
    costs: Costs

    @property
    def gb_per_s(self) -> float:
        return self.brokers / (COPIES * self.costs.cpu_s_per_gb)

    @property
    def requests_per_s(self) -> float:
        return self.brokers / (COPIES * self.costs.cpu_us_per_request / 1e6)

    @property
    def followed(self) -> float:
        """Leaders that a broker follows, and followers that fetch from it."""
        return min(self.brokers - 1, (COPIES - 1) * self.costs.led)

    @property
    def idle_fetch_cores(self) -> float:
        """CPU cores of idle fetches: two brokers pay for each, and each broker has as many as a leader as it
        has as a follower.
        """
        return self.followed / FETCH_WAIT_S * self.costs.idle_fetch_us / 1e6

    @property
    def reads_after_a_death(self) -> float:
        """Nodes that all brokers read after a death: the broker list, and every partition with a replica on
        the dead broker.
        """
        partitions = COPIES * self.costs.led
        return self.brokers * (self.brokers + partitions * (1 + 2 / self.costs.partitions_per_topic))

    @property
    def death_known_s(self) -> float:
        return self.reads_after_a_death * self.costs.zookeeper_read_us / 1e6 / self.costs.zookeepers

    @property
    def broker_mb(self) -> float:
        connections = 2 * self.followed + self.costs.clients
        kilobytes = COPIES * self.costs.led * self.costs.partition_kb + connections * self.costs.connection_kb
        return self.costs.idle_mb + kilobytes / 1_000


def table(costs: Costs, sizes: Sequence[int] = SIZES) -> str:
    models = [Model(size, costs) for size in sizes]
    rows = {
        "written in full batches (GB/s)": [f"{each.gb_per_s:,.2f}" for each in models],
        "requests of one record (/s)": [f"{each.requests_per_s:,.0f}" for each in models],
        "leaders a broker follows": [f"{each.followed:,.0f}" for each in models],
        "following when idle (% of a core)": [f"{each.idle_fetch_cores * 100:.1f}" for each in models],
        "writes for the leaders of a dead broker": [
            f"{-(-each.costs.led // PARTITIONS_PER_WRITE):.0f}" for each in models
        ],
        "reads of ZooKeeper after a death": [f"{each.reads_after_a_death:,.0f}" for each in models],
        "until all brokers have read them (s)": [f"{each.death_known_s:.2f}" for each in models],
        "memory of a broker (MB)": [f"{each.broker_mb:.0f}" for each in models],
    }
    heading = ["", *(f"{size:,} brokers" for size in sizes)]
    lines = [heading, ["---"] * len(heading), *([name, *cells] for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_model", description=__doc__)
    for field in fields(Costs):
        required = field.default is MISSING
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(
            option, type=float, required=required, default=None if required else field.default
        )
    print(table(Costs(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
