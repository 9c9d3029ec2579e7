"""What a report says of the machine."""

from __future__ import annotations

import os
import platform
import socket
import time

import msgspec

from bench.machine import cpu_model, describe
from bench.processes import cpu_seconds, resident_mib


def test_the_processor_is_named_once() -> None:
    """The first model counts; a machine that names none is no error."""
    text = "processor\t: 0\nmodel name\t: Fast CPU: 3 GHz\n\nprocessor\t: 1\nmodel name\t: Other\n"
    assert "Fast CPU: 3 GHz" == cpu_model(text)
    assert cpu_model("processor\t: 0\nBogoMIPS\t: 100\n") is None


def test_the_machine_is_described_without_its_name() -> None:
    """Hardware, kernel and Python, and nothing by which to find the host."""
    described = describe()
    assert len(os.sched_getaffinity(0)) == described.cores
    assert platform.python_version() == described.python
    assert socket.gethostname() not in msgspec.json.encode(described).decode()


def test_cpu_time_is_that_of_the_process() -> None:
    """The clock of another process by its pid agrees with the process's own."""
    before = cpu_seconds(os.getpid()), time.process_time()
    while time.process_time() < before[1] + 0.05:
        pass
    after = cpu_seconds(os.getpid()), time.process_time()
    assert abs((after[0] - before[0]) - (after[1] - before[1])) < 0.005


def test_memory_is_some() -> None:
    """A Python process holds more than a MiB, and less than this machine."""
    assert 1 < resident_mib(os.getpid()) < describe().memory_mib
