"""Tracing: what is followed, what is refused and how, and that the model is left alone."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from widthwise.core.errors import TraceError
from widthwise.slicing import trace
from widthwise.slicing.kernels import DrawnAlike


class Forward(nn.Module):
    """A module of two linear layers whose forward is a function."""

    def __init__(self, forward: Callable[[Forward, Tensor], Tensor], width: int = 8) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, width), nn.Linear(width, 3)
        self.function = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def groups(model: nn.Module, example: Tensor, freeze: tuple[str, ...] = ()) -> dict[str, int]:
    return {group.name: group.size for group in trace(model, example, freeze).groups}


def state(model: nn.Module) -> list[object]:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return [
        [(name, id(value), value._version, value.grad) for name, value in tensors.items()],
        [module.training for module in model.modules()],
        torch.get_rng_state().tolist(),
    ]


def branch_on_data(m: Forward, x: Tensor) -> Tensor:
    if x.sum() > 0:
        return m.last(m.first(x))
    return m.last(m.first(-x))


def read_a_number(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x)) * x.mean().item()


def branch_on_batch(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x if x.shape[0] > 3 else -x))


def loop_over_batch(m: Forward, x: Tensor) -> Tensor:
    return torch.stack([m.last(m.first(row)) for row in x])


def divide_by_batch(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x)) / float(x.shape[0] + 1)


def fixed_batch(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x).view(2, 8))


def unknown_operation(m: Forward, x: Tensor) -> Tensor:
    return m.last(torch.linalg.solve_triangular(x[:, :1, None], m.first(x)[:, None], upper=True)[:, 0])


def unknown_operation_on_a_piece(m: Forward, x: Tensor) -> Tensor:
    one, two = m.first(x).split([3, 5], dim=1)
    return m.last(torch.cat([one, torch.linalg.matrix_exp(two[:, None].expand(-1, 5, -1))[:, 0]], dim=1))


def clamp_weights(m: Forward, x: Tensor) -> Tensor:
    with torch.no_grad():
        m.first.weight.clamp_(-0.1, 0.1)
    return m.last(m.first(x))


def scale_weights_behind_data(m: Forward, x: Tensor) -> Tensor:
    m.first.weight.data[0].mul_(0.5)
    return m.last(m.first(x))


def wrong_size(m: Forward, x: Tensor) -> Tensor:
    return m.last(x)


REFUSED = [
    (
        branch_on_data,
        "is data-dependent at .*test_slicing_trace.py:[0-9]+, but a slice must run the same operat",
    ),
    (read_a_number, r"is data-dependent at .*test_slicing_trace.py:[0-9]+, but"),
    (
        branch_on_batch,
        "the traced Forward differs from the model itself in .* on a batch of [23] samples in its output",
    ),
    (
        loop_over_batch,
        "the forward of Forward depends on the batch size at .*test_slicing_trace.py:[0-9]+, but",
    ),
    (divide_by_batch, "the traced Forward differs from the model itself in training on a batch of 3 samples"),
    (fixed_batch, "the forward of Forward depends on the batch size at .*py:[0-9]+, but batches of clients"),
    (
        unknown_operation,
        r"solve_triangular.default at .*py:[0-9]+ takes \(batch, 1, 1\) and \(batch, 1, 8\), but no rule",
    ),
    (
        unknown_operation_on_a_piece,
        r"matrix_exp.default at .*py:[0-9]+ takes \(batch, 5, 5\), but no rule",
    ),
    (
        clamp_weights,
        r"writes into its parameter 'first.weight' by aten.clamp_.default at .*py:[0-9]+, but only training",
    ),
    (scale_weights_behind_data, r"writes into its parameter 'first.weight' by aten.mul_.Tensor at .*py:"),
    (
        wrong_size,
        r"the forward of Forward fails on the example inputs at .*py:[0-9]+ \(RuntimeError: mat1.*\), but it",
    ),
]


@pytest.mark.parametrize(("forward", "message"), REFUSED, ids=[forward.__name__ for forward, _ in REFUSED])
def test_trace_refuses_by_name_and_place_and_leaves_the_model_alone(
    forward: Callable[[Forward, Tensor], Tensor], message: str
) -> None:
    model = Forward(forward).eval()
    model.first.train()
    before = state(model)
    with pytest.raises(TraceError, match=message):
        trace(model, torch.ones(2, 6))
    assert state(model) == before


def test_trace_leaves_modes_buffers_gradients_and_random_state_alone() -> None:
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 2)
    )
    model(torch.ones(3, 2, 6)).sum().backward()
    model[1].eval()
    before = state(model)
    trace(model, torch.ones(2, 2, 6))
    assert state(model) == before


def test_trace_leaves_an_lstm_and_its_weight_list_alone() -> None:
    model = nn.LSTM(3, 4, batch_first=True)
    before = state(model)
    trace(model, torch.ones(2, 5, 3))
    assert state(model) == before
    assert all(a is b for a, b in zip(model._flat_weights, model.parameters(), strict=True))


def test_trace_accepts_an_example_of_one_sample() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    assert groups(model, torch.ones(1, 6)) == {"0": 8}


def test_trace_refuses_what_is_no_module() -> None:
    with pytest.raises(TraceError, match=r"model is of type function, but only a torch\.nn\.Module has"):
        trace(lambda x: x, torch.ones(2, 3))  # type: ignore[arg-type]


def test_trace_prints_nothing_and_names_the_layer_when_a_layer_of_torch_cannot_be_followed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None))
    with pytest.raises(TraceError, match=r"is data-dependent at .*batchnorm\.py:[0-9]+, but"):
        trace(model, torch.ones(2, 3))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("example", [(), None, torch.tensor(1.0), "x", ("x",), (torch.ones(2, 3), 4)])
def test_trace_refuses_what_is_no_batch(example: object) -> None:
    with pytest.raises(
        TraceError, match=r"example_inputs is .*, but it must be a tensor, a tuple of tensors or a dic"
    ):
        trace(nn.Linear(3, 2), example)  # type: ignore[arg-type]


# freeze


def sequence_model() -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm = nn.Embedding(9, 4), nn.LSTM(4, 6, batch_first=True)
            self.body = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 8), nn.ReLU())
            self.fc, self.spare = nn.Linear(8, 9), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.body(self.lstm(self.embed(x))[0]))

    return Model()


@pytest.mark.parametrize(
    ("freeze", "expected"),
    [
        ((), {"embed": 4, "lstm": 6, "body.0": 5, "body.2": 8}),
        (("embed",), {"lstm": 6, "body.0": 5, "body.2": 8}),
        (("lstm", "body.0"), {"embed": 4, "body.2": 8}),
        (("body",), {"embed": 4, "lstm": 6, "body.0": 5}),
        (("fc",), {"embed": 4, "lstm": 6, "body.0": 5, "body.2": 8}),
    ],
)
def test_freeze_keeps_a_modules_output_channels_whole(
    freeze: tuple[str, ...], expected: dict[str, int]
) -> None:
    space = trace(sequence_model(), torch.zeros(2, 5, dtype=torch.long), freeze)
    assert {group.name: group.size for group in space.groups} == expected
    assert space.freeze == freeze
    assert space.output_parameters == ("fc.weight", "fc.bias")


def test_freeze_refuses_an_unknown_module_with_the_nearest_name() -> None:
    with pytest.raises(
        TraceError, match=r"freeze is 'embd', but no such name is known. Did you mean 'embed'"
    ):
        trace(sequence_model(), torch.zeros(2, 5, dtype=torch.long), ("embd",))


def test_freeze_refuses_a_module_that_never_runs() -> None:
    with pytest.raises(
        TraceError,
        match=r"freeze is 'spare', but that module makes no value that the forward uses\. Remove it from",
    ):
        trace(sequence_model(), torch.zeros(2, 5, dtype=torch.long), ("spare",))


class Regroup(nn.Module):
    """Eight channels and five of the input are regrouped by two, six hidden ones are not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.hidden, self.last = nn.Linear(5, 8), nn.Linear(7, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([self.first(x), x, x[:, :1]], dim=1).view(-1, 7, 2).mean(2)
        return self.last(self.hidden(h))


def test_channels_that_are_regrouped_across_their_borders_stay_whole_and_the_table_says_why() -> None:
    space = trace(Regroup(), torch.ones(2, 5))
    assert {group.name: group.size for group in space.groups} == {"hidden": 6}
    assert space.kept_whole == ("view in the model (an axis of 14 channels is regrouped by 7)",)
    described = " ".join(space.describe().split())
    assert f"Kept whole, as channels do not line up: {space.kept_whole[0]}" in described


# what is followed


class TwoPaths(nn.Module):
    """One layer under two names, as models share position encodings and heads."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(6, 6)
        self.blocks = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 6)])
        self.again = nn.ModuleList([self.own, self.blocks[1]])

    def forward(self, x: Tensor) -> Tensor:
        return self.again[1](self.blocks[0](self.own(self.again[0](x))))


def test_trace_leaves_a_module_alone_that_has_two_paths() -> None:
    model = TwoPaths()
    before = state(model)
    space = trace(model, torch.ones(2, 6))
    assert state(model) == before
    assert {type(p) for p in model.parameters()} == {nn.Parameter}
    assert {group.name: group.size for group in space.groups} == {"blocks.0": 8}
    sub = space.extract(model, space.full())
    assert sub.get_parameter("again.1.weight") is sub.get_parameter("blocks.1.weight")
    assert torch.equal(sub(torch.ones(2, 6)), model(torch.ones(2, 6)))


def layer_norm(m: Forward, x: Tensor) -> Tensor:
    return m.last(functional.layer_norm(m.first(x), [8]))


def gated(m: Forward, x: Tensor) -> Tensor:
    value, gate = m.first(x).chunk(2, dim=1)
    return functional.linear(value * gate.sigmoid(), m.last.weight[:, :4])


def shared_twice(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x) + m.first(-x).abs())


def squeezed(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x)[:, :, None].squeeze())


def one_channel(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x) + m.first(x)[:, 2:3])


def branch_on_mode(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x).relu() if m.training else m.first(x).tanh())


def more_when_training(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x)).relu() if m.training else m.last(m.first(x))


def constant_by_mode(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x)) * torch.tensor([1.0 if m.training else 2.0])


def without_gradient(m: Forward, x: Tensor) -> Tensor:
    with torch.no_grad():
        gate = m.first(x).sigmoid()
    return m.last(gate * m.first(x))


def dropped(m: Forward, x: Tensor) -> Tensor:
    return m.last(functional.dropout(m.first(x), 0.5 if m.training else 0.25, training=True))


def positions(m: Forward, x: Tensor) -> Tensor:
    return m.last(m.first(x) * torch.arange(8))


def by_mode_in_two_lines(m: Forward, x: Tensor) -> Tensor:
    if m.training:
        return m.last(m.first(x).relu())
    return m.last(m.first(x).relu())


def weights_without_gradient(m: Forward, x: Tensor) -> Tensor:
    return functional.linear(m.first(x.data), m.last.weight.data, m.last.bias.data)


FOLLOWED = [
    (layer_norm, {"first": 8}),
    (shared_twice, {"first": 8}),
    (squeezed, {"first": 8}),
    (dropped, {"first": 8}),
    (branch_on_mode, {"first": 8}),
    (more_when_training, {"first": 8}),
    (constant_by_mode, {"first": 8}),
    (without_gradient, {"first": 8}),
    (weights_without_gradient, {"first": 8}),
    (by_mode_in_two_lines, {"first": 8}),
    (one_channel, {}),  # a channel that is picked by its number keeps its axis whole
    (positions, {}),  # so do numbers for each channel
    (gated, {"first": 4}),  # but half a weight is a piece of it
]


@pytest.mark.parametrize(("forward", "expected"), FOLLOWED, ids=[forward.__name__ for forward, _ in FOLLOWED])
def test_trace_follows(forward: Callable[[Forward, Tensor], Tensor], expected: dict[str, int]) -> None:
    model = Forward(forward)
    space = trace(model, torch.ones(2, 6))
    assert {group.name: group.size for group in space.groups} == expected
    for width in (0.1, 0.5):
        sub = space.extract(model, space.nested(width))
        assert sub(torch.ones(1, 6)).shape == (1, 3)


@pytest.mark.parametrize("forward", [dropped, branch_on_mode, more_when_training, constant_by_mode])
def test_what_differs_by_mode_follows_the_training_flag(
    forward: Callable[[Forward, Tensor], Tensor],
) -> None:
    model = Forward(forward)
    sub = trace(model, torch.ones(2, 6)).extract(model, trace(model, torch.ones(2, 6)).full())
    for training in (True, False):
        outputs = []
        for module in (model, sub):
            module.train(training)
            torch.manual_seed(0)
            with DrawnAlike():
                outputs.append(module(torch.ones(4, 6)))
        assert torch.equal(*outputs)


def test_programs_that_do_the_same_are_one_wherever_they_were_written() -> None:
    assert len(trace(Forward(by_mode_in_two_lines), torch.ones(2, 6)).forward.programs) == 1


def test_data_of_a_parameter_has_no_gradient_in_the_sub_model() -> None:
    model = Forward(weights_without_gradient)
    space = trace(model, torch.ones(2, 6))
    sub = space.extract(model, space.nested(0.5))
    sub(torch.ones(2, 6)).sum().backward()
    assert sub.get_parameter("last.weight").grad is None
    expected = model.last.weight[:, :4].detach().sum(0)[:, None].expand(4, 6) * 2
    torch.testing.assert_close(sub.get_parameter("first.weight").grad, expected)


def test_macs_of_pairs_of_samples_are_those_of_a_batch_of_one() -> None:
    class Pairs(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            h = super().forward(x)
            return h @ h.T

    space = trace(Pairs(4, 8), torch.ones(2, 4))
    assert space.macs(space.full()) == 4 * 8 + 8  # the layer, and one product of 8 channels
    assert space.macs(space.nested(0.5)) == 4 * 4 + 4


class Names(nn.Module):
    """Layers and parameters that are called as parts of a sub-model might be; so is its input."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.add_module(name, nn.Linear(6, 8))
        self.register_parameter("_constant_0_0", nn.Parameter(torch.rand(8)))
        self.register_parameter("_constant_0", nn.Parameter(torch.rand(8)))
        self.last = nn.Linear(8, 3)

    def forward(self, sizes: Tensor) -> Tensor:
        h = self.get_submodule(self.name)(sizes) * torch.tensor([2.0])
        out: Tensor = self.last(h + self._constant_0_0 * self._constant_0)
        return out


@pytest.mark.parametrize("name", ["_forward", "_sizes", "_by_position", "sizes", "input_0", "programs"])
def test_no_name_of_a_models_own_collides_with_a_part_of_the_sub_model(name: str) -> None:
    model, x = Names(name), torch.rand(2, 6)
    space = trace(model, x)
    assert torch.equal(space.extract(model, space.full())(sizes=x), model(x))
    sub = pickle.loads(pickle.dumps(space.extract(model, space.nested(0.5))))
    assert list(sub.state_dict()) == list(model.state_dict())
    assert sub(x).shape == (2, 3)


def test_tied_parameters_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.mix, self.out = nn.Embedding(9, 6), nn.Linear(6, 6), nn.Linear(6, 9, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.mix(self.embed(x)))

    model = Tied()
    x = torch.zeros(2, 5, dtype=torch.long)
    space = trace(model, x)
    sub = space.extract(model, space.nested(0.5))
    assert {group.name: group.size for group in space.groups} == {"embed": 6}  # mix feeds the tied table
    assert sub.get_parameter("embed.weight") is sub.get_parameter("out.weight")
    assert list(sub.state_dict()) == list(model.state_dict())
    assert space.take({"out.weight": model.out.weight}, space.nested(0.5))["out.weight"].shape == (9, 3)


def test_several_inputs_and_outputs_keep_their_structure() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(3, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor | list[Tensor]]:
            h = torch.relu(self.a(x) + self.b(y))
            return {"logits": self.c(h), "sums": [h.sum(dim=1)]}

    model = Two()
    inputs = (torch.ones(2, 4), torch.ones(2, 3))
    space = trace(model, inputs)
    assert space.groups[0].name == "a"
    output = space.extract(model, space.full())(*inputs)
    assert torch.equal(output["logits"], model(*inputs)["logits"])
    assert torch.equal(output["sums"][0], model(*inputs)["sums"][0])


def test_batch_norm_of_the_sub_model_follows_its_training_flag() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    space = trace(model, torch.ones(2, 4))
    sub = space.extract(model.eval(), space.nested(0.5))
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    sub(x)
    assert torch.equal(sub.get_buffer("1.running_mean"), torch.zeros(3))
    sub.train()(x)
    hidden = functional.linear(x, sub.get_parameter("0.weight"), sub.get_parameter("0.bias"))
    torch.testing.assert_close(sub.get_buffer("1.running_mean"), 0.1 * hidden.mean(0).detach())


def test_lstm_is_one_step_and_its_trace_does_not_grow_with_the_sequence() -> None:
    model = nn.LSTM(3, 4, num_layers=2, batch_first=True)
    steps = [len(trace(model, torch.ones(2, n, 3)).forward.programs[0].steps) for n in (3, 300)]
    assert steps[0] == steps[1] < 12


def test_error_of_a_module_without_user_code_names_the_module() -> None:
    layer = nn.Identity()
    layer.forward = torch.linalg.svdvals  # type: ignore[method-assign]
    model = nn.Sequential(nn.Conv2d(1, 8, 3), layer)
    with pytest.raises(
        TraceError, match=r"aten._linalg_svd.default in module '1' takes \(batch, 8, 3, 3\), but no"
    ):
        trace(model, torch.ones(2, 1, 5, 5))


def test_trace_refuses_a_forward_that_changes_its_own_weights() -> None:
    class Growing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            self.weight.mul_(2.0)
            return super().forward(x)

    model = nn.Sequential(Growing(3, 4), nn.Linear(4, 2))
    with pytest.raises(TraceError, match=r"is not traceable at .*RuntimeError: a leaf Variable"):
        trace(model, torch.ones(2, 3))


def test_trace_refuses_a_gradient_of_its_own() -> None:
    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.sin()

        @staticmethod
        def backward(ctx: object, *gradients: Tensor) -> Tensor:
            return -gradients[0]

    def forward(m: Forward, x: Tensor) -> Tensor:
        out: Tensor = m.last(Reversed.apply(m.first(x)))
        return out

    with pytest.raises(TraceError, match=r"or has a gradient of its own \(torch.autograd.Function\)"):
        trace(Forward(forward), torch.ones(2, 6))
