from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.commands import COMMANDS
from penstock.cli.main import run

HEAVY_MODULES = {"typer", "rich", "confluent_kafka", "starlette", "uvicorn", "prometheus_client"}


def test_without_arguments_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    run([])
    shown = capsys.readouterr()
    assert all(command in shown.out + shown.err for command in COMMANDS)


def test_an_unknown_command_is_a_usage_error() -> None:
    assert run(["topik"]) == 2


def test_a_wrong_setting_is_refused_with_code_2_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--set", "durability=never"]) == 2
    assert capsys.readouterr().err == (
        "error: command line: durability='never': give auto, os or fsync\n"
        "Correct the setting and run the command again.\n"
    )


def test_a_wrong_port_is_refused_by_the_name_of_its_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--port", "70000"]) == 2
    assert "port='70000': give a whole number from 0 to 65535" in capsys.readouterr().err


def test_a_settings_file_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--config", "/nowhere/broker.toml"]) == 2
    assert "cannot read /nowhere/broker.toml: No such file or directory" in capsys.readouterr().err


def test_an_unreachable_broker_is_named_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "--bootstrap", "127.0.0.1:1"]) == 1
    complaint = capsys.readouterr().err
    assert "cannot reach a broker at 127.0.0.1:1 (Connection refused)" in complaint
    assert "penstock broker --data-dir data --port 1" in complaint


def test_a_bootstrap_that_is_no_address_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "--bootstrap", "nonsense"]) == 2
    assert "'nonsense' is not HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["topic", "alter", "t"], "no change to topic t is given"),
        (["topic", "truncate", "t"], "Give either --before-offset or --before-time"),
        (["topic", "truncate", "t", "--before-offset", "1", "--before-time", "1h"], "Give either"),
        (["produce", "t", "--idempotent", "--acks", "1"], "--idempotent needs --acks all"),
        (["produce", "t", "--header", "novalue"], "'novalue' is not NAME=VALUE"),
        (["consume", "t", "--json", "--format", "{key}"], "Give only one of"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_sent(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert complaint in capsys.readouterr().err


def test_config_show_tells_value_and_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('"num.partitions" = 3\n')
    assert run(["config", "show", "--config", str(file), "--set", "durability=os", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["num.partitions"] == {"value": "3", "from": str(file)}
    assert shown["durability"] == {"value": "os", "from": "command line"}
    assert shown["port"] == {"value": "9092", "from": "default"}


def test_config_show_docs_explains_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--docs"]) == 0
    text = capsys.readouterr().out
    assert run(["config", "show", "--docs", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert all(option["name"] in text for option in explained)
    assert {"name", "default", "doc", "live", "environment", "values", "group"} == set(explained[0])


def test_the_broker_command_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--help"]) == 0
    shown = capsys.readouterr().out
    options = (
        "--data-dir",
        "--port",
        "--http-port",
        "--host",
        "--advertised",
        "--node-id",
        "--config",
        "--set",
    )
    assert all(option in shown for option in options)


def test_an_unknown_option_of_the_broker_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--prot", "1"]) == 2
    assert "--prot" in capsys.readouterr().err


@pytest.mark.usefixtures("starts_processes")
def test_the_broker_command_loads_nothing_it_does_not_need() -> None:
    script = (
        "import sys; from penstock.cli.main import run; run(['broker', '--help']);"
        "import penstock.cli.broker_process; print(' '.join(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert HEAVY_MODULES & set(shown.splitlines()[-1].split()) == set()
