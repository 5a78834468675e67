"""Names of shared views. A name depends only on topic and filter, so that readers find the view of another reader."""

from __future__ import annotations

from hashlib import blake2b

_MAX_NAME = 249
_MARK = ".view-"


def shared_view_name(topic: str, text: str) -> str:
    """Name of the shared view of a topic with a filter."""
    digest = blake2b(f"{topic}\n{text.strip()}".encode(), digest_size=8).hexdigest()
    end = f"{_MARK}{digest}"
    return topic[: _MAX_NAME - len(end)] + end
