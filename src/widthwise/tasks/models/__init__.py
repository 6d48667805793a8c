"""Models, one file each."""

from __future__ import annotations

from widthwise.core.registry import Registry
from widthwise.tasks.model import Model
from widthwise.tasks.models.cnn import Cnn
from widthwise.tasks.models.cnn_small import CnnSmall
from widthwise.tasks.models.gpt import Gpt
from widthwise.tasks.models.lstm import Lstm
from widthwise.tasks.models.mlp import Mlp
from widthwise.tasks.models.mobilenet import MobileNetV2
from widthwise.tasks.models.recurrent import GruLm, LstmLm
from widthwise.tasks.models.resnet import ResNet18, ResNet20
from widthwise.tasks.models.vit import Vit

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
MODELS.add(
    "resnet18",
    ResNet18,
    summary="ResNet-18 with a 3x3 stem, for small images; options norm, scale",
    source="He et al. 2016, table 1",
)
MODELS.add(
    "resnet20",
    ResNet20,
    summary="ResNet-20 for CIFAR-10, shortcuts by 1x1 convolution; options norm, scale",
    source="He et al. 2016, section 4.2",
)
MODELS.add(
    "mobilenetv2",
    MobileNetV2,
    summary="MobileNetV2; small images are halved less often; options norm, scale",
    source="Sandler et al. 2018, table 2",
)
MODELS.add(
    "vit",
    Vit,
    summary="vision transformer; options patch, dim, depth, heads, hidden, dropout",
    source="Dosovitskiy et al. 2021",
)
MODELS.add(
    "gpt",
    Gpt,
    summary="decoder-only transformer, next character from the last position; options dim, depth, heads, "
    "hidden, dropout, tied",
    source="Radford et al. 2019",
)
MODELS.add(
    "lstm-lm",
    LstmLm,
    summary="LSTM language model with a sliced embedding; options embedding, hidden, layers, dropout",
    source="Hochreiter and Schmidhuber 1997",
)
MODELS.add(
    "gru-lm",
    GruLm,
    summary="GRU language model with a sliced embedding; options embedding, hidden, layers, dropout",
    source="Cho et al. 2014",
)
