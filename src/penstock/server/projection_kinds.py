"""The projection of a topic, which decides what records readers see. A new kind of projection is added here."""

from __future__ import annotations

from functools import partial

from penstock.cluster.image import ClusterImage, TopicImage
from penstock.cluster.views import VIEW_FILTER
from penstock.delay.visible import VISIBLE
from penstock.filters.matching import Filter, filter_identity
from penstock.records.selecting import JointSelector, Selector, joint_identity
from penstock.replication.projections import Projection


def projection_of(image: ClusterImage, name: str) -> Projection | None:
    """The projection through which clients read a topic; None if clients read the topic as it is stored."""
    if name not in image.projected:
        return None
    topic = image.topics[name]
    if topic.view_of is None:
        return Projection(topic.id, VISIBLE.identity, lambda _: VISIBLE)
    source = image.topics.get(topic.view_of)
    return _view(topic, hides_delayed=source is not None and source.is_delayed)


def _view(view: TopicImage, *, hides_delayed: bool) -> Projection:
    text = view.configs[VIEW_FILTER]
    if hides_delayed:
        identity = joint_identity(VISIBLE.identity, filter_identity(text))
        return Projection(view.id, identity, partial(_visible_matches, text), hides_expired=True)
    return Projection(view.id, filter_identity(text), partial(Filter, text), hides_expired=True)


def _visible_matches(text: str, partition: int) -> Selector:
    return JointSelector(VISIBLE, Filter(text, partition))
