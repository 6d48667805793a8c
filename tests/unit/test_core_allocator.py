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


UNUSED = """
import torch
from widthwise.core.allocator import UnusedMemory, _own_pages, keep_freed_memory
keep_freed_memory()
unused = UnusedMemory()
unused.give_back()
start = _own_pages()
for megabytes in (10, start // 256):
    tensors = [torch.ones(250_000) for _ in range(megabytes)]
    tensors = None
    freed = _own_pages()
    unused.give_back()
    print(megabytes, (freed - start) / 256, (_own_pages() - start) / 256)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="about glibc's allocator")
def test_unused_memory_is_given_back_once_there_is_much_of_it() -> None:
    output = subprocess.run([sys.executable, "-c", UNUSED], check=True, capture_output=True, text=True).stdout
    (little, freed, left), (much, freed_much, left_much) = (
        map(float, x.split()) for x in output.splitlines()
    )
    assert little * 0.9 < freed < 1.1 * left + 1  # kept: less than a quarter of what the process holds
    assert much * 0.9 < freed_much
    assert left_much < 0.1 * much
