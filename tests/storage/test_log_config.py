from __future__ import annotations

import pytest

from penstock.config import BrokerConfig, TopicConfig
from penstock.storage.log_config import LogConfig


@pytest.mark.parametrize(("policy", "segment_ms"), [("compact", 50), ("compact,delete", 50), ("delete", 900)])
def test_compacted_log_rolls_segments_by_max_compaction_lag(policy: str, segment_ms: int) -> None:
    broker = BrokerConfig()
    settings = {"cleanup.policy": policy, "segment.ms": "900", "max.compaction.lag.ms": "50"}
    assert LogConfig.resolve(TopicConfig(broker, settings), broker).segment_ms == segment_ms
