"""Spark's own Kafka connector from its published artifacts, with the PySpark that it needs, in
build/spark-kafka.

4.0.0 is the newest version whose artifacts all resolve. Without Java, Maven or that PySpark there is nothing
to compare with: `KafkaUnavailable`.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.kafka_install import BUILD, DOWNLOAD_TIMEOUT_S, ROOT, KafkaUnavailable, check_java, download

SPARK_VERSION = "4.0.0"
POM = ROOT / "bench" / "spark" / "pom.xml"


@dataclass(frozen=True, slots=True)
class Connector:
    python: Path
    """Python of an environment with this PySpark."""
    jars: tuple[Path, ...]


def spark_connector() -> Connector:
    """Download missing parts."""
    check_java()
    home = BUILD / "spark-kafka"
    jars, python = home / "jars", home / "venv" / "bin" / "python"
    if not (jars / f"spark-sql-kafka-0-10_2.13-{SPARK_VERSION}.jar").exists():
        download(jars, POM)
    if not (home / "installed").exists():
        _run([sys.executable, "-m", "venv", "--clear", str(home / "venv")])
        _run([str(python), "-m", "pip", "install", "--quiet", f"pyspark=={SPARK_VERSION}"])
        (home / "installed").touch()
    return Connector(python, tuple(sorted(jars.glob("*.jar"))))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise KafkaUnavailable(f"PySpark {SPARK_VERSION} cannot be had: {done.stderr.strip()[-800:]}")
