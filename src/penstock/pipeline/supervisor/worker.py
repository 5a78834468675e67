"""Worker of one pipeline in the driver: waits for its schedule, runs it, and retries after failures.

Each worker is a thread. The driver reads its state and reports it to the supervisor.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from penstock.clock import SystemClock
from penstock.declared.definition import definition_of
from penstock.pipeline.causes import cause_of
from penstock.pipeline.running.pipeline_run import (
    PipelineRun,
    RunCancelled,
    RunFailed,
    RunPlace,
    checkpoint_of,
    run_of,
)
from penstock.pipeline.supervisor.backoff import backoff_ms

STARTING, RUNNING, WAITING, FAILED, DONE, STOPPED, LATE = (
    "starting",
    "running",
    "waiting",
    "failed",
    "done",
    "stopped",
    "late",
)
LATE_AFTER_MS = 60_000
"""A scheduled run is late if it has not ended this many milliseconds after the next scheduled time."""
LATE_BATCH_MS = 300_000
"""A continuous run is late if its last batch, or its last check for new records, ended this many milliseconds ago."""
START_TIMEOUT_MS = 300_000
"""Longest time in milliseconds for a transformation to return its plan, if the pipeline has no timeout."""

Emit = Callable[[str, Mapping[str, Any]], None]
"""Function that reports an event of a pipeline."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    bootstrap: str
    checkpoints: str
    is_once: bool = False
    """True to run the pipeline once, regardless of its schedule."""


@dataclass(slots=True)
class WorkerState:
    state: str = STARTING
    rows: int = 0
    runs: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    error: str | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    bytes: int = 0
    last_start_ms: int | None = None
    last_success_ms: int | None = None
    last_failure_ms: int | None = None
    next_run_ms: int | None = None
    duration_ms: int | None = None
    checkpoint: str | None = None
    table: str | None = None
    """Location of the table that rows were last written to."""
    table_batch: int | None = None
    """Number of the last batch with rows that was committed to this table."""
    run_requests: int = 0
    """Number of manually requested runs that have ended or failed."""
    late_since_ms: int | None = None
    """Time at which the current run became late; None if it is not late."""
    since_ms: int = field(default_factory=lambda: SystemClock().now_ms())


