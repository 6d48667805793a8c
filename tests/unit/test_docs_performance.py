"""The performance page against the results that it is made from, and the program that writes it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))  # benchmarks are no package that is installed

from benchmarks import (  # noqa: E402
    aggregation,
    cohort,
    cost_law,
    figures,
    overhead,
    page,
    precision,
    registered_clients,
    scaling,
)
from benchmarks.peers import table as peers  # noqa: E402

ENVIRONMENT = {
    "time": "2026-01-02T03:04:05+00:00",
    "commit": "0123456789ab",
    "python": "3.11.9",
    "packages": {"torch": "2.13.0"},
    "processor": "a processor",
    "cores": 2,
    "cpu_capability": "AVX2",
}


def document(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"environment": ENVIRONMENT, "load": 0.04, "rows": list(rows)}


def performance() -> str:
    return (DOCS / page.PAGE).read_text(encoding="utf-8")


def test_page_shows_the_stored_results() -> None:
    assert page.filled(performance(), page.texts(DOCS)) == performance()


def test_figures_are_drawn_from_the_stored_results() -> None:
    results = DOCS / page.RESULTS
    drawn = {file.stem: file.read_text(encoding="utf-8") for file in results.glob("*.svg")}
    measured = {
        name: part for name, part in page.PARTS.items() if part.figure and (results / f"{name}.json").exists()
    }
    assert drawn.keys() == measured.keys()
    for name, drawing in drawn.items():
        assert drawing.startswith("<svg")
        assert drawing.endswith(f"</svg>\n{page.source_note(results / f'{name}.json')}\n")


def test_page_has_a_section_for_every_part_that_the_summary_links_to() -> None:
    headings = [line.removeprefix("## ") for line in performance().splitlines() if line.startswith("## ")]
    assert {part.section for part in page.PARTS.values()} <= set(headings)


def test_every_stored_result_belongs_to_a_part() -> None:
    assert {file.stem for file in (DOCS / page.RESULTS).glob("*.json")} <= set(page.PARTS)


PAGE = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y-z: begin -->\n<!-- y-z: end -->\n"


def test_filled_puts_each_part_between_its_markers() -> None:
    once = page.filled(PAGE, {"x": r"new \1", "y-z": "| t |"})
    assert once == (
        "a\n<!-- x: begin -->\n\nnew \\1\n\n<!-- x: end -->\n"
        "b\n<!-- y-z: begin -->\n\n| t |\n\n<!-- y-z: end -->\n"
    )
    assert page.filled(once, {"x": r"new \1", "y-z": "| t |"}) == once


@pytest.mark.parametrize("names", [["x"], ["x", "y-z", "w"], ["x", "w"]])
def test_filled_refuses_a_page_with_other_markers(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"the page has markers for \['x', 'y-z'\], but the parts are"):
        page.filled(PAGE, dict.fromkeys(names, ""))


def test_write_makes_a_page_and_figures_of_what_is_measured(tmp_path: Path) -> None:
    results = tmp_path / page.RESULTS
    results.mkdir(parents=True)
    (tmp_path / "results" / "precision").symlink_to(DOCS / "results" / "precision")
    markers = (f"<!-- {name}: begin -->\n<!-- {name}: end -->\n" for name in page.texts(DOCS))
    (tmp_path / page.PAGE).write_text("".join(markers))
    (results / "registered_clients.json").write_text(
        json.dumps(document(registered(10, 1), registered(20, 2)))
    )
    page.write(tmp_path)
    text = (tmp_path / page.PAGE).read_text()
    assert "* [Memory](#memory): with 20 registered clients" in text
    assert '<img src="results/benchmarks/registered_clients.svg" width="461" height=' in text
    assert "server 100 MiB with 10 and 200 with 20, worker 51 MiB with 10 and 52 with 20" in text
    assert (
        "[Figures](results/benchmarks/registered_clients.json): a processor, 2 cores (AVX2), load 0.0 before "
        "the start, Python 3.11.9, torch 2.13.0, commit `0123456789ab`, 2026-01-02."
    ) in text
    assert "*Not measured yet: `python -m benchmarks cohort`.*" in text
    assert "*Not measured yet: `make peers`.*" in text
    assert [file.name for file in results.glob("*.svg")] == ["registered_clients.svg"]


def registered(clients: int, times: int) -> dict[str, Any]:
    return {
        "clients": clients,
        "cohort": 5,
        "workers": 2,
        "setup_s": 0.25 * times,
        "round_s": 1.0,
        "server_mib": 100.0 * times,
        "worker_mib": 50.0 + times,
    }


def test_registered_clients_headline_compares_the_last_with_the_first() -> None:
    rows = registered(1000, 1), registered(5000, 3), registered(10_000, 2)
    assert registered_clients.headline(document(*rows)) == (
        "with 10,000 registered clients, peak memory is 2.00 (server) and 1.02 (worker) times that with "
        "1,000 (aim: at most 1.10), and set-up takes 0.5 s (aim: at most 10)."
    )


def test_cohort_headline_names_what_grows_most() -> None:
    def row(method: str, size: int, server: float) -> dict[str, Any]:
        return {"method": method, "cohort": size, "server_mib": server, "models_mib": size / 2}

    rows = row("a", 10, 100.0), row("a", 3000, 110.0), row("b", 10, 200.0), row("b", 1000, 300.0)
    assert cohort.headline(document(*rows, row("b", 3000, 280.0))) == (
        "with up to 3,000 clients a round, whose models would take 1,500 MiB, the server's peak memory is at "
        "most 1.50 times (b) that with 10."
    )


def test_cost_law_headline_names_the_papers_network_at_both_precisions() -> None:
    def row(model: str, precision: str, width: float, ratio: float) -> dict[str, Any]:
        found = {"model": model, "precision": precision, "width": width, "ms_per_sample": 1.0}
        return {**found, "time_ratio": ratio, "mac_ratio": width**2}

    rows = [
        row("cnn", precision, width, width + more)
        for precision, more in (("fp32", 0.09), ("bf16", 0.05))
        for width in cost_law.WIDTHS
    ]
    assert cost_law.headline(document(*rows, row("mlp", "fp32", 0.5, 0.1))) == (
        "the paper's CNN takes, of its time at full width, 0.590 at width 0.5 (MACs 0.250), 0.340 at width "
        "0.25 (MACs 0.062) in fp32; 0.550 at width 0.5 (MACs 0.250), 0.300 at width 0.25 (MACs 0.062) in "
        "bf16 (aim, at the better precision: at most 0.11 at width 0.25 and 0.30 at width 0.5)."
    )


def test_cost_law_without_bf16_says_why_and_is_shown_and_drawn() -> None:
    found = [
        {"model": "cnn", "precision": "fp32", "width": width, "ms_per_sample": 1.0, "gflops": 1.0}
        | {"time_ratio": width, "mac_ratio": width**2}
        for width in cost_law.WIDTHS
    ]
    result = {**document(*found), "bfloat16": False}
    assert cost_law.table(result).endswith(
        "| cnn | fp32 | 1 | 1 | 0.750 (0.562) | 0.500 (0.250) | 0.250 (0.062) |\n\n"
        "bf16 was not tried: this CPU has no instructions for bfloat16."
    )
    assert "0.250 at width 0.25 (MACs 0.062) in fp32 (aim" in cost_law.headline(result)
    (panel,) = figures.cost_law(result).figure.axes
    assert panel.get_title() == "fp32"


def test_scaling_takes_speed_ups_from_one_process_of_the_same_kind() -> None:
    seconds = {
        ("serial", 1): 4.0,
        ("process", 1): 5.0,
        ("process", 2): 2.5,
        (scaling.COPIES, 1): 4.0,
        (scaling.COPIES, 2): 2.5,
    }
    rows = list(scaling._speed_ups(scaling.WORK[0], seconds))
    assert [(row["speed_up"], row["efficiency"]) for row in rows] == [
        (1.25, 1.25),
        (1.0, 1.0),
        (2.0, 1.0),
        (1.0, 1.0),
        (1.6, 0.8),
    ]
    assert rows[0]["samples_per_second"] == 20 * 64 / 4.0
    assert scaling.headline(document(*rows)) == (
        "speed-up with 2 worker processes: 2.00 for the paper's CNN, slices (independent copies: 1.60)."
    )


def test_scaling_doubles_the_processes_up_to_the_most() -> None:
    assert [scaling._counts(most) for most in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


@pytest.mark.parametrize("name", cohort.METHODS)
def test_cohort_has_valid_work_for_every_method(name: str) -> None:
    fed = cohort._work(name, 10).federation()
    assert (fed.task.num_clients, fed.training.cohort) == (3000, 10)


def test_overhead_and_aggregation_headlines_take_their_rows() -> None:
    rows = [
        {"work": "CNN", "share": 0.975, "engine_ms_per_client": 9.0, "bare_ms_per_client": 9.0},
        {
            "work": overhead.NOTHING.name,
            "share": 0.5,
            "engine_ms_per_client": 0.2,
            "bare_ms_per_client": 0.1,
        },
    ]
    assert overhead.headline(document(*rows)) == (
        "0.97 of the bare loop's samples a second for the CNN (aim: at least 0.90); a client with nothing to "
        "train costs 0.2 ms, in the bare loop 0.1."
    )
    assert aggregation.headline(document({"to_copy": 0.5, "gb_per_second": 3.0}, {"to_copy": 0.1})) == (
        "updates are folded at 0.50 of the bandwidth of copying them (aim: at least 0.50), 3.0 GB a second "
        "on one thread; at 0.10 where neighbours differ in width, which those of a round do not."
    )


def test_precision_pairs_runs_of_one_seed(tmp_path: Path) -> None:
    file = tmp_path / "results.csv"
    lines = ["label,seed,commit,final_accuracy"]
    # Differences of 1, 2 and 3 points: mean 2, sd 1, and half of the interval is 4.303 / sqrt(3).
    for seed, accuracy, gain in ((1, 0.5, 0.01), (2, 0.6, 0.02), (3, 0.7, 0.03)):
        lines += [f"a,{seed},c1,{accuracy}", f"a-bf16,{seed},c2,{accuracy + gain}"]
    file.write_text("\n".join([*lines, "alone,1,c1,0.9"]))
    *_, row, empty, commits = precision.table(file).splitlines()
    assert row == "| a | 60.0 ± 10.0 | 62.0 ± 11.0 | +2.0 [−0.5, +4.5] |"
    assert (empty, commits) == ("", "7 runs at `c1`, `c2`.")


def test_readme_has_the_measured_multiples() -> None:
    found = json.loads((DOCS / page.RESULTS / "peers.json").read_text())
    headline = peers.headline(found)
    times = {
        setting: {precision: number for number, precision in re.findall(r"([\d.]+) in (\w+)", part)}
        for setting, part in re.findall(r"([A-C]) ([^;]+)", headline)
    }
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    one, other, tiny = times["A"], times["B"], times["C"]
    assert f"paper's CNN {one['fp32']} in float32 and {one['bf16']} in bfloat16" in readme
    assert f"pfl's own benchmark {other['fp32']} and {other['bf16']}" in readme
    assert f"tiny perceptron {tiny['fp32']}" in readme
