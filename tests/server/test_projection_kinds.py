"""Projections of topics: their identity is that of the selector that they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.server.projection_kinds import projection_of
from support.harness import Harness, serve

FILTER = 'key == "k"'


@pytest.mark.parametrize("source", ["orders", "later"])
def test_a_projection_has_the_identity_of_its_selector(tmp_path: Path, source: str) -> None:
    """Otherwise each fetch would begin with a new index, and the files of the index would be removed."""

    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        await broker.create("later", delivery_delay="true")
        await broker.create("view", view_of=source, view_filter=FILTER)
        image = broker.context.image
        assert projection_of(image, "orders") is None
        for name in image.projected:
            projection = projection_of(image, name)
            assert projection is not None
            assert projection.make(0).identity == projection.identity

    serve(tmp_path, scenario)
