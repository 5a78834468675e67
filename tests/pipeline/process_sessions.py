"""All processes that began with one, wherever they are in the tree by now."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def kill_session(session: int) -> None:
    """Everybody in it, at once; oneself last."""
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        try:
            if os.getsid(pid) == session and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if os.getsid(0) == session:
        os.kill(os.getpid(), signal.SIGKILL)
