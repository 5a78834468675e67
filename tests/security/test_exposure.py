"""Addresses without authentication that other machines can reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.exposure import mark_directory, open_places, refuse_open_places
from penstock.cli.failures import Failure
from penstock.config import BrokerConfig

OPEN = {"host": "0.0.0.0"}


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 0),
        ({"host": "127.0.0.2"}, 0),
        (OPEN, 2),
        ({**OPEN, "http.port": "-1"}, 1),
        ({**OPEN, "http.authentication.enable": "true", "listeners": "SASL_SSL://:9092"}, 0),
        ({"listeners": "SSL://:9092"}, 1),
        ({"listeners": "SSL://:9092", "ssl.client.auth": "requested"}, 1),
        ({"listeners": "SSL://:9092", "listener.name.ssl.ssl.client.auth": "required"}, 0),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://:9093"}, 0),
    ],
)
def test_open_listeners_are_those_without_authentication_on_other_addresses(
    settings: dict[str, str], count: int
) -> None:
    assert len(list(open_places(BrokerConfig(settings)))) == count


def test_only_new_directories_refuse_open_places(tmp_path: Path) -> None:
    config = BrokerConfig({**OPEN, "log.dir": str(tmp_path)})
    with pytest.raises(Failure, match="without authentication"):
        refuse_open_places(config, is_insecure=False)
    refuse_open_places(config, is_insecure=True)
    (tmp_path / "meta.json").touch()
    mark_directory(config)
    refuse_open_places(config, is_insecure=False)


def test_directory_of_this_version_stays_strict(tmp_path: Path) -> None:
    config = BrokerConfig({**OPEN, "log.dir": str(tmp_path)})
    mark_directory(config)
    (tmp_path / "meta.json").touch()
    with pytest.raises(Failure):
        refuse_open_places(config, is_insecure=False)
