"""Supervisor: owns pipelines of the cluster, runs them in a driver process, and reports their states.

A loop takes part in the consumer group, takes and releases ownership, sends pipelines to the driver, and stores states
and events. A separate thread renews the leases, so that nothing in the loop can delay this.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.clock import SystemClock
from penstock.errors import BrokerError
from penstock.internal_client.pipelines import DEFINITIONS, StoredPipeline
from penstock.internal_client.transactions import ProducerIdentity
from penstock.pipeline.offsets import ClusterUnreachable, run
from penstock.pipeline.supervisor.driver_process import DriverProcess
from penstock.pipeline.supervisor.membership import SupervisorMembership
from penstock.pipeline.supervisor.ownership import LEASE_SECONDS, MARGIN_SECONDS, Ownership

_POLL_SECONDS = 0.5
_PROOF_SECONDS = 2.0
_REPORT_SECONDS = 5.0
_STOP_SECONDS = 60.0

Echo = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    bootstrap: str
    checkpoints: str
    """Directory of the checkpoints of all pipelines; all supervisors use the same one."""
    master: str
    conf: Mapping[str, str] = field(default_factory=dict)
    only: str | None = None
    """Name of the only pipeline to run: it is run once, then the supervisor ends. None to run all pipelines."""


@dataclass(slots=True)
class _Owned:
    pipeline: StoredPipeline
    token: ProducerIdentity
    ready_at: float
    known: dict[str, Any]
    """Last state of the pipeline, reported by the previous owner or by this one."""
    proved_at: float
    """Monotonic time in seconds at which ownership of the pipeline was last verified."""
    is_lost: bool = False


class PipelineSupervisor:
    def __init__(self, settings: SupervisorSettings, echo: Echo) -> None:
        self._settings = settings
        self._echo = echo
        self._clock = SystemClock()
        self._owned: dict[str, _Owned] = {}
        self._ownership = Ownership(settings.bootstrap)
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._driver = DriverProcess(
            {
                "bootstrap": settings.bootstrap,
                "checkpoints": settings.checkpoints,
                "master": settings.master,
                "conf": dict(settings.conf),
                "is_once": settings.only is not None,
            },
            os.path.join(_local(settings.checkpoints), f"driver-{os.getpid()}.log"),
        )
        partitions = run(settings.bootstrap, DEFINITIONS.ensure)
        self._membership = SupervisorMembership(settings.bootstrap, partitions, self._on_revoked)
        self._stopping: set[str] = set()
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._changed: set[str] = set()
        self._guilty: dict[str, str] = {}
        """Reasons by name of the pipelines that exceeded their timeout and thereby end the driver."""
        self._reported_at = 0.0
        self._ended = threading.Event()
        threading.Thread(target=self._keep, name="leases", daemon=True).start()
        self.is_over = False
        self.result: dict[str, Any] | None = None
        """State after the run, if `settings.only` is set."""

    def states(self) -> dict[str, dict[str, Any]]:
        """States of the owned pipelines, for metrics."""
        return {name: dict(each.known) for name, each in self._owned.items()}

    def step(self) -> None:
        """Run one turn of the loop. Takes half a second, or longer if brokers do not respond."""
        self._membership.poll(_POLL_SECONDS)
        wanted = self._wanted()
        self._release_others(wanted)
        for name, pipeline in wanted.items():
            if name in self._owned:
                self._owned[name].pipeline = pipeline
            elif name not in self._stopping:
                self._take(pipeline)
        self._command(wanted)
        self._hear()
        self._store()

    def stop(self) -> None:
        """Stop all pipelines after their current batches, release them and leave the group."""
        deadline = self._clock.monotonic() + _STOP_SECONDS
        self._release_others({})
        while self._stopping and self._driver.is_alive and self._clock.monotonic() < deadline:
            self._membership.poll(_POLL_SECONDS)
            self._command({})
            self._hear()
        self._driver.kill()
        for name in list(self._owned):
            self._set_released(name)
        self._store(now=True)
        self._ended.set()
        self._membership.close()

    def _wanted(self) -> dict[str, StoredPipeline]:
        found = {name: each for name, each in self._membership.pipelines().items() if not each.is_paused}
        only = self._settings.only
        return found if only is None else {name: each for name, each in found.items() if name == only}

    def _take(self, pipeline: StoredPipeline) -> None:
        now = self._clock.monotonic()
        try:
            token, known = self._ownership.take(pipeline)
        except (BrokerError, ClusterUnreachable) as error:
            self._echo(f"{pipeline.name}: cannot become the owner, trying again: {error}")
            return
        needs_wait = bool(known) and not known.get("released")
        wait = LEASE_SECONDS + MARGIN_SECONDS if needs_wait else 0.0
        self._owned[pipeline.name] = _Owned(pipeline, token, now + wait, dict(known), now)
        self._note(pipeline.name, {"state": "taken over", "released": False, "owner": self._name})
        self._log(pipeline.name, "owned", {"owner": self._name, "waits_seconds": wait})
        self._store(now=True)

    def _release_others(self, wanted: Mapping[str, StoredPipeline]) -> None:
        """Stop pipelines that are paused, deleted or assigned to another supervisor; release those that have
        stopped.
        """
        for name, owned in list(self._owned.items()):
            is_same = name in wanted and wanted[name].id == owned.pipeline.id
            if not is_same:
                self._stopping.add(name)
            if name in self._stopping and not self._is_active(name):
                self._set_released(name)

    def _is_active(self, name: str) -> bool:
        return self._driver.is_alive and self._owned[name].known.get("is_alive", False)

    def _set_released(self, name: str) -> None:
        self._note(name, {"state": "stopped", "released": True})
        self._log(name, "released", {"owner": self._name})
        self._store(now=True)
        self._owned.pop(name, None)
        self._stopping.discard(name)

    def _on_revoked(self, names: set[str]) -> None:
        """Stop pipelines whose partitions are revoked. If they have not stopped after LEASE_SECONDS, kill the
        driver.
        """
        lost = names & self._owned.keys()
        if not lost:
            return
        self._stopping |= lost
        deadline = self._clock.monotonic() + LEASE_SECONDS
        while any(map(self._is_active, lost)) and self._clock.monotonic() < deadline:
            self._command(self._wanted())
            self._hear()
            self._ended.wait(_POLL_SECONDS)
        if any(map(self._is_active, lost)):
            self._driver.kill()
        for name in lost:
            self._set_released(name)

    def _keep(self) -> None:
        """Renew the leases of the pipelines whose ownership is verified. Runs in a thread, so that nothing
        delays it.
        """
        while not self._ended.wait(_PROOF_SECONDS):
            asked_at = self._clock.monotonic()
            held = dict(self._owned)
            valid = self._ownership.still_owned(
                {name: (each.pipeline, each.token) for name, each in held.items()}
            )
            for name in valid:
                held[name].proved_at = asked_at
            for name in held.keys() - valid:
                held[name].is_lost = self._clock.monotonic() - held[name].proved_at > LEASE_SECONDS
            if valid:
                left = LEASE_SECONDS - (self._clock.monotonic() - asked_at)
                self._driver.send({"leases": sorted(valid), "lease_seconds": left})

    def _command(self, wanted: Mapping[str, StoredPipeline]) -> None:
        now = self._clock.monotonic()
        ready = {
            name: each
            for name, each in self._owned.items()
            if name in wanted
            and name not in self._stopping
            and not each.is_lost
            and each.ready_at <= now < each.proved_at + LEASE_SECONDS
        }
        if ready or self._driver.pid is not None:
            reason = self._driver.ensure() if ready or not self._driver.is_alive else None
            if reason is not None:
                self._hear()  # its last reports, which may name the pipeline that ended it
                self._on_driver_death(reason)
        self._driver.send({"pipelines": {name: self._order(each, now) for name, each in ready.items()}})

    def _order(self, owned: _Owned, now: float) -> dict[str, Any]:
        pipeline = owned.pipeline
        return {
            "name": pipeline.name,
            "id": pipeline.id,
            "revision": pipeline.revision,
            "document": dict(pipeline.document),
            "run_requests": pipeline.run_requests,
            "known": owned.known,
            "lease_seconds": LEASE_SECONDS - (now - owned.proved_at),
        }

    def _on_driver_death(self, reason: str) -> None:
        """Record the failure in the states of the running pipelines. The pipelines that ended the driver wait for their
        back-off; the others restart with the driver.
        """
        self._echo(reason)
        guilty, self._guilty = self._guilty, {}
        if guilty:
            reason = f"the driver was stopped because of {', '.join(sorted(guilty))} and is restarted"
        for name, each in self._owned.items():
            if not each.known.pop("is_alive", False):
                continue
            failures = int(each.known.get("failures", 0)) + 1
            changes = {"state": "failed", "error": guilty.get(name, reason), "failures": failures}
            if name in guilty:
                in_a_row = int(each.known.get("failures_in_a_row", 0)) + 1
                changes |= {"failures_in_a_row": in_a_row, "last_failure_ms": self._clock.now_ms()}
            self._note(name, changes)
            self._log(name, "driver died", {"reason": changes["error"]})

    def _hear(self) -> None:
        for report in self._driver.received():
            if "states" in report:
                self._take_states(report)
            else:
                self._on_event(report)

    def _take_states(self, report: Mapping[str, Any]) -> None:
        for name, owned in self._owned.items():
            found = report["states"].get(name)
            if found is None:
                owned.known["is_alive"] = name in report["stopping"]
                continue
            if found["state"] != owned.known.get("state"):
                self._changed.add(name)
            owned.known = {**owned.known, **found}
            if self._settings.only == name and found["state"] in ("done", "failed") and not found["is_alive"]:
                self.is_over, self.result = True, dict(owned.known)

    def _on_event(self, report: Mapping[str, Any]) -> None:
        name = report["name"]
        fields = {key: value for key, value in report.items() if key not in ("name", "event")}
        self._events.append((name, {"event": report["event"], **fields}))
        details = " ".join(f"{key}={value}" for key, value in fields.items() if key != "at_ms")
        self._echo(f"{name}: {report['event']} {details}".rstrip())
        if report["event"] == "timed out":
            self._guilty[name] = str(report["reason"])

    def _note(self, name: str, changes: Mapping[str, Any]) -> None:
        if name in self._owned:
            self._owned[name].known |= changes
            self._changed.add(name)

    def _log(self, name: str, event: str, fields: Mapping[str, Any]) -> None:
        self._events.append((name, {"event": event, "at_ms": self._clock.now_ms(), **fields}))
        self._echo(f"{name}: {event}")

    def _store(self, *, now: bool = False) -> None:
        """Store states and events: at once if a state changed or `now` is set, else every few seconds."""
        is_due = now or self._changed or self._clock.monotonic() - self._reported_at >= _REPORT_SECONDS
        if not is_due or not (self._owned or self._events):
            return
        statuses = {
            name: {
                **{key: value for key, value in each.known.items() if key not in ("is_alive", "revision")},
                "id": each.pipeline.id,
                "owner": self._name,
                "at_ms": self._clock.now_ms(),
            }
            for name, each in self._owned.items()
            if not each.is_lost
        }
        events, self._events = self._events[:500], self._events[500:]
        if self._ownership.report(statuses, events):
            self._changed.clear()
            self._reported_at = self._clock.monotonic()
        else:
            self._events = [*events, *self._events][-5_000:]


def _local(checkpoints: str) -> str:
    """Local directory for the log of the driver."""
    return "." if "://" in checkpoints else os.path.abspath(checkpoints)
