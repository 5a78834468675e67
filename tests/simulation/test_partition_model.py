from __future__ import annotations

import pytest

from simulation.models.history import Audit, InvariantViolated, ReadRange, ReadRecord, Write
from simulation.models.partition_model import PartitionModel


@pytest.fixture
def model() -> PartitionModel:
    return PartitionModel("orders-0")


def send(model: PartitionModel, *values: str, lane: str = "p", order: int = 0, acks: int = -1) -> Write:
    encoded = tuple(value.encode() for value in values)
    times = tuple(range(100, 100 + len(values)))
    write = Write(encoded, tuple(map(key_of, encoded)), times, lane, order, acks, 0)
    model.on_send(write)
    return write


def record(offset: int, value: str, timestamp: int = 100) -> ReadRecord:
    return ReadRecord(offset, timestamp, key_of(value.encode()), value.encode())


def key_of(value: bytes) -> bytes:
    return value[:1]


def read(first: int, *values: str) -> ReadRange:
    found = tuple(record(first + index, value) for index, value in enumerate(values))
    return ReadRange(first, first + len(values), found)


def audit(log_start: int, *values: str) -> Audit:
    found = read(log_start, *values)
    return Audit(found.start, found.end, found.records)


def violates(invariant: str) -> pytest.RaisesExc[InvariantViolated]:
    return pytest.raises(InvariantViolated, match=f"^{invariant}: ")


def test_durable_write_must_survive_a_power_loss(model: PartitionModel) -> None:
    model.on_ack(send(model, "a"), 0, durable=True)
    model.on_audit(audit(0, "a"), cache_lost=True, durable=True)
    with violates("I1"):
        model.on_audit(audit(0), cache_lost=True, durable=True)


def test_records_before_a_durable_write_must_survive_too(model: PartitionModel) -> None:
    send(model, "a", acks=0)
    model.on_ack(send(model, "b", order=1), 1, durable=True)
    with violates("I1"):
        model.on_audit(audit(0, "a"), cache_lost=True, durable=True)


def test_write_that_is_not_durable_may_be_lost_with_the_cache_only(model: PartitionModel) -> None:
    model.on_ack(send(model, "a", acks=1), 0, durable=False)
    with violates("I1"):
        model.on_audit(audit(0), cache_lost=False, durable=False)
    model.on_audit(audit(0), cache_lost=True, durable=False)


def test_read_record_may_not_be_taken_back(model: PartitionModel) -> None:
    send(model, "a")
    model.on_read(read(0, "a"), durable=True)
    with violates("I1"):
        model.on_audit(audit(0), cache_lost=True, durable=True)


def test_allowed_loss_frees_its_offsets(model: PartitionModel) -> None:
    write = send(model, "a", acks=1)
    model.on_ack(write, 0, durable=False)
    model.on_audit(audit(0), cache_lost=True, durable=False)
    model.on_ack(send(model, "b", order=1), 0, durable=True)
    model.on_read(read(0, "b"), durable=True)


def test_unknown_write_may_or_may_not_be_there(model: PartitionModel) -> None:
    model.on_unknown(send(model, "a"))
    model.on_audit(audit(0), cache_lost=False, durable=True)
    model.on_read(read(0, "a"), durable=True)


def test_refused_write_is_never_found(model: PartitionModel) -> None:
    model.on_refusal(send(model, "a"))
    with violates("I1"):
        model.on_read(read(0, "a"), durable=True)


def test_write_that_was_read_cannot_have_been_refused(model: PartitionModel) -> None:
    write = send(model, "a")
    model.on_read(read(0, "a"), durable=True)
    with violates("I1"):
        model.on_refusal(write)


def test_record_is_stored_once(model: PartitionModel) -> None:
    model.on_ack(send(model, "a"), 0, durable=True)
    with violates("I2"):
        model.on_read(read(1, "a"), durable=True)


def test_offset_has_one_value(model: PartitionModel) -> None:
    model.on_ack(send(model, "a"), 0, durable=True)
    send(model, "b", order=1)
    with violates("I3"):
        model.on_read(read(0, "b"), durable=True)


def test_records_of_a_lane_keep_their_order(model: PartitionModel) -> None:
    send(model, "a", order=0)
    model.on_ack(send(model, "b", order=1), 0, durable=True)
    with violates("I4"):
        model.on_read(read(1, "a"), durable=True)


