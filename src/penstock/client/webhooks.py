"""Administration of webhooks: `Admin().webhooks`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.client.errors import ClientError, InvalidSetting, QueueUnknown, TimedOut, TopicUnknown
from penstock.client.internal_calls import InternalCalls
from penstock.client.internal_connection import InternalConnection

if TYPE_CHECKING:
    from penstock.internal_client.webhooks import WebhookDetails, WebhookSummary

DEFAULT_OVERLAP_S: Final = 86_400.0


class WebhookUnknown(ClientError, LookupError):
    """The webhook does not exist."""


_ERRORS: Final[dict[str, type[ClientError]]] = {
    "RESOURCE_NOT_FOUND": WebhookUnknown,
    "GROUP_ID_NOT_FOUND": QueueUnknown,
    "UNKNOWN_TOPIC_OR_PARTITION": TopicUnknown,
    "INVALID_REQUEST": InvalidSetting,
    "INVALID_CONFIG": InvalidSetting,
    "REQUEST_TIMED_OUT": TimedOut,
}


@dataclass(frozen=True, slots=True)
class WebhookListing:
    name: str
    queue: str
    topic: str
    """Topic of a queue that was created for the webhook; empty for an existing queue."""
    filter: str
    url: str
    concurrency: int
    timeout_s: float
    format: str
    paused: bool
    paused_reason: str
    owner: int
    """Broker that makes the calls; -1 before it has begun."""


@dataclass(frozen=True, slots=True)
class Webhook(WebhookListing):
    """A webhook, with its calls since the present owner makes them."""

    created_ms: int
    secrets: int
    """Number of secrets that sign calls: two during a rotation."""
    successes: int
    failures: int
    in_flight: int
    last_status: int | None
    last_error: str
    last_call_ms: int | None
    last_latency_ms: float
    problem: str
    """Reason why the queue cannot be read; empty if it can."""
    secret: str | None = None
    """Secret that was drawn for this call of `create` or `rotate_secret`; it is not shown again."""

    def __repr__(self) -> str:
        return f"Webhook({self.name!r}, queue={self.queue!r}, url={self.url!r}, paused={self.paused!r})"


@dataclass(frozen=True, slots=True)
class WebhookTest:
    ok: bool
    status: int | None
    """Status of the answer; None without one."""
    latency_ms: float
    error: str


class Webhooks:
    def __init__(self, connection: InternalConnection, timeout_s: float) -> None:
        self._calls = InternalCalls(connection, timeout_s, _ERRORS)

    def create(
        self,
        name: str,
        url: str,
        *,
        queue: str | None = None,
        topic: str | None = None,
        filter: str | None = None,
        concurrency: int = 8,
        timeout_s: float = 10.0,
        format: str = "raw",
        secret: str | None = None,
    ) -> Webhook:
        """Create a webhook of a queue, or of new messages of a topic. Without a secret one is drawn and returned."""
        from penstock.internal_client.webhooks import NewWebhook

        source = queue or "", topic or "", filter or ""
        new = NewWebhook(name, url, *source, concurrency, round(timeout_s * 1000), format, secret or "")
        created = self._calls.run(lambda client: client.webhooks.create(new))
        return _webhook(created.details, created.secret)

    def list(self) -> list[WebhookListing]:
        """List the webhooks by name."""
        found = self._calls.run(lambda client: client.webhooks.all())
        return [WebhookListing(**_listing(each)) for each in found]

    def describe(self, name: str) -> Webhook:
        """Describe a webhook; WebhookUnknown if there is none."""
        return _webhook(self._calls.run(lambda client: client.webhooks.describe(name)))

    def alter(
        self,
        name: str,
        *,
        url: str | None = None,
        concurrency: int | None = None,
        timeout_s: float | None = None,
        format: str | None = None,
    ) -> Webhook:
        """Change a webhook; calls that have begun end as they are."""
        timeout_ms = None if timeout_s is None else round(timeout_s * 1000)
        given = {"url": url, "concurrency": concurrency, "timeout_ms": timeout_ms, "format": format}
        changes = {field: value for field, value in given.items() if value is not None}
        return _webhook(self._calls.run(lambda client: client.webhooks.alter(name, changes)))

    def pause(self, name: str) -> Webhook:
        """Stop the calls of a webhook; messages stay in the queue."""
        return _webhook(self._calls.run(lambda client: client.webhooks.pause(name)))

    def resume(self, name: str) -> Webhook:
        """Continue the calls of a paused webhook."""
        return _webhook(self._calls.run(lambda client: client.webhooks.resume(name)))

    def rotate_secret(
        self, name: str, secret: str | None = None, *, overlap_s: float = DEFAULT_OVERLAP_S
    ) -> Webhook:
        """Give a webhook another secret; calls have two signatures until the old one ends."""
        overlap_ms = round(overlap_s * 1000)
        changed = self._calls.run(
            lambda client: client.webhooks.rotate_secret(name, secret or "", overlap_ms)
        )
        return _webhook(changed.details, changed.secret)

    def test(self, name: str) -> WebhookTest:
        """Call the receiver once with a test message."""
        return WebhookTest(**asdict(self._calls.run(lambda client: client.webhooks.test(name))))

    def delete(self, name: str) -> None:
        """Delete a webhook, and the queue that was created for it."""
        self._calls.run(lambda client: client.webhooks.delete(name))


def _listing(summary: WebhookSummary) -> dict[str, Any]:
    shown = asdict(summary)
    shown["timeout_s"] = shown.pop("timeout_ms") / 1000
    return shown


def _webhook(details: WebhookDetails, secret: str = "") -> Webhook:
    figures = asdict(details)
    del figures["summary"]
    return Webhook(**_listing(details.summary), **figures, secret=secret or None)
