"""Examples of the documents, run in order against a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker_process import BrokerProcess, StartBroker, wait_for_http
from support.console_examples import Example, examples, programs

ROOT = Path(__file__).parents[2]
COMMAND_SECONDS = 30


def run(example: Example, broker: BrokerProcess) -> str:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PENSTOCK_BOOTSTRAP": broker.bootstrap,
        "DATA_DIR": str(broker.data_dir),
        "LC_ALL": "C",
    }
    return subprocess.run(
        ["bash", "-c", example.command.replace("localhost:8080", f"127.0.0.1:{broker.http_port}")],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    ).stdout


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "docs/topics-and-cli.md",
        "docs/groups.md",
        "docs/views.md",
        "docs/delay.md",
        "docs/message-queues.md",
        "docs/retries.md",
        "docs/schedules.md",
        "docs/webhooks.md",
        "docs/transactions.md",
        "docs/http.md",
    ],
)
def test_the_examples_of_a_document_do_what_it_says(document: str, start_broker: StartBroker) -> None:
    found = examples(ROOT / document)
    assert found
    broker = start_broker()
    wait_for_http(broker.http_port)
    for example in found:
        output = run(example, broker)
        expected = "\n".join(example.expected)
        assert example.matches(output), f"$ {example.command}\n{output}\nbut {document} says\n{expected}"


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "docs/client.md",
        "docs/delay.md",
        "docs/delivery.md",
        "docs/transactions.md",
        "docs/http.md",
        "docs/views.md",
        "docs/message-queues.md",
        "docs/webhooks.md",
        "docs/retries.md",
        "docs/schedules.md",
    ],
)
def test_the_python_of_a_document_does_what_it_says(
    document: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    found = programs(ROOT / document)
    assert found
    broker = start_broker(["group.initial.rebalance.delay.ms=0"])
    wait_for_http(broker.http_port)
    file = tmp_path / "test_example.py"
    for program in found:
        code = program.code.replace("localhost:9092", broker.bootstrap)
        file.write_text(code.replace("localhost:8080", f"127.0.0.1:{broker.http_port}"))
        runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if program.is_test else []
        ended = subprocess.run(
            [sys.executable, *runner, str(file)],
            env=os.environ | {"PENSTOCK_BOOTSTRAP": broker.bootstrap},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, ""), f"{program.code}\n{ended.stdout}"
        if program.output is not None:
            assert ended.stdout == program.output, program.code


def test_an_example_is_compared_line_by_line() -> None:
    example = Example("x", ("a ... c", "...", "end"))
    assert example.matches("a b c\nmany\nlines\nend\n")
    assert example.matches("a  c  \nend\n")
    assert not example.matches("a b c\nend\nmore\n")
    assert not example.matches("b c\nend\n")
