from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.config import launch as module
from supervisord_llm.config.cores import share_cores
from supervisord_llm.config.launch import (
    LaunchPlan,
    SlotLaunch,
    choose_place,
    extra_launch,
    slot_launches,
)
from supervisord_llm.config.problems import ConfigWarning
from supervisord_llm.config.schema import Config, LimitsConfig, PoolConfig
from tests.config.files import POOL, environ, load_text


def plan(
    folder: Path, text: str, *, cores: Sequence[int] = (0, 1, 2, 3), **variables: str
) -> LaunchPlan:
    """What a configuration comes to."""
    config = load_text(folder, text).config
    return slot_launches(config, cores=cores, environ={**environ(folder), **variables})


def extra(folder: Path, text: str, index: int, place: int) -> SlotLaunch:
    """What a slot more of the pool ``p`` comes to, on four cores."""
    config = load_text(folder, text).config
    return extra_launch(config, "p", index, place, cores=(0, 1, 2, 3), environ=environ(folder))


def executable(path: Path) -> Path:
    """Make a file that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_each_slot_has_its_own_facts(tmp_path: Path) -> None:
    """Placeholders in the command and the environment are filled in slot by slot."""
    found = plan(
        tmp_path,
        '[pool.p]\ncommand = ["/w", "{slot}", "{index}", "{threads}", "{{}}"]\nworkers = 2\n'
        'env = { N = "{threads}", G = "none" }\nper_slot_env = [{ G = "{index}" }, {}]\n',
        cores=[0, 1, 4, 5],
    ).launches
    assert ["p.0", "p.1"] == list(found)
    assert ("/w", "p.0", "0", "2", "{}") == found["p.0"].argv
    assert ("/w", "p.1", "1", "2", "{}") == found["p.1"].argv
    assert [(0, 1), (4, 5)] == [launch.cpus for launch in found.values()]
    assert [2, 2] == [launch.threads for launch in found.values()]
    assert ["0", "none"] == [launch.env["G"] for launch in found.values()]
    assert ["2", "2"] == [launch.env["N"] for launch in found.values()]


def test_a_worker_inherits_only_what_is_allowed(tmp_path: Path) -> None:
    """The daemon's variables stay with it, but for a few and those that the pool names."""
    found = plan(
        tmp_path,
        f'{POOL}pass_env = ["CUDA_VISIBLE_DEVICES", "UNSET"]\nenv = {{ HOME = "/w" }}\n',
        CUDA_VISIBLE_DEVICES="1",
        LC_ALL="C",
        TZ="UTC",
        API_KEY="secret",
        NOTIFY_SOCKET="/n",
    ).launches["p.0"]
    assert {
        "PATH": f"{tmp_path}/bin",
        "HOME": "/w",
        "LC_ALL": "C",
        "TZ": "UTC",
        "CUDA_VISIBLE_DEVICES": "1",
    } == found.env


def test_priorities_are_those_of_the_pool(tmp_path: Path) -> None:
    """What the launcher sets is in the launch."""
    found = plan(tmp_path, f"{POOL}limits = {{ nice = 5, oom_score_adj = 900 }}").launches["p.0"]
    assert (5, 900) == (found.nice, found.oom_score_adj)


@pytest.mark.parametrize(
    ("hard", "limit"), [("100MiB", 164 * 2**20), ("1GiB", 1280 * 2**20), ("", None)]
)
def test_writable_memory_is_limited_with_room_to_spare(
    tmp_path: Path, hard: str, limit: int | None
) -> None:
    """A quarter more than the hard limit, at least 64 MiB more; without one there is none."""
    found = plan(tmp_path, f'{POOL}limits.memory_hard = "{hard}"').launches["p.0"]
    assert (() if limit is None else (("data", limit),)) == found.rlimits


def test_slots_on_standby_are_launched_like_all_others(tmp_path: Path) -> None:
    """They follow the workers, with cores and variables of their own."""
    found = plan(
        tmp_path,
        f"{POOL}workers = 2\nstandby = 1\n"
        'per_slot_env = [{ G = "a" }, { G = "b" }, { G = "c" }]\nlimits.cpus = ["0", "1", "2-3"]',
    ).launches
    assert ["p.0", "p.1", "p.2"] == list(found)
    assert ((2, 3), "c", 2) == (found["p.2"].cpus, found["p.2"].env["G"], found["p.2"].place)
    shared = plan(tmp_path, f"{POOL}workers = 3\nstandby = 1").launches
    assert [(0,), (1,), (2,), (3,)] == [launch.cpus for launch in shared.values()]


