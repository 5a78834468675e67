"""Questions of the Inspect API, one module each."""

from __future__ import annotations

from penstock.server.inspection.account_questions import ACCOUNT_QUESTIONS
from penstock.server.inspection.acknowledged_retention import RETENTION_REASONS, SETTLED_POSITIONS
from penstock.server.inspection.activity import ACTIVITY
from penstock.server.inspection.decisions import AUTHORIZE, CHARGE_USER
from penstock.server.inspection.delayed_messages import DELAYED_MESSAGE, DELAYED_MESSAGES
from penstock.server.inspection.find_batch import FIND_BATCH
from penstock.server.inspection.log_lines import LOG_LINES
from penstock.server.inspection.open_connections import CLOSE_CONNECTION, CONNECTIONS
from penstock.server.inspection.own_configs import GROUP_CONFIGS, TOPIC_CONFIGS
from penstock.server.inspection.partition_counts import (
    CONSUMER_FOUND,
    DRAIN_PROGRESS,
    DRAIN_REPORT,
    PARTITION_PHASES,
    SET_PARTITION_COUNT,
)
from penstock.server.inspection.partition_times import PARTITION_TIMES
from penstock.server.inspection.refused_requests import REFUSALS
from penstock.server.inspection.share_topics import SHARE_TOPICS
from penstock.server.inspection.unwritten_letters import UNWRITTEN_LETTERS
from penstock.server.inspection.used_views import USED_VIEWS
from penstock.server.inspection.user_questions import USER_QUESTIONS

QUESTIONS = {
    each.name: each
    for each in (
        ACTIVITY,
        AUTHORIZE,
        CHARGE_USER,
        CLOSE_CONNECTION,
        CONNECTIONS,
        CONSUMER_FOUND,
        DELAYED_MESSAGE,
        DELAYED_MESSAGES,
        DRAIN_PROGRESS,
        DRAIN_REPORT,
        FIND_BATCH,
        GROUP_CONFIGS,
        LOG_LINES,
        PARTITION_PHASES,
        PARTITION_TIMES,
        REFUSALS,
        RETENTION_REASONS,
        SETTLED_POSITIONS,
        SHARE_TOPICS,
        TOPIC_CONFIGS,
        UNWRITTEN_LETTERS,
        USED_VIEWS,
        SET_PARTITION_COUNT,
        *ACCOUNT_QUESTIONS,
        *USER_QUESTIONS,
    )
}
