"""Slices that are not nested, against slow and plain versions of the same thing."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from widthwise.aggregation import CoordinateMean, aggregate
from widthwise.core.params import Params, clone
from widthwise.core.records import ClientReport, ClientTask, LocalConfig, Mask, SliceSpec
from widthwise.core.seeds import SeedTree
from widthwise.heterogeneity import ESTIMATORS, intersection
from widthwise.slicing import SELECTORS, Moment, WidthSpace, trace
from widthwise.training import OBJECTIVES, ModuleCache, train

WIDTHS = (0.2, 0.5, 0.8, 1.0)


class Net(nn.Module):
    """Convolutions with a residual connection and a flattened image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 5, 3, padding=1)
        self.back = nn.Conv2d(5, 5, 1)
        self.head = nn.Linear(5 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        return self.head(torch.flatten(x + torch.relu(self.back(x)), 1))


def build() -> tuple[Net, WidthSpace, Params]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Net()
    return model, trace(model, torch.zeros(2, 1, 2, 2)), clone(dict(model.named_parameters()))


MODEL, SPACE, PARAMS = build()


def spec_of(selector: str, width: float, client: int = 0, round_index: int = 0) -> SliceSpec:
    moment = Moment(client, round_index, SeedTree(5), PARAMS)
    return SELECTORS[selector].value().select(SPACE, width, moment)


def slow_mean(
    updates: list[tuple[SliceSpec, Params, int]],
) -> tuple[dict[str, list[float]], dict[str, list[bool]]]:
    """Return mean and coverage, coordinate by coordinate, from indices that the channels give by hand."""
    means: dict[str, list[float]] = {}
    covered: dict[str, list[bool]] = {}
    for name, value in PARAMS.items():
        means[name], covered[name] = [], []
        for place in product(*(range(n) for n in value.shape)):
            total = weight = 0.0
            for spec, delta, count in updates:
                local = locate(name, place, spec)
                masked = spec.mask is not None and name in spec.mask.kept and not spec.mask.kept[name][place]
                if local is not None and not masked:
                    total, weight = total + count * float(delta[name][local]), weight + count
            means[name].append(total / weight if weight else 0.0)
            covered[name].append(weight > 0)
    return means, covered


def locate(name: str, place: tuple[int, ...], spec: SliceSpec) -> tuple[int, ...] | None:
    """Return where a global coordinate lies in a slice, None outside. All five channels are one group."""
    (channels,) = (list(kept) for kept in spec.kept.values())
    axes = {
        "stem.weight": (0,),
        "stem.bias": (0,),
        "back.weight": (0, 1),
        "back.bias": (0,),
        "head.weight": (1,),
    }
    local = list(place)
    for axis in axes.get(name, ()):
        channel, pixel = divmod(place[axis], 4) if name == "head.weight" else (place[axis], 0)
        if channel not in channels:
            return None
        pixels = 4 if name == "head.weight" else 1
        local[axis] = channels.index(channel) * pixels + pixel
    return tuple(local)


clients = st.tuples(
    st.sampled_from(SELECTORS.names()),
    st.sampled_from(WIDTHS),
    st.integers(0, 3),
    st.integers(0, 6),
    st.integers(1, 9),
)


@settings(deadline=None, max_examples=12)
@given(cohort=st.lists(clients, min_size=1, max_size=5), seed=st.integers(0, 2**31))
def test_aggregation_equals_a_loop_over_coordinates_for_cohorts_of_mixed_widths_and_selectors(
    cohort: list[tuple[str, float, int, int, int]], seed: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    updates = []
    for name, width, client, round_index, count in cohort:
        spec = spec_of(name, width, client, round_index)
        # Values outside a mask must not count, whatever a client sends there.
        delta = {n: torch.randn(shape, generator=rng) for n, shape in SPACE.shapes(spec).items()}
        updates.append((spec, delta, count))
    params, covered = aggregate(SPACE, PARAMS, updates)
    means, held = slow_mean(updates)
    for name, value in PARAMS.items():
        assert covered[name].flatten().tolist() == held[name]
        expected = value.double().flatten() + torch.tensor(means[name], dtype=torch.float64)
        torch.testing.assert_close(params[name].double().flatten(), expected, rtol=1e-6, atol=1e-6)


class Data:
    """Eight small images of three classes."""

    inputs = torch.randn(8, 1, 2, 2, generator=torch.Generator().manual_seed(3))
    targets = torch.arange(8) % 3

    def __len__(self) -> int:
        return 8

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        return self.inputs[indices], self.targets[indices]


def report_of(spec: SliceSpec, objective: str = "plain", steps: int = 3, **config: float) -> ClientReport:
    state = {
        name: {n: torch.zeros(value.shape) for n, value in PARAMS.items()}
        for name in ("client_control", "server_control")
    }
    settings_ = {"lr": 0.3, "momentum": 0.0, "weight_decay": 0.0, "clip_norm": None, **config}
    return train(
        ClientTask(
            client_id=0,
            round_index=0,
            spec=spec,
            context_spec=spec,
            capacity=1.0,
            params=spec.masked(SPACE.take(PARAMS, spec)),
            buffers={},
            state={name: spec.masked(SPACE.take(tensors, spec)) for name, tensors in state.items()},
            config=LocalConfig(local_epochs=steps, batch_size=8, **settings_),  # type: ignore[arg-type]
            seed=1,
        ),
        space=SPACE,
        module_for=ModuleCache(SPACE),
        dataset=Data(),
        indices=torch.arange(8),
        objective=OBJECTIVES[objective].value(),
    )


def fiarse_by_hand(mask: Mask, steps: int, lr: float) -> Params:
    """Return the update of a client that follows FIARSE's rule on the original model, written out."""
    model = Net()
    start = {n: v * mask.kept[n] if n in mask.kept else v for n, v in PARAMS.items()}
    weights = clone(start)
    for _ in range(steps):
        active = {
            n: (mask.kept[n] & (w.abs() >= mask.thresholds[n])).float()
            if n in mask.kept
            else torch.ones_like(w)
            for n, w in weights.items()
        }
        with torch.no_grad():
            for n, p in model.named_parameters():
                p.copy_(weights[n] * active[n])
        model.zero_grad()
        cross_entropy(model(Data.inputs), Data.targets).backward()
        for n, p in model.named_parameters():
            theta, size = mask.thresholds.get(n, 0.0), weights[n].abs()
            slope = 1 + 2 * theta * size / (size + theta) ** 2 if theta else 1.0
            assert p.grad is not None
            weights[n] = weights[n] - lr * p.grad * active[n] * slope
    return {n: weights[n] - start[n] for n in weights}


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_training_under_a_mask_follows_the_published_rule(scope: str) -> None:
    spec = SELECTORS["magnitude"].value(mask_scope=scope).ship(SPACE, 0.5, PARAMS)
    assert spec.mask is not None
    report = report_of(spec)
    expected = fiarse_by_hand(spec.mask, steps=3, lr=0.3)
    for name, value in report.delta.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)
    # It matters: with the weights alone and no slope, the update is another one.
    plain = fiarse_by_hand(Mask(spec.mask.kept, dict.fromkeys(spec.mask.kept, 0.0)), steps=3, lr=0.3)
    assert max(float((report.delta[n] - plain[n]).abs().max()) for n in plain) > 1e-3


@pytest.mark.parametrize("objective", ["plain", "proximal", "control-variates"])
def test_nothing_moves_outside_the_mask(objective: str) -> None:
    spec = spec_of("magnitude", 0.5)
    assert spec.mask is not None
    report = report_of(spec, objective, momentum=0.9, weight_decay=0.1, clip_norm=0.5)
    for tensors in (report.delta, *report.state.values()):
        for name, kept in spec.mask.kept.items():
            assert not tensors[name][~kept].any()
            assert tensors[name][kept].any()


@pytest.mark.parametrize("selector", ["rolling", "random-aligned", "importance"])
def test_dense_slice_trains_like_the_masked_full_model(selector: str) -> None:
    # Channels outside are silenced by zero weights and biases, and their gradients are dropped: what is left
    # is the slice.
    spec = spec_of(selector, 0.5, client=1, round_index=4)
    masks = SPACE.mask(spec)
    model, inputs = Net(), Data.inputs
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(PARAMS[name] * masks[name])
    for _ in range(3):
        model.zero_grad()
        cross_entropy(model(inputs), Data.targets).backward()
        with torch.no_grad():
            for name, p in model.named_parameters():
                assert p.grad is not None
                p -= 0.3 * p.grad * masks[name]
    found = {name: torch.zeros_like(value) for name, value in PARAMS.items()}
    SPACE.scatter_add_(found, report_of(spec).delta, spec)
    for name, p in model.named_parameters():
        torch.testing.assert_close(found[name], p.detach() - PARAMS[name] * masks[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS.names())
def test_estimators_compare_masked_clients_on_their_masks(estimator: str) -> None:
    # By hand on flat vectors: a coordinate counts for a client (restricted) or for all (common core) where
    # the masks keep it.
    specs = [spec_of("magnitude", 0.5), spec_of("magnitude", 0.8), SPACE.full()]
    rng = torch.Generator().manual_seed(2)
    shapes = {n: v.shape for n, v in PARAMS.items()}
    deltas = [spec.masked({n: torch.randn(s, generator=rng) for n, s in shapes.items()}) for spec in specs]
    stats = CoordinateMean({n: tuple(s) for n, s in shapes.items()})
    reports = []
    for i, (spec, delta) in enumerate(zip(specs, deltas, strict=True)):
        stats.add_(SPACE, spec, delta, 1.0)
        reports.append(ClientReport(i, 0, spec, delta, 1, 1, {"loss": 0.0}))
    mean, _ = stats.mean()
    flat = torch.cat([mean[n].flatten() for n in shapes])
    held = [
        torch.cat([spec.masked({n: torch.ones(s) for n, s in shapes.items()})[n].flatten() for n in shapes])
        > 0
        for spec in specs
    ]
    measured = ESTIMATORS[estimator].value().measure(SPACE, reports, mean, intersection(*specs))
    for i, delta in enumerate(deltas):
        on = held[i] if estimator == "restricted" else held[0] & held[1] & held[2]
        own = torch.cat([delta[n].flatten() for n in shapes]).double()
        expected = float((own - flat)[on].square().sum() / flat[on].square().sum())
        assert measured[i] == pytest.approx(expected, rel=1e-9)
