"""The table of architectures: its program on a few of them, on faults, and its page against its figures."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import widthwise as ww
from widthwise.core.params import load_

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

Part = Callable[[str], ModuleType]


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Part:
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.compatibility.{name}")


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def architecture(part: Part, make: Callable[[], nn.Module] = net, size: int = 6) -> Any:
    return part("architecture").Architecture("Net", "tests", make, lambda: (torch.randn(4, size),))


@pytest.mark.parametrize("name", ["ResNeXt", "GRU", "LlamaForCausalLM", "T5EncoderModel"])
def test_examine_finds_that_a_model_works_and_repeats_the_page(part: Part, name: str) -> None:
    found = part("examine").examine(part("zoos").ARCHITECTURES[name])
    (stored,) = (row for row in part("page").read(DOCS) if row.name == name)
    assert found.result == "works"
    assert replace(found, seconds=stored.seconds) == stored


def test_examine_says_what_is_refused(part: Part) -> None:
    found = part("examine").examine(part("zoos").ARCHITECTURES["EarlyExit"])
    assert found.result == "refused"
    assert found.reason.startswith("the forward of EarlyExit is data-dependent at benchmarks/compatibility/")


def test_examine_says_when_no_channel_can_be_cut(part: Part) -> None:
    found = part("examine").examine(architecture(part, lambda: nn.Linear(6, 3)))
    assert (found.result, found.shares) == ("whole", (1.0, 1.0, 1.0))


def test_examine_counts_an_error_that_is_no_refusal_as_a_fault(part: Part) -> None:
    found = part("examine").examine(architecture(part, lambda: nn.Linear(6, "three")))
    assert found.result == "crashed"
    assert found.reason.startswith("TypeError: ")
    assert part("examine").faults([found]) == [found]


def test_examine_finds_a_full_width_that_differs_in_the_last_bits(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract = ww.WidthSpace.extract

    def off(self: ww.WidthSpace, model: nn.Module, spec: ww.SliceSpec) -> nn.Module:
        sub = extract(self, model, spec)
        load_(sub, {name: value * (1 + 1e-6) for name, value in sub.named_parameters()})
        return sub

    monkeypatch.setattr(ww.WidthSpace, "extract", off)
    found = part("examine").examine(architecture(part))
    assert found.result == "wrong"
    assert found.reason == "the sub-model of full width differs from the model in evaluation"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            lambda params, covered: ({n: p + covered[n] for n, p in params.items()}, covered),
            "is not the mean of the",
        ),
        (lambda params, covered: (params, {n: ~c for n, c in covered.items()}), "is covered where no client"),
    ],
)
def test_examine_finds_a_round_that_is_no_mean_of_the_holders(
    part: Part, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any], reason: str
) -> None:
    aggregate = ww.aggregate
    monkeypatch.setattr(ww, "aggregate", lambda *given: fault(*aggregate(*given)))
    found = part("examine").examine(architecture(part))
    assert found.result == "wrong"
    assert reason in found.reason


def test_ordered_groups_finds_axes_that_are_not_cut_together(part: Part) -> None:
    torch.manual_seed(0)
    model, inputs = net(), torch.randn(4, 6)
    space = ww.trace(model, inputs)

    def outputs(module: nn.Module) -> list[Tensor]:
        return [module(inputs)]

    assert part("reorder").ordered_groups(model, space, outputs) == []
    # The second group without its axis of the last layer: what a missing coupling looks like.
    last = replace(space.parameters["4.weight"], axes=((3,), (8,)))
    broken = SimpleNamespace(
        groups=space.groups, parameters={**space.parameters, "4.weight": last}, buffers=space.buffers
    )
    assert part("reorder").ordered_groups(model, broken, outputs) == [space.groups[1].name]


def test_ordered_groups_moves_every_channel(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, list[int]]] = []
    order = part("reorder")._order
    monkeypatch.setattr(
        part("reorder"), "_order", lambda axis, counts, to: seen.append(to) or order(axis, counts, to)
    )
    model, inputs = net(), torch.randn(4, 6)
    part("reorder").ordered_groups(model, ww.trace(model, inputs), lambda module: [module(inputs)])
    moved = [(place, channel) for to in seen for own in to.values() for place, channel in enumerate(own)]
    assert moved
    assert all(place != channel for place, channel in moved)


class Heads(nn.Module):
    """Three heads of three channels: as many whole heads as channels inside each."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(9, 9) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).view(x.shape[0], -1, 3, 3).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = torch.softmax(q @ k.mT, -1) @ v
        return self.out((mixed + q + k).transpose(1, 2).flatten(2))


def heads(part: Part) -> Any:
    return part("architecture").Architecture("Heads", "tests", Heads, lambda: (torch.randn(4, 5, 9),))


def test_examine_tells_whole_heads_from_channels_inside_each(part: Part) -> None:
    found = part("examine").examine(heads(part))
    assert (found.result, found.groups, found.inside) == ("works", 1, "works")


def test_examine_trains_what_is_cut_inside_heads_too(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    aggregate, calls = ww.aggregate, []

    def spoil_the_second(*given: Any) -> Any:
        calls.append(given)
        params, covered = aggregate(*given)
        return ({n: p + covered[n] for n, p in params.items()} if len(calls) > 1 else params), covered

    monkeypatch.setattr(ww, "aggregate", spoil_the_second)
    found = part("examine").examine(heads(part))
    assert found.result == "wrong"
    assert "is not the mean of the clients" in found.reason


def test_ordered_groups_does_not_count_a_group_norm_as_symmetric(part: Part) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.Linear(8, 3))
    found = part("examine").examine(architecture(part, lambda: model))
    assert (found.result, found.groups, found.ordered) == ("works", 1, 1)


def test_page_shows_the_figures_of_every_architecture(part: Part) -> None:
    rows = part("page").read(DOCS)
    assert [row.name for row in rows] == list(part("zoos").ARCHITECTURES)
    page = (DOCS / "compatibility.md").read_text(encoding="utf-8")
    assert page.endswith(part("page").tables(rows))


def test_page_has_architectures_of_libraries_that_work_and_no_fault(part: Part) -> None:
    rows = part("page").read(DOCS)
    assert part("examine").faults(rows) == []
    libraries = [row for row in rows if row.family in ("transformers", "modules of torch")]
    assert len(libraries) >= 25
    assert sum(row.result == "works" for row in libraries) >= 20


def test_page_lists_what_does_not_work_apart(part: Part) -> None:
    make = part("examine").Row
    works = make("A", "tests", "works", "", 1200, 2, 0.5, (0.1, 0.25, 0.6), 0, "same")
    refused = make("B", "tests", "refused", "an | axis")
    above, below = part("page").tables([works, refused]).split("## Not sliced")
    assert "| A | 1,200 | 2 | 0.5 | 0.10 / 0.25 / 0.60 | same |" in above
    assert "B" not in above
    assert "| B | refused | an \\| axis |" in below
