"""Spark session: local by default, with an installed Java or the one of a package."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.pipeline.java import java_home

LOCAL = "local[*]"
_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
_ON_THIS_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Settings of local mode. With a cluster, the cluster's own settings apply."""


def open_session(
    app_name: str = "penstock", master: str = LOCAL, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the Spark session of this process, and create it if there is none.

    Spark uses the Java of `JAVA_HOME` or of `PATH`, else the one that `penstock[pipeline]` installs.
    """
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).master(master)
    chosen = {**_SETTINGS, **(settings or {})}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen = {**_ON_THIS_MACHINE, **chosen}
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
