"""Execution of a decision of the streaming sink: commits its transactions, or reports why this is impossible.

Between the decision and the commit the driver may die, and an operator may abort transactions of the query. If no row
of the batch can become visible, the batch is written again; otherwise an error names the lost transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.errors import PenstockError
from penstock.internal_client.transactions import ProducerIdentity
from penstock.pipeline.fetching import read_range
from penstock.pipeline.offsets import run
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.read_settings import ReadSettings
from penstock.pipeline.sink.decision_log import SinkDecision
from penstock.pipeline.sink.held_transactions import TransactionOutcome, abort, commit
from penstock.pipeline.sink.options import ACCEPT_LOSS
from penstock.pipeline.sink.producer import RecordPosition


class RowsLost(PenstockError):
    """Some transactions of a decided batch were committed, and others were aborted or have an unknown outcome."""


class BatchUndone(PenstockError):
    """A transaction of the batch was aborted and no row of the batch is visible, so the batch has to be written
    again.
    """


def carry_out(bootstrap: str, decision: SinkDecision, left_open: Collection[ProducerIdentity]) -> None:
    """Commit all transactions of a decision. `left_open` are the transactions of the query that were open when the
    driver listed them.

    Raises BatchUndone if a transaction was aborted and none was committed; then the other transactions are aborted too,
    and the caller has to revert the decision. Raises RowsLost if a transaction was committed and another one was
    aborted or has an unknown outcome.
    """
    ended = [each for each in decision.winners if each not in left_open]
    still_open = [each for each in decision.winners if each in left_open]
    outcomes = _commit_or_determine(bootstrap, decision, ended)
    if all(each is TransactionOutcome.COMMITTED for each in outcomes.values()):
        outcomes |= _commit_or_determine(bootstrap, decision, still_open)
    elif all(each is TransactionOutcome.ABORTED for each in outcomes.values()):
        outcomes |= run(bootstrap, lambda routes: abort(routes, still_open))
    else:
        outcomes |= _commit_or_determine(bootstrap, decision, still_open)
    if all(each is TransactionOutcome.COMMITTED for each in outcomes.values()):
        return
    if all(each is TransactionOutcome.ABORTED for each in outcomes.values()):
        names = _names(list(outcomes))
        raise BatchUndone(
            f"the transactions {names} of batch {decision.batch} were aborted before they were committed. No row "
            "of the batch can be read, and none is lost: start the query again, it writes the batch again"
        )
    raise RowsLost(_loss(decision, outcomes))


def _commit_or_determine(
    bootstrap: str, decision: SinkDecision, winners: Sequence[ProducerIdentity]
) -> dict[ProducerIdentity, TransactionOutcome]:
    """Commit transactions, or find the outcome of transactions that have ended. If the coordinator does not know the
    outcome, a readable record proves that the transaction was committed.
    """
    outcomes = run(bootstrap, lambda routes: commit(routes, winners))
    for winner, outcome in outcomes.items():
        position = decision.position_of(winner)
        if (
            outcome is TransactionOutcome.UNKNOWN
            and position is not None
            and _is_readable(bootstrap, position)
        ):
            outcomes[winner] = TransactionOutcome.COMMITTED
    return outcomes


def _is_readable(bootstrap: str, position: RecordPosition) -> bool:
    """Return True if the record is visible with `read_committed`. False does not prove an abort: the record may have
    been deleted.
    """
    wanted = OffsetRange(
        position.topic, position.topic_id, position.partition, position.offset, position.offset + 1
    )
    try:
        return any(rows.num_rows for rows in read_range(ReadSettings(bootstrap), wanted, ("offset",)))
    except PenstockError:
        return False


def _loss(decision: SinkDecision, outcomes: dict[ProducerIdentity, TransactionOutcome]) -> str:
    by_outcome: dict[TransactionOutcome, list[ProducerIdentity]] = {}
    for winner, outcome in outcomes.items():
        by_outcome.setdefault(outcome, []).append(winner)
    said = []
    if aborted := by_outcome.get(TransactionOutcome.ABORTED):
        said.append(f"{_names(aborted)} were aborted and their rows are lost")
    if unknown := by_outcome.get(TransactionOutcome.UNKNOWN):
        said.append(f"the outcome of {_names(unknown)} is unknown, and none of their records is readable")
    committed = len(by_outcome.get(TransactionOutcome.COMMITTED, ()))
    return (
        f"batch {decision.batch} is not complete: of its {len(outcomes)} transactions {committed} were committed; "
        f"{'; '.join(said)}. Writing the batch again would repeat the rows of the others. Write the missing rows "
        f"by other means, then start the query with the option {ACCEPT_LOSS}={decision.batch}"
    )


def _names(transactions: Sequence[ProducerIdentity]) -> str:
    shown = ", ".join(str(each.transactional_id) for each in transactions[:5])
    return shown if len(transactions) <= 5 else f"{shown} and {len(transactions) - 5} more"
