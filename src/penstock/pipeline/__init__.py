"""Topics on Apache Spark. `open_session` finds a Java runtime and returns a Spark session; `offsets_behind_latest`
reads the progress reports of streaming queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.pipeline.progress_metrics import offsets_behind_latest as offsets_behind_latest
    from penstock.pipeline.session import open_session as open_session
else:

    def __getattr__(name):
        """Import pyspark only on first use: other modules of this package work without it."""
        if name == "open_session":
            from penstock.pipeline.session import open_session

            return open_session
        if name == "offsets_behind_latest":
            from penstock.pipeline.progress_metrics import offsets_behind_latest

            return offsets_behind_latest
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
