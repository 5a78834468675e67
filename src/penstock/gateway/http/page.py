"""HTML page that describes the gateway: one file without scripts or assets, generated from the endpoints."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from penstock.gateway.http.endpoint import JSON, Endpoint
from penstock.gateway.http.schema import Schema

CONTENT_POLICY = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
}

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; }
details { border: 1px solid #8884; border-radius: .4rem; margin: .5rem 0; padding: .5rem .8rem; }
summary { cursor: pointer; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; background: #8881; padding: .6rem; border-radius: .3rem; }
table { border-collapse: collapse; width: 100%; } td { padding: .2rem .6rem .2rem 0; vertical-align: top; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 600; }
"""


def make_page(endpoints: Iterable[Endpoint]) -> str:
    by_tag: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        by_tag.setdefault(endpoint.tag, []).append(endpoint)
    sections = "".join(
        f"<h2>{escape(tag)}</h2>{''.join(map(_section, members))}" for tag, members in by_tag.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Penstock HTTP gateway</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>Penstock HTTP gateway</h1>"
        '<p>For programs: <a href="/openapi.json">/openapi.json</a> (OpenAPI 3.1). '
        'Also: <a href="/health">/health</a>, <a href="/metrics">/metrics</a>, <a href="/v1/topics">/v1/topics</a>, '
        '<a href="/v1/groups">/v1/groups</a>, <a href="/v1/cluster">/v1/cluster</a>.</p>'
        f"{sections}</body></html>"
    )


def _section(endpoint: Endpoint) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each.name)}</code></td><td>{escape(each.place)}"
        f"{', needed' if each.required else ''}</td><td>{escape(each.doc)}</td></tr>"
        for each in endpoint.parameters
    )
    parameters = f"<table>{rows}</table>" if rows else ""
    schema = endpoint.bodies.get(JSON)
    body = "" if schema is None else f"<p>Body:</p><pre>{escape(_pretty(example(schema)))}</pre>"
    answers = "".join(
        f"<p>{status}: {escape(answer.doc)}</p>"
        + (f"<pre>{escape(_pretty(example(answer.schema)))}</pre>" if answer.schema else "")
        for status, answer in endpoint.responses.items()
    )
    messages = "".join(
        f"<p>Messages of the {escape(sender)}:</p><pre>{escape(_pretty(example(each)))}</pre>{_described(each)}"
        for sender, each in endpoint.socket_messages.items()
    )
    return (
        f'<details id="{escape(endpoint.name)}"><summary><span class="method">{endpoint.method}</span> '
        f"<code>{escape(endpoint.path)}</code> {escape(endpoint.summary)}</summary>"
        f"{parameters}{body}{answers}{messages}</details>"
    )


def _described(schema: Schema) -> str:
    """Return HTML with the fields of an object schema that have a description."""
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(each['description'])}</td></tr>"
        for name, each in schema["properties"].items()
        if "description" in each
    )
    return f"<table>{rows}</table>"


def example(schema: Schema) -> Any:
    """Return an example value for a schema."""
    kinds = schema.get("type", "object")
    kind = kinds if isinstance(kinds, str) else kinds[0]
    if "enum" in schema:
        return schema["enum"][0]
    if "default" in schema:
        return schema["default"]
    if kind == "object":
        others = schema.get("additionalProperties")
        inner = {name: example(each) for name, each in schema.get("properties", {}).items()}
        return inner or ({"...": example(others)} if isinstance(others, dict) else {})
    if kind == "array":
        return [example(schema["items"])]
    if kind == "string" and schema.get("format") == "date-time":
        return "2026-01-31T12:00:00.000Z"
    return {
        "string": "text",
        "integer": schema.get("minimum", 0),
        "number": schema.get("minimum", 0),
        "boolean": True,
    }[kind]


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2)
