"""LSTM, GRU and plain recurrent layers: rows are cut inside each gate block."""

from __future__ import annotations

from widthwise.slicing.axes import Axis, fixed_axis, resolve
from widthwise.slicing.rules.base import Call, Labels, Result, rule

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@rule(*_GATES)
def recurrent(call: Call) -> Result:
    """Weights of shape (gates * H, in) and (gates * H, H) for each layer and direction.

    All layers and directions of one call share the hidden axis H, because their states are stacked in one
    tensor. With a projection (an LSTM's ``proj_size`` P) the hidden state has its own axis P, and the cell H.
    """
    x = call["input"]
    states: list[Labels] = call["hx"] if isinstance(call["hx"], list) else [call["hx"]]
    gates = fixed_axis(_GATES[call.schema.name.removeprefix("aten::")])
    directions = 2 if call["bidirectional"] else 1
    cells = call["num_layers"] * directions
    params: list[Labels] = call["params"]
    per_cell = len(params) // cells
    hidden, cell = states[0][-1], states[-1][-1]
    sequence = x[:-1]
    if per_cell % 2 == 0:  # no projection: the hidden state is a gate times the cell
        call.unify(hidden, cell)
    rows = (*gates, *cell)
    output = (*fixed_axis(directions), *hidden)
    for index in range(cells):
        weights = params[index * per_cell : (index + 1) * per_cell]
        features = x[-1] if index < directions else output
        for weight in weights[:2]:
            call.unify(rows, weight[0])
        call.unify(features, weights[0][1])
        call.unify(hidden, weights[1][1])
        for bias in weights[2:4] if call["has_biases"] else []:
            call.unify(rows, bias[0])
        call.macs.append((*_positions(sequence), *rows, *features))
        call.macs.append((*_positions(sequence), *rows, *hidden))
        if per_cell % 2:
            call.unify(hidden, weights[-1][0])
            call.unify(cell, weights[-1][1])
            call.macs.append((*_positions(sequence), *hidden, *cell))
    return [(*sequence, output), *states]


def _positions(axes: tuple[Axis, ...]) -> Axis:
    return tuple(atom for axis in axes for atom in resolve(axis))
