"""Rules of views: topics that show the matching records of another topic. Pure.

A view is a topic with the configs `view.of` and `view.filter` and without partitions of its own. Its source
exists as long as the view does: creating a view also writes the node of the source, so that a concurrent
deletion of the source fails and is decided again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from penstock.cluster import znodes
from penstock.cluster.coordination import Set
from penstock.cluster.image import VIEW_OF, VIEW_SHARED, ClusterImage, TopicImage
from penstock.cluster.loading import encode_topic
from penstock.cluster.topic_writes import Writes
from penstock.errors import BrokerError, ConfigError, ErrorCode
from penstock.filters.expression import check_expression

VIEW_FILTER = "view.filter"
MAX_SHARED_VIEWS = 100
"""Maximum number of shared views of a topic, because any client can create them."""
_OWN_CONFIGS = (VIEW_OF, VIEW_FILTER, VIEW_SHARED)


def refuse_view(image: ClusterImage, name: str) -> None:
    """Raise BrokerError if the topic is a view. Used for requests that change records or partitions."""
    source = image.views.get(name)
    if source is not None:
        raise BrokerError(
            ErrorCode.invalid_topic_exception, f"{name} is a view of {source}: change that topic instead"
        )


def is_view(configs: Mapping[str, str | None]) -> bool:
    return VIEW_OF in configs or VIEW_FILTER in configs


def check_view(image: ClusterImage, configs: Mapping[str, str], internal: Collection[str]) -> None:
    """Check the configs of a new view. The BrokerError names the invalid config and, in a filter, the position."""
    source, text = configs.get(VIEW_OF), configs.get(VIEW_FILTER)
    if source is None or text is None:
        raise _invalid(f"a view needs both {VIEW_OF} and {VIEW_FILTER}")
    others = sorted(name for name in configs if name not in _OWN_CONFIGS)
    if others:
        raise _invalid(f"a view has the settings of its source; remove {', '.join(others)}")
    if source in internal:
        raise _invalid(f"{VIEW_OF}={source}: internal topics have no views")
    if source in image.views:
        raise _invalid(
            f"{VIEW_OF}={source}: this topic is a view itself; give its source {image.views[source]}"
        )
    if source not in image.topics:
        raise _invalid(f"{VIEW_OF}={source[:80]!r}: there is no such topic")
    if configs.get(VIEW_SHARED, "").lower() == "true":
        _check_count(image, source, text)
    try:
        check_expression(text)
    except ConfigError as error:
        raise _invalid(f"{VIEW_FILTER}: {error}") from None


def _check_count(image: ClusterImage, source: str, text: str) -> None:
    others = [view for view in image.views_of(source) if image.topics[view].is_shared_view]
    known = any(image.topics[view].configs.get(VIEW_FILTER) == text for view in others)
    if len(others) >= MAX_SHARED_VIEWS and not known:
        raise BrokerError(
            ErrorCode.policy_violation,
            f"{source} has {len(others)} shared views, the maximum; use one of their filters, or create a view",
        )


def check_altered(
    image: ClusterImage, topic: TopicImage, altered: Mapping[str, str], internal: Collection[str]
) -> None:
    """Check changed configs of a topic: a view keeps its source, and a topic that is not a view does not
    become one.
    """
    if topic.view_of is None and not is_view(altered):
        return
    if altered.get(VIEW_OF) != topic.view_of:
        raise _invalid(f"{VIEW_OF} cannot be changed; create another view")
    check_view(image, altered, internal)


def check_has_no_views(image: ClusterImage, topic: TopicImage, deleted: Collection[str]) -> TopicImage:
    """Return the topic. Raises BrokerError if it has views that the same request does not delete."""
    views = [view for view in image.views_of(topic.name) if view not in deleted]
    if views:
        raise BrokerError(
            ErrorCode.policy_violation, f"{topic.name} has views: delete {', '.join(views)} first"
        )
    return topic


def sources_of(image: ClusterImage, created: Iterable[TopicImage]) -> list[TopicImage]:
    """Sources of the created views, each with the version that it has after `touch`."""
    names = {topic.view_of for topic in created if topic.view_of is not None}
    topics = (image.topics[name] for name in sorted(names))
    return [replace(topic, version=topic.version + 1) for topic in topics]


def touch(sources: Iterable[TopicImage]) -> Writes:
    """Writes of the source topics of created views, which conflict with a concurrent deletion of these topics."""
    return Writes(
        tuple(Set(znodes.topic_path(topic.name), encode_topic(topic), topic.version - 1) for topic in sources)
    )


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_config, message)
