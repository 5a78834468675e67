"""Rules of views, on an image."""

from __future__ import annotations

from random import Random

import pytest
from test_topics import image_of

from penstock.cluster import views
from penstock.cluster.coordination import Set
from penstock.cluster.image import ClusterImage, TopicImage
from penstock.cluster.internal_topics import INTERNAL_TOPICS
from penstock.cluster.loading import encode_topic
from penstock.cluster.topics import CreatableTopic, NewPartitions, TopicPlanner
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode

FILTER = 'headers.region == "eu"'
CONFIGS = {"view.of": "orders", "view.filter": FILTER}


@pytest.fixture
def image() -> ClusterImage:
    planned = plan(image_of(1), "orders")
    return image_of(1).with_topics([planned])


def plan(
    image: ClusterImage, name: str, configs: dict[str, str] | None = None, partitions: int = 3
) -> TopicImage:
    planner = TopicPlanner(image, BrokerConfig(), Random(1), INTERNAL_TOPICS)
    return planner.plan_topic(CreatableTopic(name, partitions, 1, configs=configs or {}))


def refusal(image: ClusterImage, name: str, configs: dict[str, str]) -> str:
    with pytest.raises(BrokerError) as caught:
        plan(image, name, configs)
    assert caught.value.code is ErrorCode.invalid_config
    return str(caught.value)


def test_a_view_has_the_partitions_of_its_source(image: ClusterImage) -> None:
    view = plan(image, "eu", CONFIGS, partitions=7)
    after = image.with_topics([view])
    assert view.partitions == ()
    assert after.shown(view).partitions == image.topics["orders"].partitions
    assert after.views == {"eu": "orders"}
    assert after.without_topics(["eu"]).views == {}
    assert after.replica_count(after.topics["orders"].partitions[0].leader) == 3


def test_wrong_views_are_refused(image: ClusterImage) -> None:
    with_view = image.with_topics([plan(image, "eu", CONFIGS)])
    assert "give its source orders" in refusal(with_view, "v", {**CONFIGS, "view.of": "eu"})
    assert "internal" in refusal(image, "v", {**CONFIGS, "view.of": "__consumer_offsets"})
    assert "no such topic" in refusal(image, "v", {**CONFIGS, "view.of": "nothing"})
    assert "both" in refusal(image, "v", {"view.of": "orders"})
    assert "both" in refusal(image, "v", {"view.filter": FILTER})
    assert "remove retention.ms" in refusal(image, "v", {**CONFIGS, "retention.ms": "5"})
    assert "column 1" in refusal(image, "v", {**CONFIGS, "view.filter": "colour == 1"})


def test_a_view_takes_no_partitions(image: ClusterImage) -> None:
    after = image.with_topics([plan(image, "eu", CONFIGS)])
    planner = TopicPlanner(after, BrokerConfig(), Random(1))
    with pytest.raises(BrokerError, match="view of orders"):
        planner.plan_partitions(NewPartitions("eu", 9))
    with pytest.raises(BrokerError, match="view of orders"):
        views.refuse_view(after, "eu")
    views.refuse_view(after, "orders")


def test_only_the_filter_can_be_changed(image: ClusterImage) -> None:
    view = plan(image, "eu", CONFIGS)
    after = image.with_topics([view, plan(image, "other")])
    views.check_altered(after, view, {**CONFIGS, "view.filter": "size > 5"}, ())
    views.check_altered(after, after.topics["orders"], {"retention.ms": "5"}, ())
    for altered in (
        {**CONFIGS, "view.of": "other"},
        {"view.filter": FILTER},
        {},
        {**CONFIGS, "retention.ms": "1"},
    ):
        with pytest.raises(BrokerError):
            views.check_altered(after, view, altered, ())
    with pytest.raises(BrokerError):
        views.check_altered(after, after.topics["orders"], CONFIGS, ())


def test_a_topic_with_views_is_not_deleted_before_them(image: ClusterImage) -> None:
    after = image.with_topics([plan(image, "eu", CONFIGS), plan(image, "us", CONFIGS)])
    with pytest.raises(BrokerError, match="delete eu, us first"):
        views.check_has_no_views(after, after.topics["orders"], ["orders"])
    assert views.check_has_no_views(after, after.topics["orders"], ["orders", "eu", "us"]).name == "orders"


def test_creating_views_writes_each_source_once(image: ClusterImage) -> None:
    created = [plan(image, "eu", CONFIGS), plan(image, "us", CONFIGS), plan(image, "plain")]
    sources = views.sources_of(image, created)
    [write] = views.touch(sources).visible
    assert isinstance(write, Set)
    assert (write.path.rpartition("/")[2], write.version) == ("orders", image.topics["orders"].version)
    assert write.data == encode_topic(image.topics["orders"])
