"""Who is measured, in which environment, and how one measurement is made."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..memory import descendants, proportional_bytes

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".peers"  # environments and checkouts; git ignores it
LIMIT = 600.0  # seconds for one run
HETEROFL = (
    "https://github.com/dem123456789/"
    "HeteroFL-Computation-and-Communication-Efficient-Federated-Learning-for-Heterogeneous-Clients"
)
HETEROFL_COMMIT = "ea528c330ec832b141b2ad64ca299642c91685ae"


@dataclass(frozen=True)
class Variant:
    """How a peer uses the machine."""

    processes: int
    threads: int
    precision: str = "fp32"


@dataclass(frozen=True)
class Peer:
    """One simulator.

    Attributes:
        variants: What is tried, where the CPU has its precision; the best of each precision counts.
        slices: Whether clients may train slices of the model.
    """

    variants: tuple[Variant, ...]
    slices: bool = True


PEERS = {
    "bare": Peer((Variant(1, 1), Variant(1, 2), Variant(2, 1), Variant(2, 1, "bf16"))),
    "widthwise": Peer((Variant(1, 1), Variant(2, 1), Variant(2, 1, "bf16"))),
    "flower": Peer((Variant(2, 1), Variant(1, 2))),
    "pfl": Peer((Variant(1, 1), Variant(1, 2), Variant(2, 1)), slices=False),
    "heterofl": Peer((Variant(1, 1), Variant(1, 2))),
}


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer, in an environment of its own if it has requirements.

    The environment is made when it is not there, or was made from other requirements.
    """
    requirements = Path(__file__).with_name(f"requirements-{peer}.txt")
    if not requirements.exists():
        return Path(sys.executable)
    folder = HOME / peer
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        print(f"installing {peer} into {folder.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
        shutil.copyfile(requirements, stamp)
    return python


def heterofl_checkout() -> Path:
    """Return a checkout of HeteroFL's reference repository; it is cloned when it is not there."""
    folder = HOME / "heterofl-source"
    if not (folder / "src").exists():
        subprocess.run(["git", "clone", "--no-checkout", HETEROFL, folder], check=True)
        # HEAD names what is checked out; the rest of the repository are papers.
        subprocess.run(["git", "-C", folder, "update-ref", "--no-deref", "HEAD", HETEROFL_COMMIT], check=True)
        subprocess.run(["git", "-C", folder, "checkout", "-q", "HEAD", "--", "src"], check=True)
    return folder


def commit_of(checkout: Path) -> str:
    """Return the commit of a checkout."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def measure(
    peer: str, python: Path, setting: str, variant: Variant, overhead: bool, checkout: str
) -> dict[str, Any]:
    """Run a peer once in a child process and return what it reported, its speed and its peak memory.

    Memory is the proportional set size, where a page that n processes share counts 1/n for each, summed over
    the child and all processes below it.
    """
    job = {"setting": setting, "overhead": overhead, "checkout": checkout, **asdict(variant)}
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": str(variant.threads),
        "MKL_NUM_THREADS": str(variant.threads),
    }
    command = [python, "-W", "ignore", "-m", f"benchmarks.peers.{peer}_peer", json.dumps(job)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=err, text=True)
        deadline = time.monotonic() + LIMIT
        peak = _watch(child, deadline)
        out.seek(0), err.seek(0)
        said, complained = out.read().splitlines(), err.read().splitlines()
    row = {"setting": setting, "peer": peer, **asdict(variant), "peak_mib": peak / 2**20}
    if child.returncode != 0 or not said:
        reason = complained[-1] if complained else f"exit code {child.returncode}"
        return {**row, "error": f"no result within {LIMIT:g} s" if time.monotonic() > deadline else reason}
    result = json.loads(said[-1])
    return {**row, **result, "samples_per_second": result["samples"] / result["seconds"]}


def _watch(child: subprocess.Popen[str], deadline: float) -> int:
    """Wait for a child and return its peak memory in bytes; kill it and all below it if it must not go on."""
    peak = 0
    try:
        while child.poll() is None and (start := time.monotonic()) < deadline:
            peak = max(peak, sum(map(proportional_bytes, descendants(child.pid))))
            # Every 100 ms, but never more than 2 % of the time: looking at memory costs some.
            time.sleep(max(0.1, 50 * (time.monotonic() - start)))
    finally:
        if child.poll() is None:
            for pid in descendants(child.pid):
                _kill(pid)
            child.wait()
    return peak


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
