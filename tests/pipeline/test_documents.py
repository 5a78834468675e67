"""Examples of docs/pipeline.md, run in this process with the shared Spark session."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from archive_helpers import make, rows
from declared_helpers import declared, messages, run_once, send
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.cli.main import run
from penstock.cli.pipeline.session import PipelineSession
from penstock.testing.process import BrokerProcess
from support.console_examples import Example, examples, programs

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"


@pytest.fixture
def broker(starts_processes: None, tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path)
    broker.start()
    yield broker
    broker.stop()


def carry_out(example: Example) -> str:
    """Run Spark examples in this process with the shared session, and the others in a shell."""
    if " pipeline " not in example.command:
        command = example.command.replace("penstock ", f"{Path(sys.executable).parent}/penstock ")
        return subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        ).stdout
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        run(shlex.split(example.command)[1:])
    return said.getvalue()


def test_examples_of_the_pipeline_document_run(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setattr(PipelineSession, "open", lambda self: spark)
    definitions = yaml_example()
    (tmp_path / "pipelines.yaml").write_text(definitions)
    for example in examples(DOCUMENT):
        output = carry_out(example)
        assert example.matches(output), f"$ {example.command}\n{output}"
    for program in programs(DOCUMENT):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(_here(program.code, broker.bootstrap, tmp_path), {"spark": spark})
        assert program.output is None or said.getvalue() == program.output


def yaml_example() -> str:
    [found] = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return str(found)


def test_declared_pipeline_example_of_the_document_runs(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for topic in ("shop-orders", "orders-clean", "orders-bad"):
        make(broker.bootstrap, topic)
    orders = [{"id": number, "customer": "ann", "total": number} for number in range(20)]
    send(broker.bootstrap, "shop-orders", [*orders, b"bad"])
    documents = yaml.safe_load(yaml_example())["pipelines"]
    for document in documents:
        run_once(spark, broker.bootstrap, declared(**document), tmp_path)
    assert len(rows(tmp_path / "archive-of-shop")) == 21
    assert len(messages(broker.bootstrap, "orders-clean")) == 19
    assert len(DeltaTable("clean").to_pyarrow_table()) == 19
    [bad] = messages(broker.bootstrap, "orders-bad")
    assert dict(bad.headers() or ())["penstock-error"].startswith(b"not valid JSON")


def _here(code: str, bootstrap: str, directory: Path) -> str:
    """Resolve relative paths: Spark was started in another directory."""
    for option, name in (("archive", "archive"), ("checkpointLocation", "checkpoint")):
        code = code.replace(f'.option("{option}", "{name}")', f'.option("{option}", "{directory}/{name}")')
    return code.replace("localhost:9092", bootstrap)
