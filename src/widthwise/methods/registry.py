"""The published methods by name: one line each."""

from __future__ import annotations

from widthwise.core.registry import Registry
from widthwise.methods.all_smallest import ALL_SMALLEST
from widthwise.methods.exclude_the_weak import EXCLUDE_THE_WEAK
from widthwise.methods.fedavg import FEDAVG
from widthwise.methods.federated_dropout import FEDERATED_DROPOUT
from widthwise.methods.fedprox import FEDPROX
from widthwise.methods.fedrolex import FEDROLEX
from widthwise.methods.fiarse import FIARSE
from widthwise.methods.fjord import FJORD
from widthwise.methods.hasfl import HASFL
from widthwise.methods.hasfl_reversed import HASFL_REVERSED
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
    summary="random widths, matched cost",
    source="arXiv 2608.07157, section 4.1",
)
METHODS.add("hasfl", HASFL, summary="width follows divergence", source="arXiv 2608.07157, Algorithm 1")
METHODS.add(
    "hasfl-reversed",
    HASFL_REVERSED,
    summary="hasfl in the wrong direction",
    source="widthwise, control for arXiv 2608.07157, eq. 6",
)
METHODS.add(
    "all-smallest", ALL_SMALLEST, summary="the smallest tier for everybody", source="widthwise, control"
)
METHODS.add(
    "exclude-the-weak", EXCLUDE_THE_WEAK, summary="weak devices stay out", source="widthwise, control"
)
METHODS.add(
    "fedrolex", FEDROLEX, summary="width = capacity, rolling windows", source="Alam et al. 2022, section 3"
)
METHODS.add(
    "federated-dropout",
    FEDERATED_DROPOUT,
    summary="width = capacity, random channels",
    source="Caldas et al. 2018",
)
METHODS.add(
    "fiarse",
    FIARSE,
    summary="width = capacity, unstructured masks (masked compute: full MACs)",
    source="Wu et al. 2024, arXiv 2407.19389",
)
