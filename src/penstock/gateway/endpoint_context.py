"""Dependencies that all endpoints of a gateway share."""

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
    """Fetches the decisions that `authorize` will be asked for."""
    shows: Authorize | None = None
    """Decides which entries a list includes, without recording a denial; None if `authorize` decides this too."""
    learn_shown: Learn = learn_nothing
    """Fetches the decisions that `shows` will be asked for."""
    users: HttpUsers | None = None
    """Logins of clients; None if clients do not log in."""
    quota: UserQuota | None = None
    """Quotas of users; None if this gateway enforces none."""
    searches: SearchSlots = field(default_factory=SearchSlots)

    @property
    def view(self) -> ClusterView:
        return self.sampler.view
