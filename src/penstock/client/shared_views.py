"""Views of consumers with a filter. Created if missing; consumers of a topic with the same filter share one.

The cluster removes a shared view when it has no readers and no committed offsets.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.bootstrap import CONNECT_TIMEOUT_S
from penstock.client.cluster import REQUEST_TIMEOUT_S, Cluster
from penstock.client.consumer_options import ConsumerOptions
from penstock.client.errors import ClientError, InvalidSetting
from penstock.client.topics import Topics

_EXISTS = "TOPIC_ALREADY_EXISTS"


def topics_to_read(topics: Sequence[str], options: ConsumerOptions) -> Sequence[str]:
    """Return the topics to subscribe to: for a consumer with a filter, the shared views of `topics`."""
    text = options.get("filter")
    if text is None:
        return topics
    if any(topic.startswith("^") for topic in topics):
        raise InvalidSetting("a consumer with a filter names its topics; patterns are not possible")
    cluster = Cluster(
        options.get("bootstrap"),
        options.get("connect_timeout_s", CONNECT_TIMEOUT_S),
        REQUEST_TIMEOUT_S,
        own_connection(options),
    )
    return [_share(Topics(cluster), topic, text.strip()) for topic in topics]


def _share(topics: Topics, topic: str, text: str) -> str:
    """Create the view of a topic. If it exists, restart the time until its removal."""
    from penstock.filters.shared_names import shared_view_name  # consumers without a filter do not import it

    name = shared_view_name(topic, text)
    try:
        topics.create(name, config={"view.of": topic, "view.filter": text, "view.shared": "true"})
    except ClientError as error:
        if error.code != _EXISTS:
            raise
        topics.alter(name, set={"view.filter": text})  # restarts the time until an unused view is removed
    return name


def own_connection(options: ConsumerOptions) -> dict[str, object]:
    """Return the connection settings in the consumer's `config`; an admin client rejects the other settings of
    consumers.
    """
    prefixes = ("security.", "sasl.", "ssl.", "enable.ssl", "socket.", "client.id", "https.")
    return {name: value for name, value in options.get("config", {}).items() if name.startswith(prefixes)}
