"""The twenty-five reports from the field that this project is held to, and where each is tested.

Numbers are fixed. A report is a test that says so in its docstring, or tests that were there for
another reason; this table keeps them together, and fails when one is renamed or lost.
"""

from __future__ import annotations

import pytest

from tests.scenarios.test_every_scenario import written_in

HERE = "scenarios/test_field_reports.py"
END = "scenarios/test_endings.py"
FAULT = "runtime/test_faults.py"
PROCESS = "runtime/test_process.py"
NUISANCE = "runtime/test_nuisances.py"
STUCK = "runtime/test_slow_or_stuck.py"
LIMITS = "runtime/test_memory_limits.py"
DAEMON = "daemon/test_daemon.py"
STOP = "daemon/test_stop.py"
HTTP = "api/test_with_workers.py"
RESIDENCY = "core/test_residency.py"
DEMAND = "runtime/test_on_demand.py"
EXCLUSIVE = "runtime/test_exclusive.py"

TESTS: dict[tuple[int, str], list[tuple[str, str]]] = {
    (1, "health without the ability to generate"): [
        (HERE, "test_health_tells_of_an_engine_that_does_not_answer"),
        ("scenarios/test_operations.py", "test_health_transitions"),
    ],
    (2, "a dead engine behind a front that queues"): [
        (FAULT, "test_a_queue_that_nobody_can_serve_is_answered"),
        (FAULT, "test_a_queued_request_has_an_end"),
        (FAULT, "test_a_hung_engine_is_found"),
    ],
    (3, "a worker taken by the kernel"): [
        (FAULT, "test_a_killed_worker_fails_its_request_and_comes_back"),
        ("host/test_oom.py", "test_a_kill_that_the_log_names_is_proof"),
        ("host/test_oom.py", "test_a_real_kill_in_a_workers_group_is_told"),
        (LIMITS, "test_a_kill_by_the_kernel_is_named_as_such"),
    ],
    (4, "generation after the client has gone"): [
        (HTTP, "test_a_client_that_leaves_frees_its_worker")
    ],
    (5, "generation for a client that left the queue"): [
        (HTTP, "test_a_client_that_leaves_the_queue_never_reaches_a_worker")
    ],
    (6, "a cancellation that hits another"): [
        (HERE, "test_a_queued_client_that_leaves_touches_nobody_else"),
        (HERE, "test_whoever_is_on_a_worker_that_another_request_kills_is_told"),
    ],
    (7, "a client that dies behind a proxy"): [
        (HTTP, "test_many_clients_that_leave_at_any_moment")
    ],
    (8, "stopping without end"): [
        (STOP, "test_workers_that_ignore_everything_are_stopped_under_load"),
        (STOP, "test_a_worker_that_cannot_be_reaped_does_not_hold_the_stop"),
    ],
    (9, "an idle unload that races a request"): [
        (DEMAND, "test_a_request_at_any_moment_of_the_unloading_is_served"),
        (DEMAND, "test_requests_around_the_idle_time_are_all_served"),
        (RESIDENCY, "test_a_pool_is_unloaded_when_nobody_came_for_its_idle_time_and_not_before"),
        (RESIDENCY, "test_a_group_never_has_two_models_whatever_the_facts"),
    ],
    (10, "workers started during the stop"): [
        (STOP, "test_a_worker_that_dies_during_the_stop_is_not_replaced"),
        (STOP, "test_a_worker_that_is_torn_down_when_the_stop_comes_is_not_replaced"),
    ],
    (11, "workers that outlive a killed parent"): [
        (DAEMON, "test_its_workers_die_with_it"),
        (DAEMON, "test_nothing_outlives_a_killed_daemon"),
    ],
    (12, "a stuck worker that outlives an orderly stop"): [
        (STOP, "test_workers_that_ignore_everything_are_stopped_under_load")
    ],
    (13, "grandchildren that survive"): [
        (PROCESS, "test_descendants_end_with_their_worker"),
        (PROCESS, "test_descendants_end_with_a_worker_that_is_killed"),
        (NUISANCE, "test_descendants_that_resist_end_with_a_torn_down_worker"),
    ],
    (14, "an exit hidden by living children"): [(END, "test_grandchild_holds_stdout")],
    (15, "helpers that pile up"): [(HERE, "test_churn_leaves_no_process")],
    (16, "retries that silence the daemon"): [
        (HERE, "test_a_command_that_cannot_work_does_not_silence_the_daemon"),
        (FAULT, "test_a_missing_command_is_a_story_not_a_spin"),
    ],
    (17, "giving up although the cause clears"): [
        (HERE, "test_a_cause_that_clears_is_survived_without_an_operator"),
        (FAULT, "test_resume_brings_a_parked_slot_back_and_keeps_its_lines"),
    ],
    (18, "a delay that never shrinks"): [
        ("core/test_restart.py", "test_a_healthy_time_in_service_forgets_the_streak")
    ],
    (19, "a busy worker taken for a dead one"): [
        (FAULT, "test_a_slow_prefill_that_beats_is_never_touched"),
        (STUCK, "test_a_prefill_of_half_an_hour_that_beats_is_never_touched"),
    ],
    (20, "probes that pile up"): [
        (HERE, "test_probes_are_not_requests"),
        (STUCK, "test_an_idle_worker_is_asked_and_never_given_work"),
        (STUCK, "test_a_probe_without_an_answer_is_the_last_one"),
    ],
    (21, "a slow load taken for a failed one"): [
        (HERE, "test_a_load_that_shows_progress_may_take_long"),
        (FAULT, "test_a_hung_load_is_ended"),
    ],
    (22, "a swap of models that kills running work"): [
        (EXCLUSIVE, "test_a_switch_waits_for_the_work_that_runs"),
        (RESIDENCY, "test_the_next_model_is_loaded_only_when_nothing_is_left_of_the_one_before"),
    ],
    (23, "copies of a model after edits of the file"): [
        ("runtime/test_reconfigure.py", "test_a_storm_of_edits_ends_with_the_last_file"),
        ("runtime/test_planned_change.py", "test_many_reloads_end_with_the_last_one"),
    ],
    (24, "a leak that is swapped out"): [
        ("host/test_memory.py", "test_a_leak_that_is_swapped_out_shows_in_what_is_held"),
        (NUISANCE, "test_growing_memory_is_seen"),
        (LIMITS, "test_a_worker_that_grows_is_recycled_and_no_request_fails"),
        (LIMITS, "test_a_leak_that_is_swapped_out_is_recycled_as_well"),
        ("runtime/test_planned_change.py", "test_a_worker_that_leaks_is_replaced_before_it_hurts"),
    ],
    (25, "a stream without its end"): [
        (HERE, "test_a_stream_never_ends_without_its_last_line"),
        ("core/test_promises.py", "test_the_promises_hold_in_every_history"),
        ("chaos/test_chaos.py", "test_a_short_day_of_chaos_breaks_no_promise"),
    ],
}


def test_every_report_is_accounted_for() -> None:
    """Each has its tests."""
    assert list(range(1, 26)) == sorted(number for number, _ in TESTS)
    assert all(TESTS.values())


@pytest.mark.parametrize(
    ("file", "test"),
    [pytest.param(*each, id=f"{number}") for (number, _), all_ in TESTS.items() for each in all_],
)
def test_every_named_test_exists(file: str, test: str) -> None:
    """In the file that the table says, with a docstring."""
    assert test in written_in(file)
