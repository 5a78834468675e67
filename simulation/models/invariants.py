"""The names of all invariants: a violation has one, and a planted bug names the ones that must catch it.

I1 to I15 and the names with T are codes of `docs/faults.md`; the others are words. A name is never given
to another check.
"""

from __future__ import annotations

from enum import StrEnum


class Invariant(StrEnum):
    ACKNOWLEDGED_RECORD_STAYS = "I1"
    STORED_ONCE = "I2"
    ONE_VALUE_PER_OFFSET = "I3"
    PRODUCER_ORDER = "I4"
    READER_NEITHER_SKIPS_NOR_GOES_BACK = "I5"
    ONLY_COMMITTED_IS_READ_AS_COMMITTED = "I6"
    TRANSACTION_IS_ATOMIC = "I7"
    NOTHING_ABOVE_THE_HIGH_WATERMARK = "I8"
    REPLICAS_ARE_EQUAL = "I9"
    ONE_LEADER_PER_EPOCH = "I10"
    COMMITTED_IS_ON_ALL_IN_SYNC = "I11"
    COMMITTED_OFFSETS_STAY = "I12"
    EVERYTHING_HEALS = "I13"
    RECORD_IS_WHERE_IT_WAS_SENT = "I14"
    NO_GARBAGE = "I15"
    """Bytes, keys and timestamps are those that were sent."""
    MIN_IN_SYNC = "T15"
    """acks=all is acknowledged with at least `min.insync.replicas` in sync, and nothing is committed under
    min ISR.
    """
    KNOWN_ERRORS_ONLY = "T27"
    """No response has UNKNOWN_SERVER_ERROR, or an error that its client cannot handle."""
    REPLACED_PRODUCER_IS_FENCED = "T29"
    LATE_COMMIT_IS_TOLD_SO = "T33"
    PRODUCER_EPOCH_GROWS = "T35"
    OWN_WRITE = "own write"
    """A record that is acknowledged with acks=1 on a single replica can be read."""
    SEQUENCE = "sequence"
    """A producer that keeps the order gets no error about a sequence."""
    LIVENESS = "liveness"
    """A broker starts, stops and responds in time."""
    LOG_START = "log start"
    TIME_INDEX = "time index"
    CLEAN_STOP = "clean stop"
    """The mark of a clean stop is removed while a broker runs."""
    ONE_OWNER = "one owner"
    """A partition has one owner in a group at a time."""
    GENERATION = "generation"
    """Generations and member epochs of a group do not decrease."""
    FENCING = "fencing"
    """No commit of an earlier generation is accepted."""
    RESTART = "restart"
    """A group does not change over a restart, and its members do not notice the restart."""
    NO_TRACEBACK = "traceback"
    """A broker logs no unexpected error. A planted bug that shows only in this way is planted wrongly."""
