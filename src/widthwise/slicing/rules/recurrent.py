"""LSTM, GRU and plain recurrent layers: rows are cut inside each gate block."""

from __future__ import annotations

from widthwise.slicing.axes import Axis, Mismatch, fixed_axis, resolve, size_of
from widthwise.slicing.rules.base import Call, Labels, Result, rule

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@rule(*_GATES)
def recurrent(call: Call) -> Result:
    """Weights of shape (gates * H, in) and (gates * H, H) for each layer and direction.

    All layers and directions of one call share the hidden axis H, because their states are stacked in one
    tensor; the axis of time is never cut. With a projection (an LSTM's ``proj_size`` P) the hidden state has
    its own axis P, and the cell H; torch sees the projection by H != P. So H stays H / P times what is kept
    of P, or whole where P does not divide it.
    """
    if "input" not in call:
        raise Mismatch("a packed sequence has no axis of time")
    x = call["input"]
    call.keep(x[1] if call["batch_first"] else x[0])
    states: list[Labels] = call["hx"] if isinstance(call["hx"], list) else [call["hx"]]
    call.keep(*(state[0] for state in states))  # layers and directions
    gates = fixed_axis(_GATES[call.schema.name.removeprefix("aten::")])
    directions = 2 if call["bidirectional"] else 1
    cells = call["num_layers"] * directions
    params: list[Labels] = call["params"]
    per_cell = len(params) // cells
    hidden, cell = states[0][-1], states[-1][-1]
    sequence = x[:-1]
    if per_cell % 2 == 0:  # no projection: the hidden state is a gate times the cell
        call.unify(hidden, cell)
    elif size_of(cell) % size_of(hidden) == 0:
        call.unify(cell, (*hidden, *fixed_axis(size_of(cell) // size_of(hidden))))
    else:
        call.keep(cell)
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


@rule("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def cell(call: Call) -> Result:
    """One time step of one layer."""
    x = call["input"]
    states: list[Labels] = call["hx"] if isinstance(call["hx"], list) else [call["hx"]]
    hidden = states[0][-1]
    rows = (*fixed_axis(_GATES[call.schema.name.removeprefix("aten::").removesuffix("_cell")]), *hidden)
    for name, features in (("w_ih", x[-1]), ("w_hh", hidden)):
        call.unify(rows, call[name][0])
        call.unify(features, call[name][1])
        call.macs.append((*_positions(x[:-1]), *rows, *features))
    for name in ("b_ih", "b_hh"):
        if call[name] is not None:
            call.unify(rows, call[name][0])
    for state in states:
        call.unify(hidden, state[-1])
    result = (*x[:-1], hidden)
    return [result] * len(states) if isinstance(call.step.shape, list) else result


def _positions(axes: tuple[Axis, ...]) -> Axis:
    return tuple(atom for axis in axes for atom in resolve(axis))
