"""Fixtures that more than one room uses."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

TIERS = (0.25, 0.5, 0.75, 1.0)
WriteRun = Callable[..., Path]


def write_run_folder(
    root: Path,
    name: str = "hasfl",
    *,
    seed: int = 42,
    clients: int = 20,
    rounds: int = 12,
    finished: bool = True,
    capacity_link: float | None = -1.0,
    data_link: float = 0.0,
    noise: float = 0.1,
    widths: np.ndarray | None = None,
    eval_every: int = 1,
    folder: str | None = None,
    **options: Any,
) -> Path:
    """Write a plausible run folder below ``root`` without training anything, and return its path.

    Estimates follow ``capacity_link * capacity + data_link * label divergence + noise``; None for
    ``capacity_link`` means that the estimator never ran. Further keywords are options of the method.
    """
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    capacities = np.resize(TIERS, clients)
    counts = rng.multinomial(60, rng.dirichlet(np.full(10, 0.3), size=clients))
    shares = counts / counts.sum(axis=1, keepdims=True)
    divergence = 0.5 * np.abs(shares - counts.sum(axis=0) / counts.sum()).sum(axis=1)
    if capacity_link is None:
        estimates = np.ones(clients)
    else:
        estimates = 2 + capacity_link * capacities + data_link * divergence + noise * rng.normal(size=clients)
    final = np.minimum(capacities, 0.4 + 0.25 * estimates) if widths is None else widths
    path = root / (folder or f"{name}-s{seed}")
    path.mkdir(parents=True)
    config = {
        "name": name,
        "config_hash": f"{seed:016x}",
        "task": {"dataset": "digits", "model": "cnn-small", "clients": clients},
        "method": {"name": name, **options},
        "training": {"rounds": rounds, "cohort": max(1, clients // 2)},
        "engine": {"executor": "process", "workers": 2},
        "seed": seed,
    }
    (path / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    environment = {
        "time": "2026-01-02T03:04:05+00:00",
        "command": f"widthwise run examples/{name}.yaml",
        "commit": "0123456789ab",
        "python": "3.11.9",
        "packages": {"torch": "2.13.0", "tensorboard": None},
        "platform": "Linux",
        "processor": "a processor <with & signs>",
        "cores": 2,
    }
    (path / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    partition = {
        "hash": "abc",
        "num_clients": clients,
        "num_classes": 10,
        "class_names": [str(c) for c in range(10)],
        "clients": list(range(clients)),
        "class_counts": counts.tolist(),
        "label_divergence": divergence.tolist(),
        "capacities": capacities.tolist(),
        "tiers": list(TIERS),
    }
    (path / "partition.json").write_text(json.dumps(partition), encoding="utf-8")
    done = rounds if finished else max(1, rounds // 2)
    curve = 0.9 - 0.8 * np.exp(-np.arange(done) / 3) + 0.01 * rng.normal(size=done)
    lines = []
    rows = []
    for t in range(done):
        measured = capacity_link is not None and t >= 2
        share = t / max(1, done - 1)
        now = (1 - share) * capacities + share * final
        smoothed = (1 - share) + share * estimates
        evaluated = (t + 1) % eval_every == 0 or t == done - 1
        cohort = rng.choice(clients, size=max(1, clients // 2), replace=False)
        lines.append(
            {
                "round": t,
                "accuracy": float(curve[t]) if evaluated else None,
                "loss": float(-np.log(curve[t])) if evaluated else None,
                "mean_width": float(now[cohort].mean()),
                "coverage": float(now[cohort].max() ** 2),
                "bytes_up": 1_000_000,
                "bytes_down": 1_000_000,
                "macs": 5_000_000_000,
                "seconds": 0.5,
                "train_loss": float(1.1 - curve[t]),
                "ever_covered": 1.0,
                "tier_accuracy": {str(w): float(curve[t] * w**0.2) for w in TIERS} if evaluated else None,
                "estimate_mean": float(smoothed.mean()) if measured else None,
            }
        )
        for i in range(clients):
            taking_part = bool(i in cohort)
            rows.append(
                {
                    "round": t,
                    "client": i,
                    "participated": taking_part,
                    "capacity": float(capacities[i]),
                    "width": float(now[i]),
                    "estimate": float(smoothed[i]),
                    "num_examples": int(counts[i].sum()),
                    "loss": 0.5 if taking_part else None,
                    "bytes_up": 100_000 if taking_part else None,
                    "bytes_down": 100_000 if taking_part else None,
                }
            )
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (path / "rounds.jsonl").write_text(text, encoding="utf-8")
    pd.DataFrame(rows).to_parquet(path / "clients.parquet")
    if finished:
        best = int(np.argmax(curve))
        result = {
            "name": name,
            "method": name,
            "seed": seed,
            "rounds": rounds,
            "best_accuracy": float(curve[best]),
            "best_round": best,
            "final_accuracy": float(curve[-1]),
            "mean_width": float(np.mean([line["mean_width"] for line in lines])),
            "width_accuracy": {str(w): float(curve[-1] * w**0.2) for w in TIERS},
            "bytes_up": 1_000_000 * done,
            "bytes_down": 1_000_000 * done,
            "macs": 5_000_000_000 * done,
            "seconds": 0.5 * done,
            "config_hash": f"{seed:016x}",
            "widths": [float(w) for w in final],
            "estimates": None if capacity_link is None else [float(e) for e in estimates],
        }
        (path / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def write_run() -> WriteRun:
    """Return ``write_run_folder``, for fixtures that outlive one test."""
    return write_run_folder


@pytest.fixture
def make_run(tmp_path: Path) -> WriteRun:
    """Return ``write_run_folder`` below ``tmp_path``."""
    return partial(write_run_folder, tmp_path)
