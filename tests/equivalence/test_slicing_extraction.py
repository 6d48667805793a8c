"""A dense sub-model against an independent slicing, against the masked full model, and against the model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from widthwise.core.params import load_
from widthwise.core.records import SliceSpec
from widthwise.slicing import WidthSpace, trace


class Recurrent(nn.Module):
    """A recurrent layer of which the last step's output is classified."""

    def __init__(self, layer: nn.RNNBase, classes: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, layer.input_size)
        self.rnn = layer
        self.fc = nn.Linear(layer.hidden_size * (2 if layer.bidirectional else 1), classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.fc(self.rnn(self.embed(tokens))[0][:, -1])


class Residual(nn.Module):
    """Two residual blocks with a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3, padding=1)
        self.a, self.b = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 1)
        self.side = nn.Conv2d(6, 4, 1)
        self.head = nn.Conv2d(10, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.stem(x))
        h = h + self.b(functional.relu(self.a(h)))
        return self.head(torch.cat([h, self.side(h)], dim=1)).mean(dim=(2, 3))


class HandMadeLSTM(nn.Module):
    """An LSTM written out: its four gates are chunks of one linear layer."""

    def __init__(self, hidden: int = 5) -> None:
        super().__init__()
        self.inputs, self.recurrent = nn.Linear(4, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)
        self.fc = nn.Linear(hidden, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], self.fc.in_features)
        for t in range(x.shape[1]):
            i, f, g, o = (self.inputs(x[:, t]) + self.recurrent(h)).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.fc(h)


class Attention(nn.Module):
    """One residual self-attention block: heads are cut whole."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 12)
        self.attention = nn.MultiheadAttention(12, num_heads=4, batch_first=True)
        self.fc = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        return self.fc((h + self.attention(h, h, h, need_weights=False)[0]).mean(dim=1))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(8, 9), nn.Tanh(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 3)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(6, 5, 3, stride=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(5, 7),
        nn.ReLU(),
        nn.Linear(7, 3),
    )


def aligned_group_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 8, 3),
        nn.GroupNorm(4, 8),
        nn.ReLU(),
        nn.Conv2d(8, 4, 3),
        nn.Flatten(),
        nn.Linear(4 * 25, 3),
    )


def depthwise() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 12, 3, groups=6), nn.Flatten(), nn.Linear(12 * 25, 3)
    )


def conv1d() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 6, 3), nn.PReLU(6), nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(12, 3)
    )


def lstm() -> nn.Module:
    return Recurrent(nn.LSTM(4, 6, num_layers=2, batch_first=True))


def gru() -> nn.Module:
    return Recurrent(nn.GRU(4, 5, num_layers=2, batch_first=True, bidirectional=True))


def plain_rnn() -> nn.Module:
    return Recurrent(nn.RNN(4, 6, bias=False, batch_first=True))


