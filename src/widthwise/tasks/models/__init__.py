"""Models, one file each."""

from __future__ import annotations

from widthwise.core.registry import Registry
from widthwise.tasks.model import Model
from widthwise.tasks.models.cnn import Cnn
from widthwise.tasks.models.cnn_small import CnnSmall
from widthwise.tasks.models.lstm import Lstm
from widthwise.tasks.models.mlp import Mlp

MODELS = Registry[type[Model]]("model")

MODELS.add(
    "cnn",
    Cnn,
    summary="six 3x3 convolutions 64-64-128-128-256-256, hidden layer of 512; options norm, scale",
    source="Moayedikia and Troncoso Lora, arXiv 2608.07157, Table 1",
)
MODELS.add(
    "lstm",
    Lstm,
    summary="embedding 8, two LSTM layers of 256, next character from the last step; option scale",
    source="Moayedikia and Troncoso Lora, arXiv 2608.07157, Table 1",
)
MODELS.add(
    "cnn-small",
    CnnSmall,
    summary="two 3x3 convolutions 16-32, hidden layer of 64, for small images; option norm",
    source="widthwise",
)
MODELS.add("mlp", Mlp, summary="hidden layers 128-64 with ReLU; option hidden", source="widthwise")
