"""Memory that a step frees is taken again by the next one."""

import subprocess
import sys

import pytest

STEPS = """
import resource, sys
import torch
from widthwise.core.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def step():
    return sum(float(tensor[0]) for tensor in [torch.ones(2_000_000) for _ in range(6)])
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
before = faults()
for _ in range(10):
    step()
print((faults() - before) / 10)
"""


def faults_of_a_step(how: str) -> float:
    command = [sys.executable, "-c", STEPS, how]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="about glibc's allocator")
def test_keep_freed_memory_saves_the_page_faults_of_large_tensors() -> None:
    # Six tensors of 8 MB have 11,719 pages of 4 KiB.
    assert faults_of_a_step("keep") < 100 < 1000 < faults_of_a_step("leave")


# Blocks of bytes, for where a tensor's aligned block goes is up to chance before glibc 2.38.
UNUSED = """
from widthwise.core.allocator import UnusedMemory, _own_pages, keep_freed_memory
keep_freed_memory()
unused = UnusedMemory()
held = [b"x" * 1_000_000 for _ in range(150)]
start = _own_pages()
for megabytes in (400, 40, 60, 400):  # the first time everything goes, the second shows what is usual
    blocks = [b"x" * 1_000_000 for _ in range(megabytes)]
    blocks = None
    unused.give_back()
    print((_own_pages() - start) / 256)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="about glibc's allocator")
def test_unused_memory_is_given_back_at_first_and_once_there_is_more_than_usual() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], check=True, capture_output=True, text=True)
    first, usual, more, much = map(float, done.stdout.split())
    assert first < 20
    assert 38 < usual < 45
    assert 57 < more < 65  # kept: not a quarter above what is usual, 180 MiB and more
    assert much < 20
