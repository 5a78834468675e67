"""Apache Kafka from its published artifacts: Maven downloads the jars to build/kafka/libs once.

Without Java or Maven there is no Kafka to compare with: `KafkaUnavailable`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
POM = ROOT / "bench" / "kafka" / "pom.xml"
KAFKA_VERSION = "4.3.1"
OLDEST_JAVA = 17
DOWNLOAD_TIMEOUT_S = 900


class KafkaUnavailable(Exception):
    """Kafka is not available on this machine; the message names the missing part."""


def kafka_libs() -> Path:
    """Directory with Kafka's jars; downloads missing jars."""
    check_java()
    libs = BUILD / "kafka" / "libs"
    if not (libs / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
        download(libs)
    return libs


def check_java() -> None:
    if shutil.which("java") is None:
        raise KafkaUnavailable(f"Java {OLDEST_JAVA} or newer is not installed")
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version.group(1)) < OLDEST_JAVA:
        raise KafkaUnavailable(f"Java {OLDEST_JAVA} or newer is needed, found: {shown.splitlines()[0]}")


def download(libs: Path, pom: Path = POM) -> None:
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("Maven (mvn) is not installed; it fetches Kafka's jars")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise KafkaUnavailable(
            f"Maven could not fetch {pom.parent.name}'s jars: {done.stdout.strip()[-800:]}"
        )
