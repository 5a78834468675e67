"""Hypothesis strategy for records of the offsets topic."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.groups.records import (
    ClassicGroupKey,
    ClassicGroupValue,
    ClassicMember,
    ClassicProtocols,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    GroupRecord,
    Key,
    MemberState,
    OffsetKey,
    OffsetValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
    Value,
)

names = st.text(max_size=12)
maybe_names = st.none() | names
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
blobs = st.binary(max_size=30)
partitions = st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=5)
assignments = st.dictionaries(st.uuids(), partitions, max_size=3)

classic_members = st.builds(
    ClassicMember, names, maybe_names, names, names, ints, ints, subscription=blobs, assignment=blobs
)
classic_protocols = st.builds(
    ClassicProtocols, ints, st.lists(st.tuples(names, blobs), max_size=3).map(tuple)
)


def _records(key: st.SearchStrategy[Key], value: st.SearchStrategy[Value]) -> st.SearchStrategy[GroupRecord]:
    return st.builds(GroupRecord, key, st.none() | value)


def group_records() -> st.SearchStrategy[GroupRecord]:
    return st.one_of(
        _records(
            st.builds(OffsetKey, names, names, ints),
            st.builds(OffsetValue, longs, ints, names, st.uuids(), longs),
        ),
        _records(
            st.builds(ClassicGroupKey, names),
            st.builds(
                ClassicGroupValue,
                names,
                ints,
                maybe_names,
                maybe_names,
                longs,
                st.lists(classic_members, max_size=3).map(tuple),
            ),
        ),
        _records(st.builds(ConsumerGroupKey, names), st.builds(ConsumerGroupValue, ints, longs)),
        _records(
            st.builds(ConsumerMemberKey, names, names),
            st.builds(
                ConsumerMemberValue,
                maybe_names,
                maybe_names,
                names,
                names,
                st.frozensets(names, max_size=3),
                maybe_names,
                ints,
                maybe_names,
                st.none() | classic_protocols,
            ),
        ),
        _records(st.builds(TargetEpochKey, names), st.builds(TargetEpochValue, ints)),
        _records(st.builds(TargetMemberKey, names, names), st.builds(TargetMemberValue, assignments)),
        _records(
            st.builds(CurrentAssignmentKey, names, names),
            st.builds(
                CurrentAssignmentValue, ints, ints, st.sampled_from(MemberState), assignments, assignments
            ),
        ),
    )
