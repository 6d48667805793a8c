"""The algebra of axis labels."""

from __future__ import annotations

import pytest

from widthwise.slicing.axes import (
    Algebra,
    Atom,
    Axis,
    Mismatch,
    concat,
    fixed_axis,
    free_axis,
    pin,
    resolve,
    size_of,
)


def channels(size: int) -> Axis:
    """Return a free axis of a parameter."""
    (atom,) = axis = free_axis(size)
    atom.owner = "layer"
    return axis


def free_sizes(*axes: tuple[Atom, ...]) -> list[list[tuple[int, bool]]]:
    """Return (size, whether it may be cut) of each factor of each axis."""
    return [[(atom.size, not atom.fixed) for atom in resolve(axis)] for axis in axes]


def test_unify_binds_a_flat_axis_to_the_product_it_flattens() -> None:
    channels, flat = free_axis(8), free_axis(128)
    Algebra().unify(flat, (*channels, *fixed_axis(16)))
    assert free_sizes(flat) == [[(8, True), (16, False)]]
    assert resolve(flat)[0] is resolve(channels)[0]


def test_unify_pins_all_factors_when_the_bound_axis_is_pinned() -> None:
    channels = free_axis(8)
    Algebra().unify(fixed_axis(16), (*channels, *free_axis(2)))
    assert free_sizes(channels) == [[(8, False)]]


def test_unify_aligns_two_products_from_both_ends() -> None:
    a, b, c = free_axis(2), free_axis(12), free_axis(5)
    x, y, z, last = free_axis(2), free_axis(3), free_axis(4), free_axis(5)
    Algebra().unify((*a, *b, *c), (*x, *y, *z, *last))
    assert resolve(a) == resolve(x)
    assert resolve(b) == resolve((*y, *z))
    assert resolve(c) == resolve(last)


def test_unify_refuses_axes_of_different_size() -> None:
    with pytest.raises(Mismatch, match="6 channels meet 8 channels"):
        Algebra().unify(free_axis(6), free_axis(8))


def test_unify_keeps_axes_whole_whose_factors_do_not_line_up_and_says_where() -> None:
    algebra = Algebra()
    algebra.place = "add", "block"
    left, right = (*channels(6), *free_axis(4)), (*free_axis(4), *free_axis(6))
    algebra.unify(left, right)
    assert free_sizes(left, right) == [[(6, False), (4, False)], [(4, False), (6, False)]]
    assert algebra.kept_whole == [(("add", "block"), "an axis of 6 channels is regrouped by 4")]


def test_unify_takes_factors_apart_that_are_never_cut() -> None:
    four, other = free_axis(4), free_axis(4)
    Algebra().unify((*fixed_axis(8), *four), (*other, *fixed_axis(8)))  # as shuffled groups meet groups
    assert free_sizes(four, other) == [[(4, False)], [(4, False)]]


def test_unify_accepts_any_regrouping_of_axes_that_are_never_cut() -> None:
    left, right = (*fixed_axis(6), *fixed_axis(4)), (*fixed_axis(4), *fixed_axis(6))
    Algebra().unify(left, right)
    assert size_of(left) == size_of(right) == 24


def test_unify_of_concatenations_goes_part_by_part() -> None:
    a, b, c, d = (free_axis(n) for n in (3, 5, 3, 5))
    Algebra().unify(concat([a, b]), concat([c, d]))
    assert resolve(a) == resolve(c)
    assert resolve(b) == resolve(d)


def test_unify_keeps_concatenations_of_different_parts_whole() -> None:
    algebra, one, other = (
        Algebra(),
        concat([channels(3), free_axis(5)]),
        concat([free_axis(2), free_axis(6)]),
    )
    algebra.unify(one, other)
    assert free_sizes(one, other) == [[(8, False)], [(8, False)]]
    assert [reason for _, reason in algebra.kept_whole] == ["two concatenations have different parts"]


def test_unify_cuts_equal_parts_alike_where_they_meet_a_product() -> None:
    a, b, c, d = (free_axis(n) for n in (8, 8, 2, 8))
    algebra = Algebra()
    algebra.unify(concat([a, b]), (*c, *d))
    assert resolve(a) == resolve(b) == resolve(d)
    assert free_sizes(c, d) == [[(2, False)], [(8, True)]]
    assert not algebra.kept_whole


def test_unify_cuts_equal_parts_alike_where_there_are_twice_as_many() -> None:
    one, other = [free_axis(8) for _ in range(2)], [free_axis(4) for _ in range(4)]
    algebra = Algebra()
    algebra.unify(concat(one), concat(other))
    assert len({resolve(part) for part in other}) == 1
    assert resolve(one[0]) == resolve(one[1]) == (*resolve(one[0])[:1], *resolve(other[0]))
    assert not algebra.kept_whole


