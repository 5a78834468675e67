"""Every login of kcat: it produces for some seconds, and reads in a group. The argument is the
file of `login_ground.py`. Debian's kcat gets no tokens (it was built without OIDC), and does not log in again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Settings = dict[str, str]
PAUSE_SECONDS = 0.01


def logins(ground: dict[str, Any]) -> Iterator[tuple[str, Settings]]:
    tls = {"ssl.ca.location": ground["authority"]}
    shown = {"ssl.certificate.location": ground["certificate"], "ssl.key.location": ground["certificate"]}
    yield "ssl", {**settings(ground, "SSL"), **tls, **shown}
    user = {"sasl.username": ground["user"], "sasl.password": ground["password"]}
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        for protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
            further = tls if protocol == "SASL_SSL" else {}
            login = {"sasl.mechanisms": mechanism, **user, **further}
            yield f"{protocol}-{mechanism}".lower(), {**settings(ground, protocol), **login}


def settings(ground: dict[str, Any], protocol: str) -> Settings:
    return {"bootstrap.servers": ground["addresses"][protocol], "security.protocol": protocol}


def kcat(settings: Settings, *arguments: str, **pipes: Any) -> subprocess.Popen[str]:
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    return subprocess.Popen(["kcat", *options, *arguments], text=True, **pipes)


def use(name: str, settings: Settings, seconds: float) -> int:
    topic = f"kcat-{name}"
    end, sent = time.monotonic() + seconds, 0
    writer = kcat(settings, "-P", "-t", topic, "-X", "linger.ms=0", stdin=subprocess.PIPE)
    assert writer.stdin is not None
    while time.monotonic() < end:
        writer.stdin.write(f"record {sent}\n")
        writer.stdin.flush()
        sent += 1
        time.sleep(PAUSE_SECONDS)
    writer.stdin.close()
    if writer.wait(60):
        raise SystemExit(f"{name}: kcat failed while it produced")
    first = {**settings, "auto.offset.reset": "earliest"}
    reader = kcat(first, "-q", "-c", str(sent), "-G", f"{topic}-group", topic, stdout=subprocess.PIPE)
    try:
        read = reader.communicate(timeout=60)[0].splitlines()
    finally:
        reader.kill()
    if sorted(read) != sorted(f"record {number}" for number in range(sent)):
        raise SystemExit(f"{name}: {len(read)} of {sent} records were read")
    return sent


def main() -> None:
    ground = json.loads(Path(sys.argv[1]).read_text())
    with ThreadPoolExecutor(20) as threads:
        running = {
            name: threads.submit(use, name, login, ground["seconds"]) for name, login in logins(ground)
        }
        for name, each in running.items():
            print(f"{name}: {each.result()} records", flush=True)


if __name__ == "__main__":
    main()