def test_record_order_of_one_lane_does_not_bind_another(model: PartitionModel) -> None:
    send(model, "a", lane="one", order=0)
    model.on_ack(send(model, "b", lane="other", order=1), 0, durable=True)
    model.on_read(read(1, "a"), durable=True)


def test_log_has_no_holes(model: PartitionModel) -> None:
    send(model, "a", "b", "c")
    with violates("I5"):
        model.on_audit(Audit(0, 3, (record(0, "a"), record(2, "c", 102))), cache_lost=False, durable=True)
    with violates("I5"):
        model.on_audit(Audit(0, 3, (record(0, "a"),)), cache_lost=False, durable=True)


def test_compaction_may_remove_a_record_that_has_a_newer_one_of_its_key() -> None:
    model = PartitionModel("orders-0", compacted=True)
    for offset, value in enumerate(("a1", "b1", "a2")):
        model.on_ack(send(model, value, order=offset), offset, durable=True)
    model.on_audit(Audit(0, 3, (record(1, "b1"), record(2, "a2"))), cache_lost=True, durable=True)
    with violates("I1"):
        model.on_audit(Audit(0, 3, (record(2, "a2"),)), cache_lost=True, durable=True)
    with violates("I1"):
        model.on_audit(Audit(0, 3, (record(0, "a1"), record(1, "b1"))), cache_lost=True, durable=True)


def test_record_may_be_outdated_by_a_write_of_unknown_outcome() -> None:
    model = PartitionModel("orders-0", compacted=True)
    model.on_ack(send(model, "a1"), 0, durable=True)
    model.on_unknown(send(model, "a2", order=1))
    model.on_read(ReadRange(0, 2, ()), durable=True)


def test_record_keeps_its_key(model: PartitionModel) -> None:
    send(model, "a")
    with violates("I15"):
        model.on_read(ReadRange(0, 1, (ReadRecord(0, 100, b"other", b"a"),)), durable=True)


def test_high_watermark_does_not_decrease(model: PartitionModel) -> None:
    model.on_ack(send(model, "a"), 0, durable=True)
    view = model.view()
    model.check_ends(view, 0, 1)
    with violates("I8"):
        model.check_ends(view, 0, 0)


def test_response_is_compared_with_what_was_known_at_its_request(model: PartitionModel) -> None:
    view = model.view()
    model.on_ack(send(model, "a"), 0, durable=True)
    model.check_ends(view, 0, 0)


def test_records_belong_where_they_were_sent(model: PartitionModel) -> None:
    with violates("I14"):
        model.on_read(read(0, "from elsewhere"), durable=True)


def test_record_keeps_its_timestamp(model: PartitionModel) -> None:
    send(model, "a")
    with violates("I15"):
        model.on_read(ReadRange(0, 1, (record(0, "a", timestamp=99),)), durable=True)


def test_log_start_moves_forward_and_only_as_far_as_asked(model: PartitionModel) -> None:
    for number in range(5):
        model.on_ack(send(model, f"{number}", order=number), number, durable=True)
    model.log_start_limit = 3
    model.on_truncation(model.view(), 2)
    with violates("log start"):
        model.on_log_start(model.view(), 1)
    with violates("log start"):
        model.on_log_start(model.view(), 4)
    with violates("log start"):
        model.on_audit(audit(0, "0", "1", "2", "3", "4"), cache_lost=True, durable=True)
    model.may_expire = True
    model.on_log_start(model.view(), 4)


def test_unacknowledged_deletion_may_be_undone_by_a_restart(model: PartitionModel) -> None:
    for number in range(3):
        model.on_ack(send(model, f"{number}", order=number), number, durable=True)
    model.log_start_limit = 2
    model.on_log_start(model.view(), 2)
    model.on_audit(audit(0, "0", "1", "2"), cache_lost=False, durable=True)
    model.check_ends(model.view(), 0, 3)


def test_time_lookup_finds_the_first_record_of_that_time(model: PartitionModel) -> None:
    model.on_ack(send(model, "a", "b", "c"), 0, durable=True)  # at 100, 101, 102
    view = model.view()
    model.check_time_lookup(view, 101, record(1, "b", 101))
    model.check_time_lookup(view, 103, None)
    with violates("time index"):
        model.check_time_lookup(view, 101, record(2, "c", 102))
    with violates("time index"):
        model.check_time_lookup(view, 101, record(0, "a", 100))
    with violates("time index"):
        model.check_time_lookup(view, 102, None)
