"""Drain of a surplus broker process, with `penstock cluster drain` in a separate process."""

from __future__ import annotations

import asyncio
import sys

from penstock.config import Address
from penstock.observability.logs import Logger

RETRY_SECONDS = 10.0


async def drain(node_id: int, bootstrap: Address, log: Logger) -> None:
    """Reassign all replicas of a broker; repeat this until the broker has none. The brokers continue to serve."""
    log.info("draining broker", node_id=node_id)
    while (code := await _drain_once(node_id, bootstrap)) != 0:
        log.error("broker could not be drained; it continues to serve", node_id=node_id, exit_code=code)
        await asyncio.sleep(RETRY_SECONDS)


async def _drain_once(node_id: int, bootstrap: Address) -> int:
    program = [sys.executable, "-m", "penstock.cli.main", "cluster", "drain"]
    process = await asyncio.create_subprocess_exec(
        *program, str(node_id), "--bootstrap", str(bootstrap), stdout=sys.stderr
    )
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