def test_a_replacement_has_the_place_of_the_slot_that_it_replaces(tmp_path: Path) -> None:
    """Its name is its own, its cores and its device are the other's."""
    text = (
        '[pool.p]\ncommand = ["/w", "{slot}", "{index}", "{threads}"]\nworkers = 2\n'
        'per_slot_env = [{ G = "a" }, { G = "b" }]\nlimits.cpus = ["0", "2-3"]'
    )
    found = extra(tmp_path, text, 5, 1)
    assert ("p.5", "p", 5, 1) == (found.slot, found.pool, found.index, found.place)
    assert ("/w", "p.5", "5", "2") == found.argv
    assert ((2, 3), "b") == (found.cpus, found.env["G"])


def test_a_slot_beyond_the_file_shares_the_cores_of_its_pool_in_turn(tmp_path: Path) -> None:
    """Running workers keep what they have, and the other pools theirs."""
    text = f'{POOL}workers = 2\n[pool.q]\ncommand = ["w"]\nworkers = 2'
    found = [extra(tmp_path, text, place, place).cpus for place in (2, 3, 4)]
    assert [(0,), (1,), (0,)] == found


@pytest.mark.parametrize(
    ("text", "key", "entries"),
    [
        ('limits.cpus = ["0"]', "limits.cpus", "1 slot"),
        ("workers = 2\nper_slot_env = [{}, {}]", "per_slot_env", "2 slots"),
    ],
)
def test_a_slot_beyond_a_list_is_refused(tmp_path: Path, text: str, key: str, entries: str) -> None:
    """Two workers on the same device are nothing that is done unasked."""
    with pytest.raises(ValueError, match=r"^pool\.p\.") as caught:
        extra(tmp_path, POOL + text, 2, 2)
    assert (
        f"pool.p.{key}: has entries for {entries} only; add one for each slot more, with workers "
        "or standby to match, and reload the configuration"
    ) == str(caught.value)


def test_a_place_is_inherited_or_the_lowest_that_is_free() -> None:
    """A place that the file no longer has is given up."""
    pool = PoolConfig(command=("w",), workers=2, standby=1)
    assert 2 == choose_place(pool, taken=[0, 1, 2], like=2)
    assert 1 == choose_place(pool, taken=[0, 2, 3], like=3)
    assert 3 == choose_place(pool, taken=[2, 0, 1])
    assert 0 == choose_place(pool, taken=[])


def test_a_digest_tells_launches_apart_by_what_is_started(tmp_path: Path) -> None:
    """Every change of the process changes it, the name of the slot alone does not."""
    same = f'{POOL}env = {{ KEY = "s3cret" }}'
    digests = [
        plan(tmp_path, same + more).launches["p.0"].digest
        for more in (
            "",
            "\nlimits.nice = 1",
            "\nlimits.oom_score_adj = 1",
            '\nlimits.cpus = ["0"]',
            '\nlimits.memory_hard = "1GiB"',
        )
    ]
    digests.append(plan(tmp_path, same.replace("s3cret", "0ther")).launches["p.0"].digest)
    digests.append(plan(tmp_path, same.replace("worker", "w")).launches["p.0"].digest)
    assert len(digests) == len(set(digests))
    assert digests[0] == plan(tmp_path, same).launches["p.0"].digest
    assert digests[0] == extra(tmp_path, same, 7, 0).digest


def test_a_digest_takes_variables_that_are_no_text(tmp_path: Path) -> None:
    """A byte of the environment that is no UTF-8 is one like any other."""
    first, second = (plan(tmp_path, POOL, TZ=zone).launches["p.0"] for zone in ("\udcff", "\udcfe"))
    assert first.digest != second.digest


