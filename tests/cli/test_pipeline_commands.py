"""`penstock pipeline` without Spark, and errors of Spark as one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.main import run
from penstock.cli.pipeline.session import cause_of, failure_of
from penstock.errors import BrokerError, ErrorCode
from penstock.pipeline.options import OptionError
from penstock.testing.process import BrokerProcess

IN_A_TASK = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ValueError: an earlier one

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 3, in main
    process()
penstock.pipeline.fetching.OffsetsLost: offset 3 of orders-0 does not exist any more

\tat org.apache.spark.api.python.BasePythonRunner.hasNext(PythonRunner.scala:525)
Caused by: java.lang.Exception: never mind
"""
IN_JAVA = """An error occurred while calling o50.load.
: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.PythonPlannerRunner.runInPython(PythonPlannerRunner.scala:160)
Caused by: java.io.EOFException
"""
IN_A_STREAM = """[STREAM_FAILED] Query [id = 0b56a246, runId = 1faeec05] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset: \
Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 1, in main
    latest_offset_func(reader, outfile)
penstock.pipeline.offsets.ClusterUnreachable: cannot reach a broker at localhost:9092
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 0b56a246, runId = 1faeec05]
Current State: ACTIVE
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (IN_A_STREAM, "cannot reach a broker at localhost:9092"),
        (IN_A_TASK, "offset 3 of orders-0 does not exist any more"),
        (IN_JAVA, "Python worker exited unexpectedly (crashed)"),
        ("An error occurred while calling o50.load.\n: java.io.EOFException\n\tat java", "EOFException"),
        ("[PARSE_SYNTAX_ERROR] Syntax error at or near 'selct'. SQLSTATE: 42601 (line 1)\n\n== SQL ==", None),
        ("[UNRESOLVED_COLUMN] There is no `x`. SQLSTATE: 42703; line 1 pos 7;\n'Project", "There is no `x`."),
        ("", "RuntimeError"),
    ],
)
def test_cause_of_a_spark_error_is_printed(text: str, cause: str | None) -> None:
    assert cause_of(RuntimeError(text)) == (cause or "Syntax error at or near 'selct'.")


def test_user_errors_are_one_line_and_bugs_have_a_traceback() -> None:
    assert str(failure_of(OptionError("give topics"))) == "give topics"
    refused = failure_of(BrokerError(ErrorCode.policy_violation, "no"))
    assert str(refused) == "the cluster refused a request: no (POLICY_VIOLATION)"
    assert refused is not None
    assert "penstock cluster status" in refused.hint
    assert failure_of(AttributeError("x")) is None


def test_an_archive_of_nothing_new_is_made_without_spark(
    penstock_session_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("quiet", 1)])["quiet"].result(30)
    place = str(tmp_path / "archive")
    arguments = [
        "pipeline",
        "archive",
        "--bootstrap",
        bootstrap,
        "--topics",
        "quiet",
        "--to",
        place,
        "--once",
    ]
    assert run([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["spark_start_seconds"]) == (0, 0.0)
    assert run(arguments) == 0
    assert "Archived 0 records" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["archive", "--topics", "missing", "--to", "{place}", "--once"], "there is no topic 'missing'"),
        (["archive", "--topics", "a", "--to", "{place}", "--every", "soon"], "'soon' is not a duration"),
        (["replay", "--topics", "missing", "--to", "copy"], "there is no topic 'missing'"),
        (["compact", "--topics", "missing", "--to", "{place}"], "there is no topic 'missing'"),
        (["compact", "--topics", "missing", "--to", "{place}", "--keep", "best"], "unknown --keep 'best'"),
        (["stats", "--topics", "missing", "--to", "{place}"], "there is no topic 'missing'"),
    ],
)
def test_wrong_options_are_reported_in_one_line_before_spark_starts(
    penstock_session_broker: BrokerProcess,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    filled = [argument.format(place=tmp_path / "place") for argument in arguments]
    code = run(["pipeline", *filled, "--bootstrap", penstock_session_broker.bootstrap])
    assert code != 0
    [line, *_] = capfd.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert not (tmp_path / "place").exists()
