"""What a user can steer and see: frozen groups, aligned counts, floors, widths per group, heads, tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from widthwise.core.errors import InputError, SliceError, TraceError
from widthwise.report import draw_channel_graph
from widthwise.slicing import WidthSpace, group_edges, group_rows, trace
from widthwise.slicing.rules import RULES, rule


class Attention(nn.Module):
    """Self-attention with ``heads`` heads of size 4, and ``shared`` key and value heads."""

    def __init__(self, heads: int = 6, shared: int = 0, dim: int = 10) -> None:
        super().__init__()
        self.heads, self.shared = heads, shared or heads
        self.q, self.out = nn.Linear(dim, heads * 4), nn.Linear(heads * 4, 3)
        self.k, self.v = nn.Linear(dim, self.shared * 4), nn.Linear(dim, self.shared * 4)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (layer(x).view(batch, tokens, -1, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.shared != self.heads:
            copies = (batch, self.shared, self.heads // self.shared, tokens, 4)
            k, v = (y[:, :, None].expand(copies).flatten(1, 2) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.out(y.transpose(1, 2).reshape(batch, tokens, self.heads * 4))
        return out


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))


def space(**options: Any) -> WidthSpace:
    return trace(mlp(), torch.zeros(2, 3), **options)


def kept(traced: WidthSpace, width: float, **options: Any) -> dict[str, int]:
    return {name: len(channels) for name, channels in traced.nested(width, **options).kept.items()}


def test_align_rounds_up_to_a_multiple_or_to_all() -> None:
    assert kept(space(align=8), 0.3) == {"0": 8, "2": 8}
    assert kept(space(align=8), 0.9) == {"0": 10, "2": 20}  # 9 -> 16 -> all 10; 18 -> 24 -> all 20
    assert kept(space(align={"2": 7}), 0.3) == {"0": 3, "2": 7}


def test_floor_keeps_so_many_channels_at_least_and_at_most_all() -> None:
    assert kept(space(floor={"0": 5}), 0.1) == {"0": 5, "2": 2}
    assert kept(space(floor=15), 0.1) == {"0": 10, "2": 15}
    assert kept(space(floor={"0": 5}, align={"0": 4}), 0.1) == {"0": 8, "2": 2}


def test_aligned_slices_are_nested_and_run() -> None:
    traced, model = space(align=3, floor=2), mlp()
    before: dict[str, Any] = {}
    for width in (0.05, 0.2, 0.5, 0.77, 1.0):
        spec = traced.nested(width)
        assert all(set(before.get(name, ())) <= set(channels) for name, channels in spec.kept.items())
        assert traced.extract(model, spec)(torch.zeros(4, 3)).shape == (4, 2)
        before = dict(spec.kept)


def test_widths_of_single_groups_differ_from_the_others() -> None:
    traced, model = space(), mlp()
    spec = traced.nested(0.5, {"2": 0.25})
    assert {name: len(channels) for name, channels in spec.kept.items()} == {"0": 5, "2": 5}
    assert traced.extract(model, spec)(torch.zeros(4, 3)).shape == (4, 2)
    assert traced.num_params(spec) == (3 * 5 + 5) + (5 * 5 + 5) + (5 * 2 + 2)


def test_freeze_refuses_a_module_whose_weights_another_uses_and_names_that_one() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.raises(
        TraceError,
        match=r"freeze is 'self_attn\.out_proj', but that module makes no value that the forward uses\. "
        r"Remove it from freeze, or name 'self_attn', which may use its weights\.",
    ):
        trace(layer, torch.zeros(2, 3, 8), freeze="self_attn.out_proj")


def test_freeze_takes_names_of_groups() -> None:
    class Direct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Parameter(torch.ones(3, 5)), nn.Parameter(torch.ones(5, 7))
            self.last = nn.Linear(7, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(x @ self.first @ self.second)
            return out

    sizes = {"first": 5, "second": 7}
    for freeze in ((), ("first",), ("second",), ("first", "second")):
        traced = trace(Direct(), torch.zeros(2, 3), freeze=freeze)
        assert {g.name: g.size for g in traced.groups} == {
            name: size for name, size in sizes.items() if name not in freeze
        }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"align": {"1": 2}}, "align is '1', but no such name is known"),
        ({"floor": {"zero": 2}}, "floor is 'zero', but no such name is known"),
        ({"align": {"": 2}}, "align is '', but no such name is known"),
        ({"align": 0}, "align is 0, but it is a number of channels. Choose a whole number from 1"),
        ({"floor": {"2": 1.5}}, "floor of 2 is 1.5, but it is a number of channels"),
        ({"freeze": "3x"}, "freeze is '3x', but no such name is known"),
        ({"heads": "outside"}, "heads is 'outside', but heads are cut as 'whole' or 'inside'"),
    ],
)
def test_trace_refuses_what_it_cannot_steer(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        space(**options)


def test_nested_refuses_the_width_of_an_unknown_group() -> None:
    with pytest.raises(SliceError, match="widths is '1', but no such name is known"):
        space().nested(0.5, {"1": 0.5})
    with pytest.raises(SliceError, match=r"width is 0, but a width is in \(0, 1\]"):
        space().nested(0.5, {"2": 0})


# heads


@pytest.mark.parametrize(("width", "heads"), [(0.1, 1), (0.25, 2), (0.5, 3), (0.51, 4), (1.0, 6)])
def test_whole_heads_are_rounded_up(width: float, heads: int) -> None:
    """Of six heads a width keeps ceil(6 w): 0.25 keeps two, although 1.5 would be a quarter."""
    traced = trace(Attention(heads=6), torch.zeros(2, 5, 10))
    assert traced.groups[0].size == 6
    shapes = traced.shapes(traced.nested(width))
    assert shapes["q.weight"] == shapes["k.weight"] == shapes["v.weight"] == (heads * 4, 10)
    assert shapes["out.weight"] == (3, heads * 4)


@pytest.mark.parametrize(("width", "size"), [(0.25, 1), (0.3, 2), (0.5, 2), (1.0, 4)])
def test_inside_heads_all_heads_stay(width: float, size: int) -> None:
    traced = trace(Attention(heads=6), torch.zeros(2, 5, 10), heads="inside")
    shapes = traced.shapes(traced.nested(width))
    assert shapes["q.weight"] == shapes["k.weight"] == shapes["v.weight"] == (6 * size, 10)


def test_inside_heads_scores_keep_the_full_models_scale() -> None:
    model = Attention(heads=2)
    traced = trace(model, torch.zeros(2, 5, 10), heads="inside")
    spec = traced.nested(0.5)
    masked = Attention(heads=2)
    mask = traced.mask(spec)
    with torch.no_grad():
        for name, parameter in masked.named_parameters():
            parameter.copy_(model.get_parameter(name) * mask[name])
    x = torch.randn(3, 5, 10, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(traced.extract(model, spec)(x), masked(x))


@pytest.mark.parametrize("cut", ["whole", "inside"])
def test_grouped_query_heads_are_cut_with_the_key_heads_that_they_share(cut: Any) -> None:
    """Six query heads on three key heads: a kept key head keeps its two query heads."""
    traced = trace(Attention(heads=6, shared=3), torch.zeros(2, 5, 10), heads=cut)
    shapes = traced.shapes(traced.nested(0.5))
    expected = {"whole": ((2 * 2 * 4, 10), (2 * 4, 10)), "inside": ((6 * 2, 10), (3 * 2, 10))}[cut]
    assert (shapes["q.weight"], shapes["k.weight"]) == expected


# what is shown


def test_describe_lists_groups_with_their_axes_and_why() -> None:
    text = trace(Attention(), torch.zeros(2, 5, 10)).describe()
    assert "q.weight[0: q x 4]" in text
    assert "out.weight[1: q x 4]" in text
    assert "scaled_dot_product_attention in the model" in text
    assert "Never cut: out.bias" in text


def test_rows_say_where_a_residual_couples() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            out: Tensor = self.c(h + self.b(h.relu()))
            return out

    (row,) = group_rows(trace(Residual(), torch.zeros(2, 3)))
    assert row.to_json() == {
        "name": "a",
        "size": 6,
        "axes": ["a.weight[0]", "a.bias[0]", "b.weight[0]", "b.weight[1]", "b.bias[0]", "c.weight[1]"],
        "coupled_by": ["linear in b", "add in the model", "linear in c"],
    }


def test_edges_connect_the_groups_of_a_matrix() -> None:
    assert group_edges(space()) == [("0", "never cut", 30), ("0", "2", 200), ("2", "never cut", 40)]


def test_edges_are_the_same_whichever_axis_of_a_kernel_is_read() -> None:
    def edges(layer: type[nn.Module]) -> list[tuple[str, str, int]]:
        model = nn.Sequential(nn.Conv2d(3, 4, 1), layer(4, 6, 1), nn.Conv2d(6, 2, 1))
        return group_edges(trace(model, torch.zeros(2, 3, 5, 5)))

    assert edges(nn.ConvTranspose2d) == edges(nn.Conv2d)
    assert edges(nn.Conv2d) == [("0", "never cut", 12), ("0", "1", 24), ("1", "never cut", 12)]


def test_edges_connect_every_pair_of_groups_of_a_parameter_and_a_group_with_itself() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(3, 5), nn.Bilinear(4, 5, 6)
            self.d, self.e = nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.c(self.a(x), self.b(x))
            out: Tensor = self.e(h + self.d(h))
            return out

    found = {frozenset(pair): count for *pair, count in group_edges(trace(Net(), torch.zeros(2, 3)))}
    assert found[frozenset({"a", "b"})] == found[frozenset({"a", "c"})] == found[frozenset({"b", "c"})] == 120
    assert found[frozenset({"c"})] == 36


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_groups_can_be_drawn(tmp_path: Path, ending: str) -> None:
    traced = space()
    sizes = {group.name: group.size for group in traced.groups}
    path = draw_channel_graph(sizes, group_edges(traced), tmp_path / f"groups.{ending}", "mlp")
    assert path.stat().st_size > 1000
    if ending == "svg":
        assert {"0 (10)", "2 (20)", "never cut"} <= set(path.read_text().replace(">", "<").split("<"))


def test_drawing_refuses_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the plot is 'a.bmp', but it can be written as pdf, png, svg"):
        draw_channel_graph({}, [], tmp_path / "a.bmp")


def test_a_user_registers_a_rule_for_an_operation_of_his_own() -> None:
    library = torch.library.Library("testlib", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: 2 * x, "CompositeExplicitAutograd")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.b(torch.ops.testlib.double(self.a(x).detach()))
            return out

    model, x = Model(), torch.zeros(2, 3)
    with pytest.raises(TraceError, match=r"register a rule for 'testlib.double' \(widthwise.rule\)"):
        trace(model, x)
    try:
        rule("testlib.double")(lambda call: tuple(call["x"]))
        assert [group.name for group in trace(model, x).groups] == ["a"]
    finally:
        RULES.pop("testlib.double", None)
