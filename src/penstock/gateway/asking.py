"""One question to a broker that must not be put twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.net.client import Client
from penstock.net.routes import ANSWER_SECONDS, Routes
from penstock.net.sender import OutcomeUnknown


async def ask_once(
    routes: Routes, api_key: int, version: int, fields: Mapping[str, Any], client: Client | None = None
) -> Any:
    """Ask a broker, or any. OSError where none is there; OutcomeUnknown where one was asked but did not answer."""
    if client is None:
        client = await routes.any_broker()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await client.request(api_key, version, fields)
    except OSError as error:
        raise OutcomeUnknown(str(error) or "no answer in time") from error
