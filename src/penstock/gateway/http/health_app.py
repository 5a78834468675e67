"""The HTTP application of a broker without a gateway: `/metrics` for Prometheus and `/health` for load
balancers.

It accesses the broker only through the two functions that it is given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.build import current_build
from penstock.gateway.health import Health, PartitionDamage
from penstock.gateway.http.responses import iso_time
from penstock.observability.alarms import Alarm
from penstock.observability.exposition import CONTENT_TYPE

MAX_FAILED_LOGS_SHOWN = 20
MAX_DAMAGE_SHOWN = 100
MAX_ALARMS_SHOWN = 100


def make_app(health: Callable[[], Health], metrics: Callable[[], Awaitable[bytes]]) -> Starlette:
    async def show_health(request: Request) -> Response:
        current = health()
        return JSONResponse(describe_health(current), status_code=200 if current.is_ok else 503)

    async def show_metrics(request: Request) -> Response:
        return Response(await metrics(), headers={"content-type": CONTENT_TYPE})

    return Starlette(routes=[Route("/health", show_health), Route("/metrics", show_metrics)])


def describe_health(health: Health) -> dict[str, object]:
    return {
        "status": str(health.state),
        "build": current_build(),
        "failed_logs": list(health.failed_logs[:MAX_FAILED_LOGS_SHOWN]),
        "failed_log_count": len(health.failed_logs),
        "disk_full": health.is_disk_full,
        "degraded": health.is_degraded,
        "damage": [_describe_damage(each) for each in health.damage[:MAX_DAMAGE_SHOWN]],
        "damage_count": len(health.damage),
        "alarms": [_describe_alarm(each) for each in health.alarms[:MAX_ALARMS_SHOWN]],
        "alarm_count": len(health.alarms),
    }


def _describe_damage(damage: PartitionDamage) -> dict[str, object]:
    return {
        "topic": damage.partition.topic,
        "partition": damage.partition.partition,
        "base_offset": damage.base_offset,
        "end_offset": damage.end_offset,
        "reason": damage.reason,
    }


def _describe_alarm(alarm: Alarm) -> dict[str, object]:
    return {
        "kind": str(alarm.kind),
        "topic": alarm.partition.topic,
        "partition": alarm.partition.partition,
        "detail": alarm.detail,
        "since": iso_time(alarm.since_ms),
    }
