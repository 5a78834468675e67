"""Killed tasks of a replay: the target holds every record once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from archive_helpers import make, produce, read_topic
from replay_crashes import RECORDS, STEPS

from penstock.testing.process import BrokerProcess


def test_task_killed_at_any_step_replays_every_record_once(
    penstock_session_broker: BrokerProcess,
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    make(bootstrap, "crashing", 1)
    make(bootstrap, "crashed", 1)
    produce(bootstrap, "crashing", range(RECORDS), 1)
    script = Path(__file__).with_name("replay_crashes.py")
    command = [sys.executable, str(script), bootstrap, "crashing", "crashed"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert told.returncode == 0, told.stdout + told.stderr
    lines = told.stdout.splitlines()
    assert len(lines) == 2 * len(STEPS)
    assert [line for line in lines if not line.endswith("killed")] == []
    assert [record.number for record in read_topic(bootstrap, "crashed")] == list(range(RECORDS))
