"""What the documents show is what happens: their console examples run, in order, against a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker_process import BrokerProcess, StartBroker
from docs.console import Example, examples, python_blocks

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
        ["bash", "-c", example.command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    ).stdout


@pytest.mark.process
@pytest.mark.parametrize("document", ["README.md", "docs/topics-and-cli.md"])
def test_the_examples_of_a_document_do_what_it_says(document: str, start_broker: StartBroker) -> None:
    found = examples(ROOT / document)
    assert found
    broker = start_broker()
    for example in found:
        output = run(example, broker)
        expected = "\n".join(example.expected)
        assert example.matches(output), f"$ {example.command}\n{output}\nbut {document} says\n{expected}"


@pytest.mark.process
def test_the_python_of_the_readme_runs(start_broker: StartBroker) -> None:
    broker = start_broker()
    program = python_blocks(ROOT / "README.md")[0].replace("localhost:9092", broker.bootstrap)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    assert (ended.stdout, ended.stderr) == ("b'it' b'ciao' 0\n", "")


def test_an_example_is_compared_line_by_line() -> None:
    example = Example("x", ("a ... c", "...", "end"))
    assert example.matches("a b c\nmany\nlines\nend\n")
    assert example.matches("a  c  \nend\n")
    assert not example.matches("a b c\nend\nmore\n")
    assert not example.matches("b c\nend\n")
