from __future__ import annotations

import numpy as np
import pytest

from widthwise.audit.power import Power, smallest_detectable


@pytest.mark.parametrize(("clients", "r"), [(29, 0.5), (85, 0.3), (194, 0.2)])
def test_smallest_detectable_agrees_with_the_textbook_for_one_stratum(clients, r):
    # Fisher's z: N = ((1.960 + 0.842) / atanh(r))^2 + 3 = 29.0, 84.9, 194.0 for power 0.8 at 5 %, two-sided
    # (Cohen 1988, table 3.4.1, gives 28, 84 and 193 by exact distribution).
    assert smallest_detectable(((clients,),)) == pytest.approx(r, abs=0.012)


def test_smallest_detectable_loses_one_client_for_each_further_stratum():
    # Centring inside T strata leaves N - T degrees of freedom: as good as one stratum of N - T + 1.
    assert smallest_detectable(((10, 10, 10),)) == pytest.approx(smallest_detectable(((28,),)), abs=0.012)


def test_smallest_detectable_falls_with_every_pooled_run():
    # Fisher's z: three runs of 16 degrees of freedom, tanh(2.802 / sqrt(3 * 14)) = 0.408; one: 0.635.
    design = (3, 3, 7, 7)
    assert smallest_detectable((design,)) == pytest.approx(0.635, abs=0.012)
    assert smallest_detectable((design,) * 3) == pytest.approx(0.408, abs=0.018)


@pytest.mark.parametrize(
    "design",
    [
        (),
        ((1, 1, 1),),  # nobody can be exchanged
        ((2, 2, 2, 2),),  # 16 arrangements, two of them as extreme as any: p is 0.125 at least
        ((2, 2, 2, 2, 2),),  # 32 of which two: 0.0625
        ((3, 2),),  # 12 arrangements: p is 0.083 at least
    ],
)
def test_smallest_detectable_is_none_where_no_link_can_reach_the_level(design):
    assert smallest_detectable(design) is None


def test_smallest_detectable_is_stated_where_a_perfect_link_reaches_the_level():
    assert 0.95 < smallest_detectable(((2,) * 6,)) <= 1.0  # 64 of which two: 0.031


def test_smallest_detectable_ignores_strata_of_one_client():
    assert smallest_detectable(((1, 1, 8, 8),)) == smallest_detectable(((8, 8),))


def test_power_of_many_clients_costs_no_memory_and_is_fine():
    assert smallest_detectable(((100_000,) * 4,)) == pytest.approx(2.802 / np.sqrt(400_000), abs=1e-3)


def test_power_of_many_strata_is_that_of_their_degrees_of_freedom():
    # 50,000 pairs: as many degrees of freedom. Fewer data sets are simulated, and the answer stays as fine.
    assert smallest_detectable(((2,) * 50_000,)) == pytest.approx(2.802 / np.sqrt(50_000), abs=1.5e-3)


def test_smallest_detectable_takes_runs_and_strata_in_any_order():
    found = smallest_detectable(((7, 3, 7, 3), (5, 5, 5, 5)))
    assert found == smallest_detectable(((5, 5, 5, 5), (3, 3, 7, 7)))


def test_power_is_free_of_nan_as_json():
    assert Power(0.6, None).to_json() == {
        "smallest_detectable_r": 0.6,
        "smallest_detectable_r_all_clients": None,
        "alpha": 0.05,
        "power": 0.8,
    }
