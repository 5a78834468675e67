"""Topics to create, drawn from the seed: on a broker alone with many settings and names that are used again, in a
cluster with several replicas and the settings of its traits.
"""

from __future__ import annotations

from random import Random

from simulation.faults.cluster_traits import LOST_LEADER, topic_settings
from simulation.models.topic_model import TopicModel
from simulation.scenarios.stage import Stage

TOPIC_NAMES = ("orders", "payments", "audit.log", "clicks_2")
DURABILITIES = ("auto", "auto", "fsync", "os")
_MOST_REPLICATED_TOPICS = 4
_QUIET_SECONDS = 15.0
"""Seconds before the name of a deleted topic is used again: until then a late request for the old topic may
arrive.
"""


def draft_topic(stage: Stage, random: Random, kinds: Random) -> TopicModel | None:
    """Draw a topic, if there are not too many; `kinds` is the stream of settings that traits add."""
    return _draft_sole(stage, random) if stage.is_alone else _draft_replicated(stage, random, kinds)


def _draft_sole(stage: Stage, random: Random) -> TopicModel | None:
    """Draw a topic with a free name; the name of a deleted topic may be free again."""
    now = stage.world.loop.time()
    free = [name for name in TOPIC_NAMES if _is_free(stage.topics.get(name), now)]
    if not free:
        return None
    name = random.choice(free)
    earlier = stage.topics.get(name)
    incarnation = earlier.incarnation + 1 if earlier else 1
    configs = _sole_configs(random)
    return TopicModel(name, incarnation, random.randint(1, 3), configs)


def _is_free(topic: TopicModel | None, now: float) -> bool:
    if topic is None:
        return True
    return topic.deleted_at is not None and now > topic.deleted_at + _QUIET_SECONDS


def _sole_configs(random: Random) -> dict[str, str]:
    configs = {
        "durability": random.choice(DURABILITIES),
        "segment.bytes": str(random.choice((1_024, 3_000, 20_000, 1_000_000))),
        "index.interval.bytes": str(random.choice((1, 200, 4_096))),
    }
    if random.random() < 0.2:
        configs["message.timestamp.type"] = "LogAppendTime"
    if random.random() < 0.25:
        configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    elif random.random() < 0.25:
        configs["retention.bytes"] = str(random.choice((2_000, 20_000)))
    if random.random() < 0.2:
        configs["segment.ms"] = str(random.choice((200, 2_000)))
    return configs


def _draft_replicated(stage: Stage, random: Random, kinds: Random) -> TopicModel | None:
    """Draw a topic with a new name, so that no late request finds another topic under it."""
    if len(stage.living_topics()) >= _MOST_REPLICATED_TOPICS:
        return None
    name = f"topic-{len(stage.topics)}"
    replicas = random.choice((3, 3, 3, 2, min(4, len(stage.members))))
    if LOST_LEADER in stage.traits:
        replicas = 3  # a partition without eligible leaders keeps its last replica from being lost
    configs = {
        "segment.bytes": str(random.choice((2_000, 20_000, 1_000_000))),
        "min.insync.replicas": str(random.choice((1, 2)) if replicas > 2 else 1),
    }
    if LOST_LEADER in stage.traits:
        configs["min.insync.replicas"] = "2"
    configs |= topic_settings(kinds, stage.traits)
    return TopicModel(name, 1, random.randint(1, 2), configs, replicas)
