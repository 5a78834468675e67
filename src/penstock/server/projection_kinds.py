"""The projection of a topic: which of its records readers are shown. A new kind is added here."""

from __future__ import annotations

from functools import partial

from penstock.cluster.image import ClusterImage, TopicImage
from penstock.cluster.views import VIEW_FILTER
from penstock.filters.matching import Filter, filter_identity
from penstock.replication.projections import Projection


def projection_of(image: ClusterImage, name: str) -> Projection | None:
    """The projection through which clients read a topic; None for topics that are read as they are stored."""
    if name not in image.projected:
        return None
    return _view(image.topics[name])


def _view(view: TopicImage) -> Projection:
    text = view.configs[VIEW_FILTER]
    return Projection(view.id, filter_identity(text), partial(Filter, text))
