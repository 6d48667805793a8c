"""The published methods by name: one line each."""

from __future__ import annotations

from widthwise.core.registry import Registry
from widthwise.methods.fedavg import FEDAVG
from widthwise.methods.fedprox import FEDPROX
from widthwise.methods.fjord import FJORD
from widthwise.methods.hasfl import HASFL
from widthwise.methods.heterofl import HETEROFL
from widthwise.methods.method import Composition
from widthwise.methods.random_budget import RANDOM_BUDGET
from widthwise.methods.scaffold import SCAFFOLD
from widthwise.methods.uniform import UNIFORM

METHODS: Registry[Composition] = Registry("method")
METHODS.add("fedavg", FEDAVG, summary="full model for everybody", source="McMahan et al. 2017, Algorithm 1")
METHODS.add("fedprox", FEDPROX, summary="full model, held near its start", source="Li et al. 2020, eq. 2")
METHODS.add(
    "scaffold", SCAFFOLD, summary="full model, drift corrected", source="Karimireddy et al. 2020, Alg. 1"
)
METHODS.add("heterofl", HETEROFL, summary="width = capacity", source="Diao et al. 2021, section 3")
METHODS.add(
    "fjord", FJORD, summary="random tier a round, distillation", source="Horvath et al. 2021, section 3"
)
METHODS.add("uniform", UNIFORM, summary="one fixed width", source="arXiv 2608.07157, section 4.1")
METHODS.add(
    "random-budget",
    RANDOM_BUDGET,
    summary="random widths, matched mean",
    source="arXiv 2608.07157, section 4.1",
)
METHODS.add("hasfl", HASFL, summary="width follows divergence", source="arXiv 2608.07157, Algorithm 1")