def test_carve_splits_an_axis_into_blocks_and_keeps_blocks_whole() -> None:
    algebra = Algebra()
    channels = free_axis(12)
    heads, inside = algebra.carve([channels], [3, 4])
    algebra.settle()
    assert free_sizes(heads, inside) == [[(3, True)], [(4, False)]]


def test_carve_leaves_the_inner_factor_free_when_the_outer_one_is_pinned() -> None:
    algebra = Algebra()
    gates, hidden = algebra.carve([free_axis(32)], [4, 8])
    pin(gates)
    algebra.settle()
    assert free_sizes(gates, hidden) == [[(4, False)], [(8, True)]]


def test_carve_regroups_pinned_neighbours_at_will() -> None:
    (merged, rest) = Algebra().carve([fixed_axis(3), fixed_axis(4)], [2, 6])
    assert free_sizes(merged, rest) == [[(2, False)], [(6, False)]]


def test_carve_refuses_other_sizes() -> None:
    with pytest.raises(Mismatch, match=r"axes of \[6, 4\] channels are regrouped to \[4, 7\]"):
        Algebra().carve([free_axis(6), free_axis(4)], [4, 7])


def test_carve_keeps_axes_whole_of_which_a_border_falls_inside_a_factor() -> None:
    algebra, axes = Algebra(), [channels(6), free_axis(4)]
    assert free_sizes(*algebra.carve(axes, [4, 6])) == [[(4, False)], [(6, False)]]
    assert free_sizes(*axes) == [[(6, False)], [(4, False)]]
    assert [reason for _, reason in algebra.kept_whole] == ["an axis of 6 channels is regrouped by 4"]


def test_carve_keeps_a_concatenation_whole_of_which_a_border_falls_inside_a_part() -> None:
    algebra, joined = Algebra(), concat([free_axis(3), channels(5)])
    assert free_sizes(*algebra.carve([joined], [2, 4])) == [[(2, False)], [(4, False)]]
    assert free_sizes(joined) == [[(8, False)]]
    assert [reason for _, reason in algebra.kept_whole] == ["an axis of 8 channels is regrouped by 2"]


def test_carve_cuts_equal_parts_alike() -> None:
    algebra, a, b = Algebra(), free_axis(8), free_axis(8)
    halves, channels = algebra.carve([concat([a, b])], [2, 8])
    assert free_sizes(halves, channels) == [[(2, False)], [(8, True)]]
    assert resolve(a) == resolve(b) == resolve(channels)


def test_divide_gives_back_the_parts_of_a_concatenation() -> None:
    a, b = free_axis(3), free_axis(5)
    assert Algebra().divide(concat([a, b]), [3, 5]) == [a, b]


def test_divide_cuts_equal_pieces_alike() -> None:
    one, other = Algebra().divide(free_axis(10), [5, 5])
    assert resolve(one) == resolve(other)


def test_divide_makes_unequal_pieces_of_their_own() -> None:
    whole = free_axis(8)
    one, other = Algebra().divide(whole, [3, 5])
    assert free_sizes(one, other) == [[(3, True)], [(5, True)]]
    assert resolve(whole)[0].parts == (one, other)


def test_divide_keeps_an_axis_whole_of_which_the_pieces_do_not_fit_the_factors() -> None:
    algebra, axis = Algebra(), (*free_axis(2), *channels(4))
    assert free_sizes(*algebra.divide(axis, [3, 5])) == [[(3, False)], [(5, False)]]
    assert free_sizes(axis) == [[(2, False), (4, False)]]
    assert [reason for _, reason in algebra.kept_whole] == [
        "an axis of 8 channels is cut into pieces of [3, 5]"
    ]


def test_positions_that_are_no_parameters_are_kept_whole_without_a_note() -> None:
    algebra, axis = Algebra(), (*free_axis(2), *free_axis(4))
    algebra.divide(axis, [3, 5])
    assert free_sizes(axis) == [[(2, False), (4, False)]]
    assert not algebra.kept_whole


def test_divide_keeps_the_owner_of_unequal_pieces() -> None:
    pieces = Algebra().divide(channels(8), [3, 5])
    assert [atom.owner for piece in pieces for atom in piece] == ["layer", "layer"]


def test_nothing_can_be_cut_of_an_axis_without_positions() -> None:
    algebra, whole = Algebra(), channels(6)
    assert free_sizes(*algebra.divide(whole, [6, 0])) == [[(6, True)], [(0, False)]]
    assert free_sizes(*algebra.carve([free_axis(4), free_axis(0)], [2, 0])) == [[(2, False)], [(0, False)]]
