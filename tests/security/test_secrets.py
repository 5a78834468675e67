"""Secrets in settings: references to files and variables, and values that must not be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.broker_config import load_config
from penstock.config import CLUSTER_SECRET, NUM_PARTITIONS, SSL_KEY_PASSWORD
from penstock.errors import ConfigError


def private(file: Path, content: str) -> Path:
    file.touch(mode=0o600)
    file.write_text(content)
    return file


def test_secret_references_are_replaced_by_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_KEY", "pass")
    secret = private(tmp_path / "secret", "between us\n")
    partitions = private(tmp_path / "partitions", "7")
    file = tmp_path / "server.properties"
    file.write_text(
        f"cluster.secret=${{file:{secret}}}\nssl.key.password=${{env:OF_THE_KEY}}\nnum.partitions=${{file:{partitions}}}\n"
    )
    config = load_config(str(file), []).config
    assert (config[CLUSTER_SECRET], config[SSL_KEY_PASSWORD], config[NUM_PARTITIONS]) == (
        "between us",
        "pass",
        7,
    )


@pytest.mark.parametrize("reference", ["${file:/no/such/file}", "${env:NO_SUCH_VARIABLE}"])
def test_secret_reference_to_a_missing_file_or_variable_is_refused(reference: str) -> None:
    with pytest.raises(ConfigError, match=r"^command line: cluster\.secret: "):
        load_config(None, [f"cluster.secret={reference}"])


def test_secret_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = private(tmp_path / "secret", "between us")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_config(None, [f"cluster.secret=${{file:{file}}}"])


def test_secret_on_the_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config(None, ["cluster.secret=between us"])
    assert "between us" not in str(refusal.value)
    assert "${file:PATH}" in str(refusal.value)
