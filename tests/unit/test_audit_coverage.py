from __future__ import annotations

import io
import json
from dataclasses import dataclass
from math import ceil

import pytest
import torch
from rich.console import Console

from widthwise.audit import coverage
from widthwise.core.errors import InputError
from widthwise.core.records import SliceSpec


@dataclass
class TwoLayers:
    """Two linear layers, 3 -> 4 hidden -> 2 classes: only the hidden channels are cut."""

    output_parameters: tuple[str, ...] = ("out.weight", "out.bias")

    def nested(self, width: float) -> SliceSpec:
        return SliceSpec(width, {"hidden": range(ceil(width * 4))})

    def mask(self, spec: SliceSpec) -> dict[str, torch.Tensor]:
        hidden = torch.zeros(4, dtype=torch.bool)
        hidden[list(spec.kept["hidden"])] = True
        return {
            "hidden.weight": hidden[:, None].expand(4, 3),
            "hidden.bias": hidden,
            "out.weight": hidden[None, :].expand(2, 4),
            "out.bias": torch.ones(2, dtype=torch.bool),
        }


def test_coverage_counts_what_nobody_can_train():
    report = coverage(TwoLayers(), [0.25, 0.5, 0.5])
    # Width 0.5 keeps 2 of 4 hidden channels: 6 of 12, 2 of 4, 4 of 8 and 0 of 2 coordinates are lost.
    assert report.never_trained_fraction == pytest.approx(12 / 26)
    assert report.output_path_fraction == pytest.approx(4 / 10)
    assert json.loads(json.dumps(report.to_json()))["parameters"] == [
        {"name": "hidden.weight", "shape": [4, 3], "never_trained": 6, "fraction": 0.5},
        {"name": "hidden.bias", "shape": [4], "never_trained": 2, "fraction": 0.5},
        {"name": "out.weight", "shape": [2, 4], "never_trained": 4, "fraction": 0.5},
        {"name": "out.bias", "shape": [2], "never_trained": 0, "fraction": 0.0},
    ]
    assert set(report.to_json()) == {"never_trained_fraction", "output_path_fraction", "parameters"}
    assert report.sentence.startswith(
        "46.2% of the model's coordinates (40.0% of the output path) can never be trained, because no client "
        "reaches a width above 0.5"
    )


def test_coverage_is_complete_when_one_client_has_the_full_width():
    report = coverage(TwoLayers(), [0.25, 1.0])
    assert (report.never_trained_fraction, report.output_path_fraction) == (0.0, 0.0)
    assert report.sentence == "Every coordinate of the model can be trained by at least one client."


def test_coverage_has_no_output_path_when_no_parameter_lies_on_it():
    assert coverage(TwoLayers(output_parameters=()), [0.5]).output_path_fraction == 0.0


@pytest.mark.parametrize(("width", "rows"), [(0.5, 3), (1.0, 0)])
def test_coverage_prints_the_parameters_that_lose_coordinates(width, rows):
    out = io.StringIO()
    Console(file=out, width=120).print(coverage(TwoLayers(), [width]))
    assert sum(" 50.0%" in line and "│" in line for line in out.getvalue().splitlines()) == rows


def test_coverage_refuses_no_widths_and_widths_out_of_range():
    with pytest.raises(InputError, match="the list of widths is empty, but coverage needs one per client"):
        coverage(TwoLayers(), [])
    with pytest.raises(
        InputError, match=r"a width is 1\.5, but it must lie in \(0, 1\]\. Mend the capacities"
    ):
        coverage(TwoLayers(), [0.5, 1.5])
