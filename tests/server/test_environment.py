"""Environment of a broker on a real machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.config import BrokerConfig
from penstock.server import environment
from penstock.server.environment import Environment, real_environment


def made(directory: Path, host_name: str) -> Environment:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: host_name)
        made = real_environment(BrokerConfig({"log.dir": str(directory)}))
    made.disk.close()
    made.threads.close()
    return made


def test_containers_on_one_kernel_are_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = tmp_path / "boot"
    boot.write_text("this boot\n")
    monkeypatch.setattr(environment, "BOOT_ID_FILE", str(boot))
    one, two = made(tmp_path / "one", "container-1"), made(tmp_path / "two", "container-2")
    assert one.machine_id == two.machine_id
    boot.write_text("of another machine\n")
    assert made(tmp_path / "three", "container-1").machine_id != one.machine_id


def test_machine_without_a_boot_id_is_identified_by_its_host_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "BOOT_ID_FILE", str(tmp_path / "none"))
    one, two = made(tmp_path / "one", "host-1"), made(tmp_path / "two", "host-2")
    assert (one.machine_id, two.machine_id) == ("host-1", "host-2")
    assert one.boot_id == ""