def image() -> Tensor:
    return torch.randn(3, 2, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def sequence(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def tokens() -> Tensor:
    return torch.randint(7, (3, 6), generator=torch.Generator().manual_seed(1))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (mlp, sequence(3, 2, 4)),
    "cnn": (cnn, image),
    "group norm": (aligned_group_norm, image),
    "depthwise": (depthwise, image),
    "conv1d": (conv1d, sequence(3, 2, 9)),
    "residual": (Residual, image),
    "lstm": (lstm, tokens),
    "gru": (gru, tokens),
    "rnn": (plain_rnn, tokens),
    "hand-made lstm": (HandMadeLSTM, sequence(3, 4, 4)),
    "attention": (Attention, sequence(3, 5, 4)),
}
Traced = tuple[nn.Module, WidthSpace, Tensor]


@pytest.fixture(scope="module")
def traced() -> Callable[[str], Traced]:
    known: dict[str, Traced] = {}

    def get(name: str) -> Traced:
        if name not in known:
            build, inputs = MODELS[name]
            with torch.random.fork_rng():
                torch.manual_seed(0)
                model = build().double()
            x = inputs()
            known[name] = (model, trace(model, x), x)
        return known[name]

    return get


def gradients(module: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    module.zero_grad()
    output = module(x)
    functional.cross_entropy(output, torch.arange(len(x)) % output.shape[1]).backward()
    return output.detach(), {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def scattered(space: WidthSpace, seed: int) -> SliceSpec:
    """Keep about half of the channels of each group, anywhere; pairs of channels where there are eight."""
    rng = torch.Generator().manual_seed(seed)
    kept = {}
    for group in space.groups:
        step = 2 if group.size == 8 else 1  # the norm groups of two channels stay together
        blocks = torch.randperm(group.size // step, generator=rng)[: max(1, group.size // (2 * step))]
        kept[group.name] = tuple(sorted(step * int(b) + i for b in blocks for i in range(step)))
    return SliceSpec(0.5, kept)


@pytest.mark.parametrize("name", MODELS)
def test_dense_sub_model_equals_the_masked_full_model(name: str, traced: Callable[[str], Traced]) -> None:
    model, space, x = traced(name)
    widths = (0.5, 0.75) if name == "group norm" else (0.2, 0.5, 0.83)
    for spec in (*map(space.nested, widths), scattered(space, 1), scattered(space, 2)):
        mask = space.mask(spec)
        masked = copy.deepcopy(model)
        with torch.no_grad():
            for parameter_name, parameter in masked.named_parameters():
                parameter.mul_(mask[parameter_name])
        expected, full_gradients = gradients(masked, x)
        output, own_gradients = gradients(space.extract(model, spec), x)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)
        kept = space.take(full_gradients, spec)
        assert kept.keys() == own_gradients.keys()
        for parameter_name, gradient in own_gradients.items():
            torch.testing.assert_close(gradient, kept[parameter_name], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_full_width_is_the_model_to_the_bit(name: str, traced: Callable[[str], Traced]) -> None:
    model, space, x = traced(name)
    output, own = gradients(space.extract(model, space.full()), x)
    expected, theirs = gradients(model, x)
    assert torch.equal(output, expected)
    assert own.keys() == theirs.keys()
    assert all(torch.equal(own[key], theirs[key]) for key in own)


@pytest.mark.parametrize("name", MODELS)
def test_scatter_brings_back_what_extract_took(name: str, traced: Callable[[str], Traced]) -> None:
    model, space, _ = traced(name)
    for spec in (space.nested(0.4), scattered(space, 3)):
        sub = space.extract(model, spec)
        into = {key: torch.zeros_like(p) for key, p in model.named_parameters()}
        space.scatter_add_(into, {key: p.detach() for key, p in sub.named_parameters()}, spec)
        for key, mask in space.mask(spec).items():
            assert torch.equal(into[key], mask * model.get_parameter(key))


@pytest.mark.parametrize("name", MODELS)
def test_sub_model_runs_at_batch_one_and_any_other(name: str, traced: Callable[[str], Traced]) -> None:
    model, space, x = traced(name)
    sub = space.extract(model, space.nested(0.5)).eval()
    together = sub(torch.cat([x, x]))
    for i in range(len(x)):
        torch.testing.assert_close(sub(x[i : i + 1])[0], together[i], rtol=0, atol=1e-12)


# Independent slicings: each spells out, tensor by tensor, what a width of one half keeps.


def check(traced: Traced, small: nn.Module, expected: Mapping[str, Tensor]) -> None:
    model, space, x = traced
    sub = space.extract(model, space.nested(0.5))
    assert {key: tuple(p.shape) for key, p in sub.named_parameters()} == {
        key: tuple(p.shape) for key, p in small.named_parameters()
    }
    for key, value in expected.items():
        assert torch.equal(sub.get_parameter(key), value), key
    load_(small, expected)
    torch.testing.assert_close(sub(x), small(x), rtol=0, atol=1e-12)


def test_extract_equals_the_slicing_by_hand_of_an_mlp(traced: Callable[[str], Traced]) -> None:
    w = dict(traced("mlp")[0].named_parameters())
    expected = {
        "1.weight": w["1.weight"][:5],
        "1.bias": w["1.bias"][:5],
        "3.weight": w["3.weight"][:4, :5],
        "3.bias": w["3.bias"][:4],
        "5.weight": w["5.weight"][:, :4],
        "5.bias": w["5.bias"],
    }
    small = nn.Sequential(
        nn.Flatten(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)
    )
    check(traced("mlp"), small.double(), expected)


def test_extract_equals_the_slicing_by_hand_of_a_cnn_with_group_norm(traced: Callable[[str], Traced]) -> None:
    w = dict(traced("group norm")[0].named_parameters())
    expected = {
        **{key: w[key][:4] for key in ("0.weight", "0.bias", "1.weight", "1.bias")},
        "3.weight": w["3.weight"][:2, :4],
        "3.bias": w["3.bias"][:2],
        "5.weight": w["5.weight"][:, : 2 * 25],
        "5.bias": w["5.bias"],
    }
    small = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(50, 3)
    )
    check(traced("group norm"), small.double(), expected)


def test_extract_equals_the_slicing_by_hand_of_an_lstm(traced: Callable[[str], Traced]) -> None:
    w = dict(traced("lstm")[0].named_parameters())
    rows = [gate * 6 + unit for gate in range(4) for unit in range(3)]
    expected = {"embed.weight": w["embed.weight"][:, :2], "fc.weight": w["fc.weight"][:, :3]}
    expected["fc.bias"] = w["fc.bias"]
    for layer, inputs in ((0, 2), (1, 3)):
        expected[f"rnn.weight_ih_l{layer}"] = w[f"rnn.weight_ih_l{layer}"][rows, :inputs]
        expected[f"rnn.weight_hh_l{layer}"] = w[f"rnn.weight_hh_l{layer}"][rows, :3]
        for bias in ("ih", "hh"):
            expected[f"rnn.bias_{bias}_l{layer}"] = w[f"rnn.bias_{bias}_l{layer}"][rows]
    check(traced("lstm"), Recurrent(nn.LSTM(2, 3, num_layers=2, batch_first=True)).double(), expected)


def test_extract_equals_the_slicing_by_hand_of_a_bidirectional_gru(traced: Callable[[str], Traced]) -> None:
    w = dict(traced("gru")[0].named_parameters())
    rows = [gate * 5 + unit for gate in range(3) for unit in range(3)]
    both = [direction * 5 + unit for direction in range(2) for unit in range(3)]
    expected = {"embed.weight": w["embed.weight"][:, :2], "fc.weight": w["fc.weight"][:, both]}
    expected["fc.bias"] = w["fc.bias"]
    for layer, columns in ((0, [0, 1]), (1, both)):
        for way in ("", "_reverse"):
            key = f"l{layer}{way}"
            expected[f"rnn.weight_ih_{key}"] = w[f"rnn.weight_ih_{key}"][rows][:, columns]
            expected[f"rnn.weight_hh_{key}"] = w[f"rnn.weight_hh_{key}"][rows, :3]
            for bias in ("ih", "hh"):
                expected[f"rnn.bias_{bias}_{key}"] = w[f"rnn.bias_{bias}_{key}"][rows]
    small = Recurrent(nn.GRU(2, 3, num_layers=2, batch_first=True, bidirectional=True)).double()
    check(traced("gru"), small, expected)
