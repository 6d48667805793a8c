"""What sets each selector apart, on slices that were worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from widthwise.core.errors import SliceError
from widthwise.core.seeds import SeedTree
from widthwise.slicing import SELECTORS, Moment, WidthSpace, trace
from widthwise.slicing.selectors.magnitude import largest


class Chain(nn.Module):
    """4 hidden channels, then 4, then 6: linear layers with inputs and classes of 2."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.out = nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.c(torch.relu(self.b(torch.relu(self.a(x)))))))


@pytest.fixture(scope="module")
def space() -> WidthSpace:
    return trace(Chain(), torch.zeros(2, 2))


@pytest.fixture
def params(space: WidthSpace) -> dict[str, Tensor]:
    return {name: torch.zeros(layout.shape) for name, layout in space.parameters.items()}


def kept(
    space: WidthSpace, name: str, width: float, moment: Moment, **options: object
) -> dict[str, list[int]]:
    spec = SELECTORS[name].value(**options).select(space, width, moment)
    return {group: list(channels) for group, channels in spec.kept.items()}


def at(round_index: int, client: int = 0, params: dict[str, Tensor] | None = None) -> Moment:
    return Moment(client, round_index, SeedTree(7), params or {})


class TestRolling:
    def test_windows_are_those_of_the_paper(self, space: WidthSpace) -> None:
        # FedRolex, equation for S(n, i): {r, .., r + k - 1} with r = t mod C, the rest from 0 on. Width 0.5:
        # two of 4 channels, three of 6.
        windows = {t: kept(space, "rolling", 0.5, at(t)) for t in (0, 1, 3, 4, 5)}
        assert {t: w["a"] for t, w in windows.items()} == {
            0: [0, 1],
            1: [1, 2],
            3: [0, 3],
            4: [0, 1],
            5: [1, 2],
        }
        assert {t: w["c"] for t, w in windows.items()} == {
            0: [0, 1, 2],
            1: [1, 2, 3],
            3: [3, 4, 5],
            4: [0, 4, 5],
            5: [0, 1, 5],
        }

    def test_windows_move_backward_as_in_the_released_code(self, space: WidthSpace) -> None:
        # There: the channels in the order roll(0 .. C - 1, t), of which the first k are kept.
        for t in range(13):
            code = torch.roll(torch.arange(6), t)[:3].sort().values.tolist()
            assert kept(space, "rolling", 0.5, at(t), roll_direction="backward")["c"] == code

    def test_windows_move_by_the_step(self, space: WidthSpace) -> None:
        assert kept(space, "rolling", 0.5, at(2), roll_step=2)["c"] == [0, 4, 5]

    def test_clients_of_a_round_start_at_the_same_channel(self, space: WidthSpace) -> None:
        assert kept(space, "rolling", 0.25, at(2, client=1)) == {"a": [2], "b": [2], "c": [2, 3]}
        assert kept(space, "rolling", 0.75, at(2, client=2))["c"] == [0, 2, 3, 4, 5]

    def test_contiguous_windows_are_ranges_so_that_slices_are_views(self, space: WidthSpace) -> None:
        spec = SELECTORS["rolling"].value().select(space, 0.5, at(1))
        assert spec.kept["a"] == range(1, 3)

    def test_reach_leaves_out_what_windows_of_equal_layers_never_hold_together(
        self, space: WidthSpace
    ) -> None:
        # b joins 4 channels to 4. Two channels wide, both windows start at t mod 4, so weight (i, j) is held
        # in some round if and only if i and j are neighbours on the circle of 4 or equal.
        reach = SELECTORS["rolling"].value().reach(space, 0.5)
        assert reach["b.weight"].int().tolist() == [[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]
        # c joins 4 to 6, whose starts differ by all even numbers in 12 rounds: 2 + 3 - 1 >= gcd(4, 6) = 2.
        assert all(bool(reach[name].all()) for name in reach if name != "b.weight")

    def test_reach_is_what_all_rounds_of_a_period_hold(self, space: WidthSpace) -> None:
        rolling = SELECTORS["rolling"].value(roll_step=2, roll_direction="backward")
        held = [space.mask(rolling.select(space, 0.25, at(t))) for t in range(12)]
        for name, reached in rolling.reach(space, 0.25).items():
            assert torch.equal(reached, torch.stack([masks[name] for masks in held]).any(dim=0)), name


class TestRandomAligned:
    def test_channels_are_drawn_anew_for_each_client_and_round(self, space: WidthSpace) -> None:
        drawn = {
            (i, t): str(kept(space, "random-aligned", 0.5, at(t, i))) for i in range(4) for t in range(4)
        }
        assert len(set(drawn.values())) > 8  # 6 * 6 * 20 slices are equally likely

    def test_clients_of_a_round_share_a_draw_when_asked(self, space: WidthSpace) -> None:
        drawn = [
            {str(kept(space, "random-aligned", 0.5, at(t, i), shared_draw=True)) for i in range(4)}
            for t in range(4)
        ]
        assert [len(each) for each in drawn] == [1] * 4
        assert len(set.union(*drawn)) > 1

    def test_channels_are_equally_likely(self, space: WidthSpace) -> None:
        counts = torch.zeros(6)
        for t in range(600):
            counts[kept(space, "random-aligned", 0.5, at(t))["c"]] += 1
        # Binomial(600, 1/2) has standard deviation 12.2; beyond 5 of them by chance: 6e-7 a channel.
        assert bool(((counts - 300).abs() < 62).all())


class TestImportance:
    def test_norm_is_taken_over_all_coupled_coordinates(
        self, space: WidthSpace, params: dict[str, Tensor]
    ) -> None:
        # Group c: rows of c.weight and c.bias, columns of out.weight.
        params["c.weight"][4] = 1.0
        params["c.bias"][1] = -3.0
        params["out.weight"][:, 2] = 1.5
        importance = SELECTORS["importance"].value()
        assert importance.scores(space, "c", params).tolist() == [0, 9, 4.5, 0, 4, 0]
        assert kept(space, "importance", 0.5, at(0, params=params))["c"] == [1, 2, 4]
        # l1: 4 for the four ones of channel 4, 3 for channel 1 and for channel 2; the tie goes to the lower.
        l1 = SELECTORS["importance"].value(importance_norm="l1")
        assert l1.scores(space, "c", params).tolist() == [0, 3, 3, 0, 4, 0]
        assert kept(space, "importance", 1 / 3, at(0, params=params), importance_norm="l1")["c"] == [1, 4]

    def test_blocks_and_concatenations_count_for_their_own_channels(self) -> None:
        class Two(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.left, self.right = nn.Conv2d(1, 2, 1, bias=False), nn.Conv2d(1, 3, 1, bias=False)
                self.head = nn.Linear(5 * 4, 2, bias=False)

            def forward(self, x: Tensor) -> Tensor:
                return self.head(torch.cat([self.left(x), self.right(x)], dim=1).flatten(1))

        space = trace(Two(), torch.zeros(2, 1, 2, 2))
        params = {name: torch.zeros(layout.shape) for name, layout in space.parameters.items()}
        params["head.weight"][0] = torch.arange(5.0).repeat_interleave(4)  # blocks of 2 x 2 pixels
        importance = SELECTORS["importance"].value()
        assert importance.scores(space, "left", params).tolist() == [0, 4]
        assert importance.scores(space, "right", params).tolist() == [16, 36, 64]

    def test_a_position_of_two_channels_of_a_group_counts_for_both(self) -> None:
        class Square(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.head = nn.Linear(3, 2, bias=False), nn.Linear(4, 1, bias=False)

            def forward(self, x: Tensor) -> Tensor:
                h = self.a(x)
                return self.head((h[:, :, None] * h[:, None, :]).flatten(1))

        space = trace(Square(), torch.zeros(2, 3))
        assert space.parameters["head.weight"].axes[1] == ("a", "a")
        # Without channel 0 positions (0, 0), (0, 1) and (1, 0) are lost: 1 + 4 + 9. Without 1: 4 + 9 + 16.
        params = {"a.weight": torch.zeros(2, 3), "head.weight": torch.tensor([[1.0, 2.0, 3.0, 4.0]])}
        assert SELECTORS["importance"].value().scores(space, "a", params).tolist() == [14, 29]


class TestMagnitude:
    def test_mask_keeps_the_largest_weights_and_all_vectors(
        self, space: WidthSpace, params: dict[str, Tensor]
    ) -> None:
        # 8 + 16 + 24 + 12 weights, 4 + 4 + 6 + 2 biases. Width 0.5: 2-2-2-3-2, so 4 + 4 + 6 + 6 weights and
        # 2 + 2 + 3 + 2 biases: 29 parameters, of which 16 go to the biases and 13 to the largest weights.
        sizes = torch.arange(1.0, 61.0)
        for name, part in zip(("a", "b", "c", "out"), sizes.split([8, 16, 24, 12]), strict=True):
            params[f"{name}.weight"] = -part.view(params[f"{name}.weight"].shape)
        mask = SELECTORS["magnitude"].value().select(space, 0.5, at(0, params=params)).mask
        assert mask is not None
        assert {n: int(m.sum()) for n, m in mask.kept.items()} == {
            "a.weight": 0,
            "b.weight": 0,
            "c.weight": 1,
            "out.weight": 12,
        }
        assert bool(mask.kept["c.weight"][5, 3])
        assert set(mask.thresholds.values()) == {48.0}

    def test_layers_keep_equal_shares_when_thresholds_are_their_own(
        self, space: WidthSpace, params: dict[str, Tensor]
    ) -> None:
        layered = SELECTORS["magnitude"].value(mask_scope="layer")
        mask = layered.select(space, 0.5, at(0, params=params)).mask
        assert mask is not None
        # 13 of 60, running sums rounded down: 13 * (8, 24, 48, 60) / 60 = 1, 5, 10, 13. All weights are
        # equal (0), so that the lowest positions win.
        assert {n: int(m.sum()) for n, m in mask.kept.items()} == {
            "a.weight": 1,
            "b.weight": 4,
            "c.weight": 5,
            "out.weight": 3,
        }
        assert mask.kept["out.weight"].flatten().nonzero().flatten().tolist() == [0, 1, 2]

    def test_largest_keeps_nothing_above_an_infinite_threshold(self) -> None:
        kept, threshold = largest(torch.ones(3), 0)
        assert (kept.tolist(), threshold) == ([False] * 3, float("inf"))


@pytest.mark.parametrize("name", SELECTORS.names())
@pytest.mark.parametrize("width", [0.0, 1.1])
def test_selector_refuses_a_width_out_of_range(
    space: WidthSpace, params: dict[str, Tensor], name: str, width: float
) -> None:
    with pytest.raises(SliceError, match=rf"width is {width}, but a width is in \(0, 1\]"):
        SELECTORS[name].value().select(space, width, at(0, params=params))
