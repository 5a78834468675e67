"""The dependencies that all endpoints of a gateway share."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.gateway.authorization import Authorize, Learn, allow_all, learn_nothing
from penstock.gateway.backend import Backend
from penstock.gateway.http.user_quota import UserQuota
from penstock.gateway.http.users import HttpUsers
from penstock.gateway.mailbox import Mailbox
from penstock.gateway.search.slots import SearchSlots
from penstock.gateway.view.cluster_view import ClusterView
from penstock.gateway.view.sampler import Sampler
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
    sampler: Sampler
    authorize: Authorize = allow_all
    learn: Learn = learn_nothing
    """Fetches decisions before `authorize` is asked for them."""
    shows: Authorize | None = None
    """Decides what lists include, without a record of what they hide; None where `authorize` does."""
    learn_shown: Learn = learn_nothing
    """Fetches decisions before `shows` is asked for them."""
    users: HttpUsers | None = None
    """Checks of users; None where clients do not log in."""
    quota: UserQuota | None = None
    """Quotas of users; None where there are none."""
    searches: SearchSlots = field(default_factory=SearchSlots)

    @property
    def view(self) -> ClusterView:
        return self.sampler.view