def test_a_bare_program_is_ours_before_it_is_in_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own folder goes first, then the PATH that the worker gets."""
    ours = tmp_path / "ours"
    monkeypatch.setattr(module, "bin_dir", lambda: str(ours))
    in_path = executable(tmp_path / "bin" / "worker")
    assert str(in_path) == plan(tmp_path, POOL).launches["p.0"].argv[0]
    own_path = executable(tmp_path / "own" / "worker")
    text = f'{POOL}env = {{ PATH = "{tmp_path}/own" }}'
    assert str(own_path) == plan(tmp_path, text).launches["p.0"].argv[0]
    mine = executable(ours / "worker")
    found = plan(tmp_path, POOL)
    assert str(mine) == found.launches["p.0"].argv[0]
    assert [] == found.warnings


@pytest.mark.parametrize("kind", ["nowhere", "missing", "not executable", "folder"])
def test_a_program_that_cannot_run_is_warned_of_once(tmp_path: Path, kind: str) -> None:
    """The pool will park and say so; other pools serve, so it is no error."""
    program, fault = {
        "nowhere": (
            "worker",
            f"it is neither in {sysconfig.get_path('scripts')} nor in the worker's PATH",
        ),
        "missing": (f"{tmp_path}/w", "there is no such file"),
        "not executable": (f"{tmp_path}/c.toml", "it is not an executable file"),
        "folder": (f"{tmp_path}", "it is not an executable file"),
    }[kind]
    found = plan(tmp_path, f'[pool.p]\ncommand = ["{program}"]\nworkers = 2')
    assert program == found.launches["p.0"].argv[0]
    assert [
        ConfigWarning(
            "command",
            f"cannot run {program} for pool p: {fault}",
            "install the worker (ours: `make build`), or correct the pool's command",
        )
    ] == found.warnings


def test_more_threads_than_cores_are_warned_of(tmp_path: Path) -> None:
    """Slots that share a core get one thread each, and the operator is told."""
    text = f'[pool.p]\ncommand = ["{executable(tmp_path / "w")}"]\nworkers = 3'
    found = plan(tmp_path, text, cores=[2, 3])
    assert [(2,), (3,), (2,)] == [launch.cpus for launch in found.launches.values()]
    assert [
        ConfigWarning(
            "threads",
            "the workers of all pools compute with 3 threads on 2 cores, and threads that wait for "
            "a core spin",
            "lower workers, or give each slot cores of its own in limits.cpus",
        )
    ] == found.warnings


def test_cores_that_the_daemon_may_not_use_are_warned_of(tmp_path: Path) -> None:
    """A list may name what the machine, or the daemon's allowance, does not have."""
    text = f'[pool.p]\ncommand = ["{executable(tmp_path / "w")}"]\nlimits.cpus = ["0,7-8"]'
    found = plan(tmp_path, text)
    assert (0, 7, 8) == found.launches["p.0"].cpus
    assert [
        ConfigWarning(
            "cpus",
            "limits.cpus gives p.0 cores that this daemon may not use: 7-8",
            "choose among 0-3",
        )
    ] == found.warnings


def test_what_a_list_names_is_not_shared_out_again(tmp_path: Path) -> None:
    """Automatic slots divide the cores that no list names, as long as there are any."""
    text = (
        '[pool.a]\ncommand = ["w"]\nlimits.cpus = [[3, 0, 3]]\n'
        '[pool.b]\ncommand = ["w"]\nworkers = 2\n'
    )
    found = plan(tmp_path, text).launches
    assert [(0, 3), (1,), (2,)] == [launch.cpus for launch in found.values()]
    crowded = plan(tmp_path, text, cores=[0, 3]).launches
    assert [(0, 3), (0,), (3,)] == [launch.cpus for launch in crowded.values()]


def test_pools_that_take_turns_use_the_same_cores(tmp_path: Path) -> None:
    """Of an exclusive group one is loaded at a time, so its threads do not wait for the others'."""
    worker = executable(tmp_path / "w")
    turns = f'command = ["{worker}"]\nexclusive = "gpu0"\nload = "on_demand"\n'
    text = f'[pool.a]\ncommand = ["{worker}"]\n[pool.b]\n{turns}workers = 2\n[pool.c]\n{turns}'
    found = plan(tmp_path, text, cores=[0, 1, 2])
    cores = {slot: launch.cpus for slot, launch in found.launches.items()}
    assert {"a.0": (0,), "b.0": (1,), "b.1": (2,), "c.0": (1,)} == cores
    assert [] == found.warnings
    assert ["threads"] == [each.topic for each in plan(tmp_path, text, cores=[0, 1]).warnings]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.sets(st.integers(0, 63), min_size=1),
)
def test_cores_are_divided_evenly_and_without_rest(workers: list[int], cores: set[int]) -> None:
    """With enough cores each is given to exactly one slot; nobody gets two more than another."""
    pools = {
        f"p{i}": PoolConfig(command=("w",), workers=n, limits=LimitsConfig())
        for i, n in enumerate(workers)
    }
    shares = share_cores(Config(pool=pools), sorted(cores))
    assert sum(workers) == len(shares)
    given_out = [core for share in shares.values() for core in share]
    sizes = [len(share) for share in shares.values()]
    uses = [given_out.count(core) for core in cores]
    assert 1 <= min(sizes)
    assert max(sizes) - min(sizes) <= 1
    assert max(uses) - min(uses) <= 1
    if len(cores) >= sum(workers):
        assert sorted(cores) == sorted(given_out)
