"""Statistics of webhook calls: of all webhooks of a broker for metrics, and of one webhook for its description."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.observability.metrics import BrokerMetrics, Histogram

MAX_ERROR_CHARACTERS = 300


@dataclass(slots=True)
class CallCounts:
    """Number and duration of the webhook calls that this broker has made."""

    successes: int = 0
    failures: int = 0
    latency: Histogram = field(default_factory=Histogram)

    def observe(self, seconds: float, *, is_success: bool) -> None:
        self.latency.observe(seconds)
        if is_success:
            self.successes += 1
        else:
            self.failures += 1

    def show(self, metrics: BrokerMetrics) -> None:
        metrics.webhook_calls = self.latency
        metrics.add_counter(
            "penstock_webhook_successes",
            "Webhook calls of this broker with a 2xx response.",
            lambda: self.successes,
        )
        metrics.add_counter(
            "penstock_webhook_failures",
            "Webhook calls of this broker with another response, or without a response.",
            lambda: self.failures,
        )


@dataclass(slots=True)
class WebhookFigures:
    """Statistics of the calls of one webhook since this broker became its owner."""

    successes: int = 0
    failures: int = 0
    last_status: int = 0
    last_error: str = ""
    last_call_ms: int = 0
    last_latency_s: float = 0.0
    problem: str = ""
    """Error that keeps the webhook from receiving messages; empty if there is none."""

    def observe(self, status: int, seconds: float, reason: str, now_ms: int) -> None:
        self.last_status, self.last_latency_s, self.last_call_ms = status, seconds, now_ms
        if reason:
            self.failures += 1
            self.last_error = reason[:MAX_ERROR_CHARACTERS]
        else:
            self.successes += 1

    def shown(self) -> dict[str, object]:
        return {
            "successes": self.successes,
            "failures": self.failures,
            "last_status": self.last_status or None,
            "last_error": self.last_error,
            "last_call_ms": self.last_call_ms or None,
            "last_latency_ms": round(self.last_latency_s * 1000, 1),
            "problem": self.problem,
        }
