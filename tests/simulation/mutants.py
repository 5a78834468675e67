"""All planted bugs, and a program that hunts them: `python tests/simulation/mutants.py [name ...]`.

A bug is one wrong line of the broker, put in at run time. The simulation has to catch it within a bounded
number of seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import broker_mutants  # noqa: F401 - a file of bugs adds them to BUGS
import client_mutants  # noqa: F401
import cluster_mutants  # noqa: F401
import damage_mutants  # noqa: F401
import delay_mutants  # noqa: F401
import group_mutants  # noqa: F401
import keyed_mutants  # noqa: F401
import member_mutants  # noqa: F401
import order_mutants  # noqa: F401
import plain_path_mutants  # noqa: F401
import schedule_mutants  # noqa: F401
import share_mutants  # noqa: F401
import shrink_mutants  # noqa: F401
import store_mutants  # noqa: F401
import transaction_mutants  # noqa: F401
import user_mutants  # noqa: F401
import view_mutants  # noqa: F401
from planting import BUGS, hunt

from simulation.models.history import InvariantViolated

NOTICED: Mapping[str, int] = {
    "a_first_attempt_without_an_answer_uses_up_its_sequence": 75,
    "a_new_topic_inherits_the_producers_of_the_old_one": 69,
    "a_refused_acknowledgement_has_effects": 6,
    "aborted_records_are_delivered": 33,
    "ack_before_fsync": 4,
    "acquired_records_are_stored_as_accepted": 35,
    "acquired_records_count_as_accepted_after_a_crash": 35,
    "alone_without_fsync": 206,
    "answered_before_it_is_recorded": 350,
    "assignment_is_not_kept": 53,
    "batches_behind_a_refused_one_are_judged_alone": 8,
    "batches_that_overtook_one_at_the_former_leader_are_judged_alone": 338,
    "boot_id_alone_proves_the_disk": 228,
    "clean_stop_of_a_copy_counts": 108,
    "closed_segments_are_not_checked": 20,
    "commits_of_an_old_generation_are_taken": 23,
    "commits_skip_the_check_of_the_member": 9,
    "control_records_swallow_their_neighbours": 33,
    "coordinators_ignore_min_insync_replicas": 41,
    "copies_are_new_messages": 191,
    "cut_too_little": 9,
    "deleted_offsets_come_back": 4,
    "due_times_follow_the_monotonic_clock": 192,
    "emptied_disk_stays_in_sync": 309,
    "failed_fsync_is_tried_again": 16,
    "firings_are_repeated_with_a_new_sequence": 24,
    "firings_in_flight_are_dropped_by_a_new_owner": 22,
    "flushed_up_to_where_the_log_ends_now": 6,
    "followers_serve_hidden_records": 50,
    "generation_begins_anew_after_a_restart": 20,
    "histories_are_not_compared": 2,
    "idempotency_keys_are_not_looked_up": 14,
    "incomplete_index_is_trusted": 23,
    "intents_and_producers_are_kept_in_memory": 22,
    "late_end_is_taken": 20,
    "lock_timers_survive_the_acknowledgement": 35,
    "lookups_see_what_is_not_committed": 20,
    "markers_are_sent_twice": 9,
    "members_are_forgotten_over_a_failover": 6,
    "names_are_not_synced": 9,
    "next_times_are_computed_from_the_clock": 17,
    "no_epoch_fence": 10,
    "no_fsync_before_a_set_of_one": 6,
    "nothing_is_cut": 7,
    "open_transactions_are_delivered": 47,
    "originals_are_sought_among_the_committed": 30,
    "plain_batches_behind_a_refused_one_are_judged_alone": 51,
    "plain_ends_skip_the_check_of_the_producer": 3,
    "prepared_ones_are_not_resumed": 35,
    "records_are_committed_under_min_isr": 21,
    "records_are_skipped_while_the_priority_index_lags": 65,
    "recovered_tail_is_not_written_again": 40,
    "recovery_point_before_the_data": 21,
    "replica_lag_is_measured_by_the_wall_clock": 121,
    "replicas_counted_by_brokers_instead_of_machines": 31,
    "requested_firings_are_kept_in_memory": 105,
    "retention_drops_pending_messages": 191,
    "schedules_fire_half_a_second_early": 37,
    "sealed_before_records_are_committed": 83,
    "sealed_partitions_take_records": 25,
    "shrink_counts_before_it_is_recorded": 39,
    "snapshots_lack_the_last_update": 35,
    "sole_in_sync_replica_leads_after_it_lost_data": 270,
    "the_end_of_a_session_releases_all_records": 6,
    "the_start_offset_passes_a_record": 6,
    "timeouts_are_forgotten": 40,
    "too_few_in_sync_are_enough": 68,
    "unclean_restart_stays_in_sync": 157,
}
"""The seed that caught a bug last, where it is none of the first ones; it is tried first."""
SEEDS = range(1, 301)
"""The seeds that a bug is hunted with."""


def catch(name: str) -> tuple[int, InvariantViolated] | None:
    """Hunt a bug by its name, beginning with the seed that caught it last; see `hunt`."""
    return hunt(BUGS[name], [NOTICED[name], *SEEDS] if name in NOTICED else SEEDS)


def main() -> None:
    failed = False
    for name in sys.argv[1:] or BUGS:
        try:
            caught = catch(name)
        except Exception as error:  # noqa: BLE001 - whatever it is, the bug is not planted as it should be
            print(f"{name}: PLANTED WRONGLY: {error!r}", flush=True)
            failed = True
            continue
        failed = failed or caught is None
        found = "ESCAPED" if caught is None else f"seed {caught[0]}: {str(caught[1]).splitlines()[0]}"
        print(f"{name}: {found}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
