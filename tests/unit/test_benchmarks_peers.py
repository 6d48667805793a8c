"""The comparison with other simulators: its work description, its plain loop, its table."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from widthwise.engine import run_federation
from widthwise.engine.round import sample_cohort
from widthwise.slicing import trace
from widthwise.tasks import Signature, resolve_model

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # benchmarks are no package that is installed

from benchmarks import common, figures  # noqa: E402
from benchmarks.peers import bare_peer, widthwise_peer  # noqa: E402
from benchmarks.peers.__main__ import _variants  # noqa: E402
from benchmarks.peers.runner import PEERS, Variant  # noqa: E402
from benchmarks.peers.table import best, faults, headline, table  # noqa: E402
from benchmarks.peers.work import (  # noqa: E402
    SETTINGS,
    Job,
    leading,
    overhead,
    paper_cnn,
    pfl_cnn,
)

IMAGES = Signature("image", (3, 32, 32), 10)


def shapes(module: torch.nn.Module) -> list[tuple[int, ...]]:
    return [tuple(p.shape) for p in module.parameters()]


def test_models_are_the_registered_cnn_and_the_one_of_pfls_benchmark() -> None:
    assert shapes(paper_cnn(1.0)) == shapes(resolve_model("cnn", IMAGES).build(0))
    # 3*9*32+32 + 32*9*64+64 + 14*14*64*128+128 + 128*10+10
    assert sum(p.numel() for p in pfl_cnn(1.0).parameters()) == 896 + 18_496 + 1_605_760 + 1_290


@pytest.mark.parametrize("width", SETTINGS["A"].widths)
def test_slices_are_those_of_the_width_space(width: float) -> None:
    model = paper_cnn(1.0)
    space = trace(model, torch.zeros(2, 3, 32, 32), check=False)
    params = {name: value.detach() for name, value in model.named_parameters()}
    for name, ours in space.take(params, space.nested(width)).items():
        assert torch.equal(ours, leading(params[name], paper_cnn(width).get_parameter(name).shape))


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_every_sample_belongs_to_one_client(setting: Any) -> None:
    values, targets = setting.data()
    held = torch.cat([setting.indices(client) for client in range(setting.clients)])
    assert torch.equal(held, torch.arange(len(values)))
    assert values.dtype == torch.uint8
    assert values.shape[1:] == setting.shape
    assert targets.unique().tolist() == list(range(10))
    assert torch.equal(values, setting.data()[0])


def test_cohorts_are_widthwises() -> None:
    setting = SETTINGS["C"]
    fed = widthwise_peer.federation(Job(setting, 1, 1, "fp32"))
    for index in range(3):
        assert tuple(setting.cohort_of(index)) == sample_cohort(fed, index).client_ids
        assert len(set(setting.cohort_of(index))) == setting.cohort


def test_the_plain_loop_computes_what_widthwise_does(tmp_path: Path) -> None:
    # One batch holds all samples of a client, so that the order of samples does not matter.
    setting = replace(SETTINGS["A"], clients=8, samples=3, cohort=3, batch_size=3, rounds=1)
    job = Job(setting, 1, 1, "fp32")
    params = {name: value.detach() for name, value in setting.initial().named_parameters()}
    trainer = bare_peer.Trainer(job, setting.data())
    train_all = bare_peer.in_this_process([trainer], params)
    for index in range(setting.total_rounds):
        train_all(setting.cohort_of(index))
        assert bare_peer.average_(params, [trainer]) == 9

    run = run_federation(widthwise_peer.federation(job), tmp_path / "run")
    from safetensors.torch import load_file

    final = load_file(run.path / "final.safetensors")
    for name, value in params.items():
        torch.testing.assert_close(value, final[name], rtol=1e-4, atol=1e-6)


def test_overhead_leaves_each_client_one_sample() -> None:
    setting = overhead(SETTINGS["B"])
    assert (setting.samples, setting.clients) == (1, 1000)


def row(peer: str, threads: int, speed: float, **values: Any) -> dict[str, Any]:
    return {
        "setting": "C",
        "peer": peer,
        "processes": 1,
        "threads": threads,
        "precision": "fp32",
        "peak_mib": 100.0,
        "seconds": 1000 / speed,
        "samples": 1000,
        "clients": 50,
        "samples_per_second": speed,
        "loss_before": 2.3,
        "loss_after": 1.0,
        "moved": 0.1,
        "versions": {"torch": "2.13.0"},
        **values,
    }


ROWS = [
    row("bare", 1, 100.0),
    row("bare", 1, 120.0),
    row("bare", 1, 110.0, peak_mib=150.0),
    row("bare", 2, 10.0),
    row("other", 1, 220.0),
    {**row("other", 2, 1.0), "error": "no result within 600 s"},
]


DOCUMENT = {
    "heterofl": "0123456789abcdef",
    "overhead": False,
    "repeats": 3,
    "settings": {"A": "slices", "C": "small"},
    "rows": ROWS,
}


def test_table_takes_the_fastest_variant_and_medians() -> None:
    assert [(r[0]["peer"], r[0]["threads"], len(r)) for r in best(ROWS)] == [("bare", 1, 3), ("other", 1, 1)]
    text = table(DOCUMENT)
    assert text.startswith(
        "heterofl 0123456789ab, torch 2.13.0; medians of 3 repeats in turn.\n\n**C**: small."
    )
    lines = text.splitlines()
    assert lines[-2] == ("| other | fp32 | 1 x 1 | 220 | 220–220 | 1.00 | 2.00 | 90.9 | 100 | 2.30 → 1.00 |")
    assert lines[-1] == "| bare | fp32 | 1 x 1 | 110 | 100–120 | 0.50 | 1.00 | 182 | 150 | 2.30 → 1.00 |"


def test_headline_compares_with_the_fastest_other_simulator() -> None:
    ours = [row("widthwise", 1, 550.0), row("widthwise", 2, 660.0, precision="bf16")]
    rows = [*ROWS, row("slow", 1, 50.0), *ours]
    assert headline({**DOCUMENT, "rows": rows}) == (
        "speed as a multiple of the fastest other simulator's: C 3.00 in bf16, 2.50 in fp32 (other)."
    )


@pytest.mark.parametrize("known", [True, False, None])
def test_peers_try_bf16_where_the_cpu_has_it(known: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "has_bfloat16", lambda device: known)
    tried = {(peer, v.precision) for peer in PEERS for v in _variants(peer, "C", None)}
    in_bf16 = set() if known is False else {("bare", "bf16"), ("widthwise", "bf16")}
    assert tried == {(peer, "fp32") for peer in PEERS} | in_bf16
    assert _variants("widthwise", "A", None)[:2] == [Variant(1, 1), Variant(2, 1)]


def test_a_comparison_without_bf16_says_why_and_is_shown_and_drawn() -> None:
    document = {**DOCUMENT, "bfloat16": False, "rows": [*ROWS, row("widthwise", 1, 550.0)]}
    assert table(document).startswith(
        "heterofl 0123456789ab, torch 2.13.0; medians of 3 repeats in turn.\n\n"
        "bf16 was not tried: this CPU has no instructions for bfloat16.\n\n**C**: small."
    )
    assert headline(document).endswith("C 2.50 in fp32 (other).")
    drawn = figures.peers({**document, "settings": {"C": "small"}})
    assert drawn.alt.endswith("C: bare fp32 110, other fp32 220, widthwise fp32 550.")


def test_faults_name_what_did_not_do_the_work() -> None:
    bad = [row("a", 1, 1.0, samples=999), row("b", 1, 1.0, moved=0.0), row("c", 1, 1.0, loss_after=2.4)]
    assert faults([*ROWS[:5]], {"C": 1000}, False) == []
    assert faults([*ROWS[5:], *bad], {"C": 1000}, False) == [
        "C other 1x2 fp32: no result within 600 s",
        "C a 1x1 fp32: trained 999 samples instead of 1000",
        "C b 1x1 fp32: no parameter moved",
        "C c 1x1 fp32: the loss went from 2.300 to 2.400",
    ]
    assert faults(bad[2:], {"C": 1000}, True) == []
