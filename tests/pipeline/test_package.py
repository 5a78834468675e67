from __future__ import annotations

import pytest

import penstock.pipeline
from penstock.pipeline.session import open_session
from penstock.pipeline.table_store import store_at


def test_package_exports_only_open_session() -> None:
    assert penstock.pipeline.open_session is open_session
    with pytest.raises(AttributeError, match="no attribute 'close_session'"):
        _ = penstock.pipeline.close_session  # type: ignore[attr-defined]


def test_object_store_over_plain_http_is_allowed() -> None:
    plain = {"AWS_ENDPOINT_URL": "http://localhost:9000", "AWS_ACCESS_KEY_ID": "k"}
    assert store_at("s3://bucket/a", plain).options["AWS_ALLOW_HTTP"] == "true"
    assert store_at("s3://bucket/a", plain | {"AWS_ALLOW_HTTP": "false"}).options["AWS_ALLOW_HTTP"] == "false"
    assert "AWS_ALLOW_HTTP" not in store_at("s3://bucket/a", {"AWS_ENDPOINT_URL": "https://s3"}).options