class PipelineWorker(threading.Thread):
    def __init__(
        self,
        wanted: Mapping[str, Any],
        settings: WorkerSettings,
        open_session: Callable[[], SparkSession],
        emit: Emit,
    ) -> None:
        super().__init__(name=f"pipeline-{wanted['name']}", daemon=True)
        self.wanted = wanted
        self._settings = settings
        self._open_session = open_session
        self._emit = emit
        self._cancelled = threading.Event()
        self._woken = threading.Event()
        self._requested = int(wanted.get("run_requests", 0))
        self._run: PipelineRun | None = None
        self._rows_before = self._bytes_before = 0
        self._busy_since_ms: int | None = None
        self._table: str | None = None
        known = wanted.get("known") or {}
        # A changed definition starts without the back-off of the previous definition.
        is_same = known.get("revision") in (None, wanted["revision"])
        self.state = WorkerState(
            rows=known.get("rows", 0),
            bytes=known.get("bytes", 0),
            runs=known.get("runs", 0),
            failures=known.get("failures", 0),
            failures_in_a_row=known.get("failures_in_a_row", 0) if is_same else 0,
            error=known.get("error") if is_same else None,
            last_start_ms=known.get("last_start_ms"),
            last_success_ms=known.get("last_success_ms"),
            last_failure_ms=known.get("last_failure_ms"),
            duration_ms=known.get("duration_ms"),
            table=known.get("table"),
            table_batch=known.get("table_batch"),
            run_requests=known.get("run_requests", self._requested if not known else 0),
        )

    def cancel(self) -> None:
        """Stop after the batch in progress."""
        self._cancelled.set()
        self._woken.set()

    def request_runs(self, count: int) -> None:
        """Run now if users have requested more runs than have ended so far. `count` is the total number of
        requests.
        """
        self._requested = count
        if count > self.state.run_requests:
            self._woken.set()

    def overdue_ms(self, now_ms: int) -> int:
        """Milliseconds by which the current start, run, or batch of a continuous run exceeds its timeout; zero or
        negative if it does not.
        """
        state, timeout_ms = self.state, self._timeout_ms
        if state.state == STARTING and state.last_start_ms is not None and self._run is not None:
            return now_ms - state.last_start_ms - (timeout_ms or START_TIMEOUT_MS)
        if state.state == RUNNING and timeout_ms is not None and not self._is_continuous:
            return now_ms - (state.last_start_ms or now_ms) - timeout_ms
        if state.state == RUNNING and timeout_ms is not None and self._busy_since_ms is not None:
            return now_ms - self._busy_since_ms - timeout_ms
        return 0

    def shown(self, now_ms: int) -> WorkerState:
        """State for reports: the state LATE replaces RUNNING for a run that is late."""
        since_ms = self._late_since_ms()
        if since_ms is None or since_ms > now_ms:
            return self.state
        return replace(self.state, state=LATE, late_since_ms=since_ms)

    def _late_since_ms(self) -> int | None:
        """Time at which the current run becomes late; None if no run is active."""
        state = self.state
        if state.state != RUNNING or state.last_start_ms is None:
            return None
        if self._is_continuous:
            return max(state.last_success_ms or 0, state.since_ms) + LATE_BATCH_MS
        schedule = definition_of(self.wanted["document"]).schedule
        if schedule.is_continuous:  # a manually requested run
            return state.last_start_ms + LATE_BATCH_MS
        return schedule.next_ms(state.last_start_ms, state.last_start_ms) + LATE_AFTER_MS

    def run(self) -> None:
        while not self._cancelled.is_set():
            if not self._wait_until_due():
                break
            self._attempt()
            if self._settings.is_once:
                break
        if self.state.state not in (DONE, FAILED) or not self._settings.is_once:
            self._change(STOPPED)

    def refresh(self) -> None:
        """Update the state with the statistics of the current run."""
        run = self._run
        if run is None:
            return
        figures = run.figures()
        self.state.rows = self._rows_before + figures.rows
        self.state.bytes = self._bytes_before + (figures.bytes or 0)
        self.state.lag_records, self.state.lag_seconds = figures.lag_records, figures.lag_seconds
        self._busy_since_ms = figures.busy_since_ms
        if figures.rows:
            self.state.table, self.state.table_batch = self._table, figures.last_batch
        if figures.succeeded_ms is not None and self._is_continuous:
            self.state.duration_ms = figures.batch_ms
            self.state.last_success_ms = figures.succeeded_ms
            self.state.failures_in_a_row, self.state.error = 0, None

    @property
    def _is_continuous(self) -> bool:
        return (
            not self._settings.is_once
            and self.wanted["document"].get("schedule", "continuous") == "continuous"
        )

    @property
    def _timeout_ms(self) -> int | None:
        return definition_of(self.wanted["document"]).timeout_ms

    def _wait_until_due(self) -> bool:
        """Wait until the next run or attempt is due. Returns False if the worker was cancelled."""
        state, clock = self.state, SystemClock()
        schedule = definition_of(self.wanted["document"]).schedule
        while not self._cancelled.is_set():
            now_ms = clock.now_ms()
            if self._settings.is_once or self._requested > state.run_requests:
                return True
            if state.failures_in_a_row:
                due_ms = (state.last_failure_ms or now_ms) + backoff_ms(state.failures_in_a_row)
            elif self._is_continuous:
                return True
            else:
                due_ms = schedule.next_ms(state.last_start_ms, now_ms)
                if state.state != WAITING:
                    self._change(WAITING)
            state.next_run_ms = due_ms
            if due_ms <= now_ms:
                return True
            self._woken.wait(min(60.0, (due_ms - now_ms) / 1000))
            self._woken.clear()
        return False

    def _attempt(self) -> None:
        state, clock = self.state, SystemClock()
        requested = self._requested
        state.last_start_ms, state.next_run_ms = clock.now_ms(), None
        self._change(STARTING)
        self._rows_before, self._bytes_before = state.rows, state.bytes
        try:
            self._activate()
        except RunCancelled:
            return
        except Exception as error:  # noqa: BLE001 - any failure of a pipeline becomes its state
            if not self._cancelled.is_set():
                self._fail(error)
        else:
            state.failures_in_a_row, state.error = 0, None
            state.last_success_ms = clock.now_ms()
            state.duration_ms = state.last_success_ms - state.last_start_ms
            self._emit(
                "run ended", {"rows": state.rows - self._rows_before, "duration_ms": state.duration_ms}
            )
            self._change(DONE if self._settings.is_once else WAITING)
        finally:
            state.runs += 1
            state.run_requests = max(state.run_requests, requested)

    def _activate(self) -> None:
        definition = definition_of(self.wanted["document"])
        checkpoint = checkpoint_of(self._settings.checkpoints, definition.name, self.wanted["id"])
        if definition.target.archive is None:
            self._check_checkpoint(checkpoint)
        self._table = definition.target.table
        is_same = self._table is not None and self.state.table == self._table
        # States stored by older releases contain the table without the batch.
        last_batch = (self.state.table_batch or 0) if is_same else None
        place = RunPlace(self._settings.bootstrap, checkpoint, last_batch)
        spark = self._open_session()
        run = self._run = run_of(definition, place, lambda text: self._emit("warning", {"text": text}))
        self.state.checkpoint = checkpoint
        try:
            run.start(spark, once=not self._is_continuous)
            self._change(RUNNING)
            self._emit("started", {})
            run.wait(self._cancelled)
        finally:
            run.stop()
            self.refresh()
            self._run = None

    def _check_checkpoint(self, checkpoint: str) -> None:
        """Raise RunFailed if the checkpoint of an earlier owner is not in this directory, because rows would be written
        again.
        """
        known = self.wanted.get("known") or {}
        if known.get("last_success_ms") and "://" not in checkpoint and not os.path.isdir(checkpoint):
            raise RunFailed(
                f"the checkpoint of the pipeline, which {known.get('owner', 'its last owner')} had at "
                f"{known.get('checkpoint')}, is not at {checkpoint}: give all supervisors the same directory with "
                "--checkpoints, or delete the pipeline and apply it again, which reads its source from the beginning"
            )

    def _fail(self, error: Exception) -> None:
        state = self.state
        state.error = cause_of(error)
        state.failures += 1
        state.failures_in_a_row += 1
        state.last_failure_ms = SystemClock().now_ms()
        self._emit("failed", {"reason": state.error, "failures": state.failures_in_a_row})
        self._change(FAILED)

    def _change(self, name: str) -> None:
        self.state.state = name
        self.state.since_ms = SystemClock().now_ms()
