"""Requests of the command line to a cluster, over the internal client: what the Kafka client library cannot ask.

Errors are Failures that say what was refused. Connections are made as needed and closed together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from penstock.cli.failures import ExitCode, Failure
from penstock.client.probe import probe
from penstock.config import Address, parse_address
from penstock.config.resources import ConfigResourceType
from penstock.errors import ErrorCode, PenstockError
from penstock.net.broker_connection import BrokerConnection, ConnectionLost, NotKafka
from penstock.net.network import TcpNetwork

CONNECT_SECONDS = 3.0
REQUEST_SECONDS = 30.0
CLIENT_ID = "penstock-cli"
INCREMENTAL_ALTER_CONFIGS = 44


class ClusterClient:
    """`async with ClusterClient(bootstrap) as client`: the first address that answers is asked."""

    def __init__(self, bootstrap: str, patience_seconds: float = REQUEST_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._addresses = [_parse(text.strip()) for text in bootstrap.split(",")]
        self._clients: dict[Address, BrokerConnection] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.close()

    async def ask(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Ask any broker; another one where no answer comes, so only for what may be asked twice."""
        problems = []
        for address in tuple(self._addresses):
            try:
                return await self.ask_at(address, api_key, version, fields)
            except OSError as error:
                problems.append(_problem(address, await _explain(address, error)))
                self._addresses.append(self._addresses.pop(0))
        raise _unreachable(problems)

    async def ask_at(self, address: Address, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Ask the broker at an address; OSError where it cannot be reached or does not answer."""
        client = await self._connect(address)
        try:
            async with asyncio.timeout(self._patience_seconds):
                return await client.request(api_key, version, fields)
        except PenstockError as error:
            raise Failure(f"the answer of {address} cannot be understood: {error}") from None

    async def _connect(self, address: Address) -> BrokerConnection:
        client = self._clients.get(address)
        if client is None or not client.is_connected:
            async with asyncio.timeout(CONNECT_SECONDS):
                client = await BrokerConnection.connect(TcpNetwork(), address.host, address.port, CLIENT_ID)
            self._clients[address] = client
        return client


async def _explain(address: Address, error: OSError) -> OSError:
    """NotKafka in place of the error where the connection ended because the port speaks another protocol."""
    if isinstance(error, ConnectionLost):
        try:
            await asyncio.to_thread(probe, address.host, address.port, CONNECT_SECONDS)
        except NotKafka as found:
            return found
        except OSError:
            pass
    return error


def _problem(address: Address, error: OSError) -> str:
    return f"{address} ({error.strerror or str(error) or 'no answer'})"


def _unreachable(problems: list[str]) -> Failure:
    return Failure(
        f"cannot reach a broker at {', '.join(problems)}",
        "Name one with --bootstrap HOST:PORT or PENSTOCK_BOOTSTRAP.",
    )


def _parse(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError:
        raise Failure(f"{text!r} is not HOST:PORT", code=ExitCode.USAGE) from None


async def alter_configs(
    client: ClusterClient, kind: ConfigResourceType, configs: Mapping[str, list[dict[str, Any]]]
) -> None:
    """Make the changes of settings, by the name of the topic or broker; an empty name is all brokers."""
    if not configs:
        return
    resources = [
        {"resource_type": kind, "resource_name": name, "configs": each} for name, each in configs.items()
    ]
    answer = await client.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False})
    for response in answer.responses:
        check_answer(response, f"the settings of {response.resource_name or 'all brokers'}")


def check_answer(answer: Any, what: str) -> None:
    """Raise a Failure where an answer, or a part of it, has an error code."""
    code = ErrorCode(answer.error_code)
    if code is not ErrorCode.none:
        message = getattr(answer, "error_message", None)
        raise Failure(f"{what}: {message or code.name} ({code.name.upper()})")
