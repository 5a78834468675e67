"""`python -m bench.slow_disk_broker DELAY_MS broker ...`: a broker whose every sync takes this much longer.

The delay is added at the disk interface by this program: the product has no such setting.
"""

from __future__ import annotations

import dataclasses
import sys
import time

from penstock.cli import broker_process
from penstock.cli.main import main
from penstock.config import LOG_DIR, BrokerConfig
from penstock.server.environment import Environment, MachineShare, real_environment
from penstock.storage.disk import RealDisk, RealFile


class SlowFile(RealFile):
    __slots__ = ()
    delay_s = 0.0

    def sync(self) -> None:
        time.sleep(self.delay_s)
        super().sync()


class SlowDisk(RealDisk):
    def open(self, path: str, *, create: bool = False) -> RealFile:
        opened = super().open(path, create=create)
        slow = SlowFile(opened._fd)
        opened._fd = -1
        return slow

    def sync_dir(self, path: str) -> None:
        time.sleep(SlowFile.delay_s)
        super().sync_dir(path)

    def sync_all(self) -> bool:
        time.sleep(SlowFile.delay_s)
        return super().sync_all()


def slow_environment(config: BrokerConfig, share: MachineShare | None = None) -> Environment:
    return dataclasses.replace(real_environment(config, share), disk=SlowDisk(config[LOG_DIR]))


if __name__ == "__main__":
    SlowFile.delay_s = float(sys.argv.pop(1)) / 1_000
    broker_process.real_environment = slow_environment  # type: ignore[attr-defined]
    main()
