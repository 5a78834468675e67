"""Import cost: the package loads only the check of its build, a broker loads no client code, and a client no broker
code.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock

pytestmark = pytest.mark.usefixtures("starts_processes")


def modules_after(program: str) -> set[str]:
    command = [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_penstock_loads_only_the_check_of_its_build() -> None:
    loaded = modules_after("import penstock")
    assert {name for name in loaded if name.startswith("penstock.")} == {"penstock.build"}
    assert not loaded & {"asyncio", "confluent_kafka", "hashlib", "json", "kio", "typing"}


def test_starting_a_broker_does_not_load_the_client() -> None:
    loaded = modules_after("import penstock.cli.main, penstock.cli.broker, penstock.cli.broker_process")
    assert not any(
        name.startswith(("penstock.client", "penstock.testing", "confluent_kafka")) for name in loaded
    )


def test_the_client_does_not_load_the_broker() -> None:
    loaded = modules_after("from penstock import Admin, Consumer, Producer, AsyncConsumer")
    assert {name.split(".")[1] for name in loaded if name.startswith("penstock.")} == {
        "build",
        "client",
        "model",
        "records",
        "unreachable",
        "wire",
    }
    assert {name for name in loaded if name.startswith("penstock.wire.")} == {
        "penstock.wire.apis",
        "penstock.wire.foreign_protocol",
    }
    assert not any(name.startswith("kio") for name in loaded)


def test_the_pytest_plugin_loads_nothing_until_it_is_used() -> None:
    loaded = modules_after("import pytest, penstock.testing.fixtures")
    assert not any(name.startswith(("penstock.client", "confluent_kafka", "kio")) for name in loaded)


def test_every_name_is_there() -> None:
    for name in penstock._MODULES:
        assert getattr(penstock, name).__name__ == name
        assert name in dir(penstock)
