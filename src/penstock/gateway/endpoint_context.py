"""The dependencies that all endpoints of a gateway share."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.gateway.authorization import Authorize, allow_all
from penstock.gateway.backend import Backend
from penstock.gateway.mailbox import Mailbox
from penstock.observability.logs import Logger
from penstock.threads import Threads


@dataclass(frozen=True, slots=True)
class EndpointContext:
    backend: Backend
    config: BrokerConfig
    clock: Clock
    threads: Threads
    log: Logger
    mailbox: Mailbox
    authorize: Authorize = allow_all
