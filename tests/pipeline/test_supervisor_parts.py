"""Parts of the supervisor without Spark: ownership, leases, back-off, the worker of a pipeline, metrics."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import SystemClock
from penstock.internal_client.pipelines import StoredPipeline, description
from penstock.pipeline.causes import cause_of, storage_reason
from penstock.pipeline.running.pipeline_run import RunCancelled, RunFigures
from penstock.pipeline.supervisor import worker as worker_module
from penstock.pipeline.supervisor.backoff import MOST_MS, backoff_ms
from penstock.pipeline.supervisor.metrics import PipelineCollector
from penstock.pipeline.supervisor.ownership import Ownership
from penstock.pipeline.supervisor.supervisor import PipelineSupervisor, SupervisorSettings
from penstock.pipeline.supervisor.worker import PipelineWorker, WorkerSettings
from penstock.testing.process import BrokerProcess
from support.eventually import eventually

DOCUMENT = {
    "name": "p",
    "source": {"topics": ["orders"]},
    "target": {"table": "/t"},
    "schedule": {"every": "1h"},
}
ORDER = {"name": "p", "id": "1", "revision": 1, "run_requests": 0, "document": DOCUMENT}


class Run:
    """Run that fails a given number of times, then succeeds."""

    failures = 0
    is_endless = False
    starts = 0
    succeeded_ms: int | None = None
    busy_since_ms: int | None = None

    def start(self, spark: object, *, once: bool) -> None:
        type(self).starts += 1
        if type(self).failures:
            type(self).failures -= 1
            raise ValueError("no such column")

    def wait(self, is_cancelled: threading.Event) -> None:
        while type(self).is_endless:
            if is_cancelled.wait(0.05):
                raise RunCancelled("stopped")

    def stop(self) -> None:
        pass

    def figures(self) -> RunFigures:
        return RunFigures(
            5, 50, 0, succeeded_ms=type(self).succeeded_ms, busy_since_ms=type(self).busy_since_ms
        )


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., PipelineWorker]:
    monkeypatch.setattr(worker_module, "run_of", lambda *_: Run())
    monkeypatch.setattr(worker_module, "backoff_ms", lambda failures: 1 if failures else 0)
    Run.failures, Run.is_endless, Run.starts = 0, False, 0
    Run.succeeded_ms = Run.busy_since_ms = None

    def begin(order: dict[str, Any] = ORDER, *, is_once: bool = False) -> PipelineWorker:
        settings = WorkerSettings("localhost:1", "/checkpoints", is_once)
        worker = PipelineWorker(order, settings, lambda: None, lambda *_: None)  # type: ignore[arg-type, return-value]
        worker.start()
        return worker

    return begin


def test_scheduled_pipeline_runs_at_once_and_waits_for_the_next_time(
    start: Callable[..., PipelineWorker],
) -> None:
    worker = start()
    eventually(lambda: worker.state.state == "waiting" and worker.state.runs == 1, "the run is over")
    assert worker.state.next_run_ms is None or worker.state.next_run_ms > (worker.state.last_start_ms or 0)
    assert (worker.state.rows, worker.state.bytes, worker.state.checkpoint) == (5, 50, "/checkpoints/p-1")
    worker.request_runs(1)
    eventually(lambda: worker.state.runs == 2, "the requested run is over")
    worker.cancel()
    worker.join(30)
    assert worker.state.state == "stopped"


def test_failed_run_has_a_reason_and_is_repeated(start: Callable[..., PipelineWorker]) -> None:
    Run.failures = 2
    worker = start()
    eventually(lambda: worker.state.state == "waiting" and worker.state.runs == 3, "the third run succeeds")
    assert (worker.state.failures, worker.state.failures_in_a_row, worker.state.error) == (2, 0, None)
    worker.cancel()
    Run.failures = 1
    once = start(is_once=True)
    once.join(30)
    assert (once.state.state, once.state.error) == ("failed", "no such column")


def test_schedule_survives_a_restart(start: Callable[..., PipelineWorker]) -> None:
    worker = start({**ORDER, "known": {"last_start_ms": SystemClock().now_ms(), "rows": 7}})
    eventually(lambda: worker.state.state == "waiting", "the worker waits")
    assert (Run.starts, worker.state.rows) == (0, 7)
    worker.cancel()


def test_pipeline_without_its_checkpoint_is_not_started(start: Callable[..., PipelineWorker]) -> None:
    known = {"last_success_ms": 1, "checkpoint": "/elsewhere/p-1", "owner": "host:7"}
    worker = start({**ORDER, "known": known}, is_once=True)
    worker.join(30)
    assert (worker.state.state, Run.starts) == ("failed", 0)
    assert "which host:7 had at /elsewhere/p-1, is not at /checkpoints/p-1" in (worker.state.error or "")


def test_endless_run_is_overdue_after_its_timeout_and_ends_when_cancelled(
    start: Callable[..., PipelineWorker],
) -> None:
    Run.is_endless = True
    worker = start({**ORDER, "document": {**DOCUMENT, "timeout": "1m"}})
    eventually(lambda: worker.state.state == "running", "the run has begun")
    began = worker.state.last_start_ms or 0
    assert worker.overdue_ms(began + 59_000) <= 0 < worker.overdue_ms(began + 61_000)
    worker.cancel()
    worker.join(30)
    assert not worker.is_alive()


def test_batch_of_a_continuous_run_has_the_timeout_too(start: Callable[..., PipelineWorker]) -> None:
    Run.is_endless = True
    worker = start({**ORDER, "document": {**DOCUMENT, "schedule": "continuous", "timeout": "1m"}})
    eventually(lambda: worker.state.state == "running", "the run has begun")
    worker.refresh()
    assert worker.overdue_ms((worker.state.last_start_ms or 0) + 10**9) == 0, "no batch is being written"
    Run.busy_since_ms = 1_000
    worker.refresh()
    assert worker.overdue_ms(60_000) <= 0 < worker.overdue_ms(62_000)
    assert worker.state.last_success_ms is None
    worker.cancel()
    worker.join(30)


def test_run_that_does_not_end_is_late_after_the_time_of_the_next_run(
    start: Callable[..., PipelineWorker],
) -> None:
    Run.is_endless = True
    worker = start({**ORDER, "document": {**DOCUMENT, "schedule": {"every": "10m"}}})
    eventually(lambda: worker.state.state == "running", "the run has begun")
    began = worker.state.last_start_ms or 0
    assert worker.shown(began + 600_000).state == "running"
    late = worker.shown(began + 700_000)
    assert (late.state, late.late_since_ms) == ("late", began + 660_000)
    assert worker.state.state == "running", "the worker itself goes by the state without lateness"
    worker.cancel()
    worker.join(30)


def test_continuous_run_is_late_without_a_batch_for_minutes(start: Callable[..., PipelineWorker]) -> None:
    Run.is_endless = True
    worker = start({**ORDER, "document": {**DOCUMENT, "schedule": "continuous"}})
    eventually(lambda: worker.state.state == "running", "the run has begun")
    began = worker.state.since_ms
    assert worker.shown(began + 299_000).state == "running"
    assert worker.shown(began + 301_000).state == "late"
    Run.succeeded_ms = began + 100_000
    worker.refresh()
    assert worker.shown(began + 301_000).state == "running"
    worker.cancel()
    worker.join(30)


def test_pipeline_of_a_silent_supervisor_waits_for_another_one() -> None:
    now_ms = SystemClock().now_ms()
    pipeline = StoredPipeline("p", "1", DOCUMENT)
    for age_ms, released, state in ((0, False, "running"), (61_000, False, "waiting for a supervisor")):
        known = {"id": "1", "state": "running", "at_ms": now_ms - age_ms, "released": released}
        assert description(pipeline, known)["state"] == state
    stopped = {"id": "1", "state": "stopped", "at_ms": now_ms - 10**9, "released": True}
    assert description(pipeline, stopped)["state"] == "stopped"


def test_error_of_a_continuous_run_is_forgotten_after_a_batch(start: Callable[..., PipelineWorker]) -> None:
    Run.failures, Run.is_endless = 1, True
    worker = start({**ORDER, "document": {**DOCUMENT, "schedule": "continuous"}})
    eventually(lambda: worker.state.state == "running", "the second attempt runs")
    assert (worker.state.error, worker.state.failures_in_a_row) == ("no such column", 1)
    Run.succeeded_ms = 7_000
    worker.refresh()
    assert (worker.state.error, worker.state.failures_in_a_row, worker.state.last_success_ms) == (
        None,
        0,
        7_000,
    )
    worker.cancel()
    worker.join(30)


def test_changed_definition_starts_without_the_back_off_of_the_old_one(
    start: Callable[..., PipelineWorker],
) -> None:
    known = {"failures_in_a_row": 9, "error": "no such column", "revision": 1}
    kept, new = start({**ORDER, "known": known}), start({**ORDER, "revision": 2, "known": known})
    assert (kept.state.failures, new.state.error) == (0, None)
    eventually(lambda: new.state.state == "waiting", "the new definition runs")
    for each in (kept, new):
        each.cancel()
        each.join(30)


def test_pipeline_that_exceeds_its_timeout_keeps_the_reason_when_the_driver_ends(
    penstock_session_broker: BrokerProcess, tmp_path: Path
) -> None:
    settings = SupervisorSettings(penstock_session_broker.bootstrap, str(tmp_path), "local[1]")
    supervisor = PipelineSupervisor(settings, lambda text: None)
    try:
        for name in ("endless", "other"):
            supervisor._take(StoredPipeline(name, "1", DOCUMENT))
            supervisor._owned[name].known["is_alive"] = True
        supervisor._on_event({"event": "timed out", "name": "endless", "at_ms": 1, "reason": "never ends"})
        supervisor._on_driver_death("the driver ended with -9")
        states = supervisor.states()
        endless, other = states["endless"], states["other"]
        assert (endless["state"], endless["error"], endless["failures_in_a_row"]) == (
            "failed",
            "never ends",
            1,
        )
        assert other["error"] == "the driver was stopped because of endless and is restarted"
        assert "failures_in_a_row" not in other
    finally:
        supervisor.stop()


def test_reasons_of_object_stores_are_one_line() -> None:
    xml = "<?xml?><Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
    wrapped = OSError(f"Generic S3 error\n \x1b[31m\u21b3\x1b[0m 400 Bad Request\n  \u21b3 {xml}\n")
    wanted = "the object store answered ExpiredToken: The provided token has expired."
    assert storage_reason(wrapped) == cause_of(wrapped) == wanted
    plain = OSError("Generic S3 error\n  \x1b[31m\u21b3\x1b[0m connection refused\n")
    assert storage_reason(plain) == "Generic S3 error: connection refused"


def test_backoff_doubles_up_to_a_minute() -> None:
    assert [backoff_ms(failures) for failures in (0, 1, 2, 3, 7, 1_000)] == [
        0,
        1_000,
        2_000,
        4_000,
        MOST_MS,
        MOST_MS,
    ]


def test_new_owner_makes_the_old_one_invalid(penstock_session_broker: BrokerProcess) -> None:
    bootstrap = penstock_session_broker.bootstrap
    pipeline = StoredPipeline("owned", "1", DOCUMENT)
    first, second = Ownership(bootstrap), Ownership(bootstrap)
    old, known = first.take(pipeline)
    assert known == {}
    assert first.still_owned({"owned": (pipeline, old)}) == {"owned"}
    assert first.report({"owned": {"id": "1", "state": "running"}}, [("owned", {"event": "started"})])
    new, known = second.take(pipeline)
    assert known["state"] == "running"
    assert first.still_owned({"owned": (pipeline, old)}) == set()
    assert second.still_owned({"owned": (pipeline, new)}) == {"owned"}
    _, known = second.take(StoredPipeline("owned", "2", DOCUMENT))
    assert known == {}, "another pipeline of the same name has no state yet"


@pytest.mark.parametrize("ends", ["lease", "input"])
def test_driver_kills_itself_without_a_lease_or_a_supervisor(
    ends: str, starts_processes: None, tmp_path: Path
) -> None:
    settings = {
        "bootstrap": "127.0.0.1:1",
        "checkpoints": str(tmp_path),
        "master": "local[1]",
        "conf": {},
        "is_once": False,
    }
    command = [sys.executable, "-m", "penstock.pipeline.supervisor.driver", json.dumps(settings)]
    never = {**DOCUMENT, "schedule": {"cron": "0 0 1 1 *"}}
    order = {**ORDER, "document": never, "lease_seconds": 3.0 if ends == "lease" else 600.0}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"pipelines": {"p": order}}) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["states"].keys() <= {"p"}
        if ends == "input":
            process.stdin.close()
        process.stdout.read()
        assert process.wait(60) == -9


def test_metrics_have_the_figures_of_each_pipeline() -> None:
    states = {"p": {"state": "running", "rows": 5, "failures": 1, "lag_records": 3, "last_success_ms": 2_000}}
    found = {
        sample.name: sample.value
        for metric in PipelineCollector(lambda: states).collect()
        for sample in metric.samples
    }
    assert found["penstock_pipeline_rows_total"] == 5
    assert found["penstock_pipeline_failures_total"] == 1
    assert found["penstock_pipeline_lag_records"] == 3
    assert found["penstock_pipeline_last_success_seconds"] == 2
    assert found["penstock_pipeline_healthy"] == 1
