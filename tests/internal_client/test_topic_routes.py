from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from penstock.internal_client.topic_routes import TopicPages

ONE, TWO = UUID(int=1), UUID(int=2)


def topic(name: str, topic_id: UUID, indexes: range, error_code: int = 0) -> Any:
    partitions = [
        SimpleNamespace(
            partition_index=index, leader_id=1, leader_epoch=5, replica_nodes=[1], isr_nodes=[1], error_code=0
        )
        for index in indexes
    ]
    return SimpleNamespace(
        name=name, topic_id=topic_id, is_internal=False, partitions=partitions, error_code=error_code
    )


def page(*topics: Any, cursor: tuple[str, int] | None = None) -> Any:
    next_cursor = None if cursor is None else SimpleNamespace(topic_name=cursor[0], partition_index=cursor[1])
    return SimpleNamespace(topics=topics, next_cursor=next_cursor)


def test_topic_on_several_pages_has_all_its_partitions() -> None:
    pages = TopicPages()
    pages.add(page(topic("a", ONE, range(3)), cursor=("a", 3)))
    assert pages.next_request()["cursor"] == {"topic_name": "a", "partition_index": 3}
    pages.add(page(topic("a", ONE, range(3, 5)), topic("b", TWO, range(1))))
    assert pages.is_complete
    assert {name: len(each.partitions) for name, each in pages.topics.items()} == {"a": 5, "b": 1}


def test_topic_created_again_between_two_pages_is_left_out() -> None:
    pages = TopicPages()
    pages.add(page(topic("a", ONE, range(3)), cursor=("a", 3)))
    pages.add(page(topic("a", TWO, range(3, 5))))
    assert pages.topics == {}


def test_topics_with_an_error_are_left_out() -> None:
    pages = TopicPages()
    pages.add(page(topic("a", ONE, range(1), error_code=29)))
    assert pages.is_complete
    assert pages.topics == {}
