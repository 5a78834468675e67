"""Topics on Apache Spark. `open_session` returns a Spark session and finds a Java runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.pipeline.session import open_session as open_session
else:

    def __getattr__(name):
        """Import pyspark only on first use: other modules of this package work without it."""
        if name == "open_session":
            from penstock.pipeline.session import open_session

            return open_session
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
