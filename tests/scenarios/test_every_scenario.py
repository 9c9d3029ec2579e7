"""The sixty-four scenarios that a supervisor of cancellable workers is held to, and where each is.

Numbers and names are fixed; a name stands for its test, or for why there is none yet. This table
keeps the two together: a test that is renamed or lost fails it.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CANCEL = "scenarios/test_cancellations.py"
END = "scenarios/test_endings.py"
REPLY = "scenarios/test_replies.py"
OPERATE = "scenarios/test_operations.py"
LADDER = "runtime/test_cancellation.py"
FAULT = "runtime/test_faults.py"
PROCESS = "runtime/test_process.py"
GENERATE = "runtime/test_generation.py"
NATIVE = "native/test_cancellation.py"
DAEMON = "daemon/test_daemon.py"
HTTP = "api/test_with_workers.py"

MULTIPLEXED = "needs the multiplexed dialect"
OPENAI = "needs the OpenAI routes"

TESTS: dict[tuple[int, str], list[tuple[str, str]]] = {
    (1, "cancel_before_submit"): [(CANCEL, "test_cancel_before_submit")],
    (2, "cancel_during_prefill"): [
        (LADDER, "test_an_uninterruptible_prefill_does_not_cost_the_model"),
        (NATIVE, "test_a_prefill_that_cannot_be_interrupted_is_cancelled_behind_it"),
    ],
    (3, "cancel_during_decode"): [(LADDER, "test_a_client_that_leaves_frees_the_slot")],
    (4, "cancel_vs_done_race"): [
        (LADDER, "test_a_cancellation_that_loses_the_race_is_a_completion")
    ],
    (5, "done_then_late_cancel"): [(CANCEL, "test_done_then_late_cancel")],
    (6, "back_to_back_cancel"): [
        (CANCEL, "test_back_to_back_cancel"),
        (LADDER, "test_cancelling_right_after_the_previous_end_always_works"),
        (NATIVE, "test_a_cancel_for_the_next_request_between_two_is_not_lost"),
    ],
    (7, "rejected_then_cancel"): [
        (CANCEL, "test_rejected_then_cancel"),
        (NATIVE, "test_the_cancel_of_a_refused_request_goes_with_it"),
    ],
    (8, "duplicate_cancel"): [(LADDER, "test_asking_twice_is_asking_once")],
    (9, "stale_cancel"): [(CANCEL, "test_stale_cancel")],
    (10, "split_frame"): [(NATIVE, "test_a_frame_in_pieces_is_one_frame")],
    (11, "short_write"): [(LADDER, "test_a_broken_control_pipe_goes_straight_to_sigterm")],
    (12, "pipe_full"): [(LADDER, "test_a_full_control_pipe_is_tried_again")],
    (13, "control_eof"): [(CANCEL, "test_control_eof")],
    (14, "old_worker"): [(LADDER, "test_a_worker_without_cancellation_is_terminated_at_once")],
    (15, "uncooperative_worker"): [(LADDER, "test_a_deaf_worker_is_terminated_and_replaced")],
    (16, "sigterm_ignored"): [(LADDER, "test_a_worker_that_ignores_sigterm_is_killed")],
    (17, "unreapable"): [(END, "test_unreapable")],
    (18, "grandchild_holds_stdout"): [(END, "test_grandchild_holds_stdout")],
    (19, "repeated_cancel_of_cleanup"): [(CANCEL, "test_repeated_cancel_of_cleanup")],
    (20, "queued_on_dying_worker"): [
        (END, "test_queued_on_dying_worker"),
        (END, "test_queued_behind_the_only_worker"),
    ],
    (21, "submit_vs_death"): [(END, "test_submit_vs_death")],
    (22, "idle_death"): [(FAULT, "test_an_idle_worker_that_dies_is_replaced")],
    (23, "exit_zero_midrequest"): [(FAULT, "test_a_worker_that_breaks_off_fails_its_request")],
    (24, "death_during_load"): [(END, "test_death_during_load")],
    (25, "readiness_timeout"): [
        (FAULT, "test_a_load_over_its_total_time_is_ended"),
        (FAULT, "test_a_hung_load_is_ended"),
    ],
    (26, "crash_loop"): [
        (FAULT, "test_a_crash_loop_parks_the_slot_with_its_last_lines"),
        (DAEMON, "test_a_parked_pool_does_not_keep_the_daemon_from_serving"),
    ],
    (27, "bad_ready"): [(REPLY, "test_bad_ready"), (REPLY, "test_truthy_ready")],
    (28, "log_line_on_stdout"): [(REPLY, "test_log_line_on_stdout")],
    (29, "oversized_line"): [(REPLY, "test_oversized_line")],
    (30, "partial_line_at_exit"): [(REPLY, "test_partial_line_at_exit")],
    (31, "wrong_id_reply"): [
        (REPLY, "test_wrong_id_reply"),
        (REPLY, "test_second_terminal_before_the_next_request"),
    ],
    (32, "inconsistent_terminal"): [(REPLY, "test_inconsistent_terminal")],
    (33, "request_error_is_local"): [(GENERATE, "test_a_worker_error_is_local_to_its_request")],
    (36, "slow_http_client"): [
        (GENERATE, "test_a_slow_reader_loses_only_its_own_request"),
        (HTTP, "test_a_client_that_does_not_read_loses_its_own_request_only"),
    ],
    (37, "burst_without_yield"): [
        (GENERATE, "test_a_fast_worker_does_not_overrun_a_client_that_reads")
    ],
    (38, "stop_string_split"): [(REPLY, "test_stop_string_split")],
    (39, "midstream_worker_death"): [
        (DAEMON, "test_a_worker_that_is_killed_leaves_the_neighbour_alone")
    ],
    (40, "failure_before_headers"): [
        ("api/test_generate.py", "test_a_refusal_of_the_pool_has_its_status")
    ],
    (41, "disconnect_in_preflight"): [(HTTP, "test_a_client_that_leaves_frees_its_worker")],
    (42, "disconnect_while_queued"): [
        (HTTP, "test_a_client_that_leaves_the_queue_never_reaches_a_worker")
    ],
    (48, "same_session_order"): [(CANCEL, "test_same_session_order")],
    (49, "dirty_after_cancel"): [(CANCEL, "test_dirty_after_cancel")],
    (51, "stale_incarnation_message"): [(END, "test_stale_incarnation_message")],
    (52, "pid_reuse"): [
        ("host/test_tree.py", "test_a_signal_reaches_the_process_with_that_start_time")
    ],
    (53, "supervisor_sigkill"): [
        (DAEMON, "test_its_workers_die_with_it"),
        (DAEMON, "test_nothing_outlives_a_killed_daemon"),
        (DAEMON, "test_the_next_start_ends_what_a_killed_daemon_and_guardian_left"),
    ],
    (54, "supervisor_thread_churn"): [
        (PROCESS, "test_an_idle_worker_outlives_the_threads_of_the_daemon")
    ],
    (55, "graceful_shutdown"): [
        (FAULT, "test_shutdown_lets_running_work_end"),
        (DAEMON, "test_a_second_signal_ends_the_drain"),
    ],
    (56, "shutdown_while_starting"): [(FAULT, "test_shutdown_while_loading_leaves_nothing")],
    (57, "shutdown_phases"): [(OPERATE, "test_shutdown_phases")],
    (58, "failed_reap_surfaces"): [(END, "test_failed_reap_surfaces")],
    (59, "health_transitions"): [(OPERATE, "test_health_transitions")],
    (60, "id_exhaustion"): [(END, "test_id_exhaustion")],
    (61, "env_tristate"): [(CANCEL, "test_cancellation_policy")],
    (62, "fd_hygiene"): [
        (PROCESS, "test_a_worker_inherits_no_descriptor_but_its_own"),
        (
            "native/test_ready.py",
            "test_a_control_variable_that_names_no_pipe_costs_only_the_cancellation",
        ),
    ],
    (63, "cancel_latency_slo"): [(CANCEL, "test_cancel_latency_slo")],
    (64, "soak_chaos"): [("chaos/test_chaos.py", "test_a_short_day_of_chaos_breaks_no_promise")],
}

NOT_YET: dict[tuple[int, str], str] = {
    (34, "severe_error_budget"): "needs error budgets",
    (35, "immediate_fatal"): "needs error budgets",
    (43, "v2_targeted_cancel"): MULTIPLEXED,
    (44, "v2_unsettled_cancel"): MULTIPLEXED,
    (45, "v2_control_budget_full"): MULTIPLEXED,
    (46, "v2_local_validation"): MULTIPLEXED,
    (47, "v2_boundary_exact"): MULTIPLEXED,
    (50, "session_affinity_after_respawn"): "needs sessions that the daemon routes",
}

ONLY_PARTLY: dict[int, str] = {
    20: "a request without output is not tried again: needs retries",
    39: f"the end of the stream is ours, not server-sent events: {OPENAI}",
    40: f"the refusal is ours: {OPENAI}",
}
"""Scenarios whose tests leave something out."""


@cache
def written_in(file: str) -> frozenset[str]:
    """The names of the test functions in a file that say in words what they expect."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node)
    )


def test_every_number_is_accounted_for() -> None:
    """Each has its tests or its reason, under one name, and never both."""
    numbers = sorted(number for number, _ in [*TESTS, *NOT_YET])
    assert list(range(1, 65)) == numbers
    names = [name for _, name in [*TESTS, *NOT_YET]]
    assert len(names) == len(set(names))
    assert all(NOT_YET.values())
    assert ONLY_PARTLY.keys() <= {number for number, _ in TESTS}


@pytest.mark.parametrize(
    ("file", "test"),
    [
        pytest.param(*each, id=f"{number}-{name}")
        for (number, name), all_ in TESTS.items()
        for each in all_
    ],
)
def test_every_named_test_exists(file: str, test: str) -> None:
    """In the file that the table says, with a docstring."""
    assert test in written_in(file)
