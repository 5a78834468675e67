"""Kill all processes of a session, also those that were reparented."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def kill_session(session: int) -> None:
    """Kill all processes of the session at once, the caller last."""
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        try:
            if os.getsid(pid) == session and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if os.getsid(0) == session:
        os.kill(os.getpid(), signal.SIGKILL)
