"""Replies that do not count, each made by hand from one that does."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

from widthwise.compression import COMPRESSIONS, compress, decompress
from widthwise.core.records import ClientReport
from widthwise.deploy.check import Bounds, Rejection, check_reply, reason_of
from widthwise.deploy.wire import Size, encode_report
from widthwise.engine.disk import Disk
from widthwise.engine.round import Broadcast, assignments, plan_round
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig

CONTROL = "state.client_control"


@pytest.fixture(scope="module")
def fed():
    return build(
        RunConfig(
            task={
                "dataset": "digits",
                "model": {"name": "mlp", "hidden": [8]},
                "clients": 2,
                "partition": {"kind": "iid"},
                "limit": 40,
                "test_limit": 40,
            },
            capacity={"list": [0.5, 1.0]},
            method={"name": "scaffold", "policy": "capacity"},
            training={"rounds": 1, "cohort": 2, "local_epochs": 1, "batch_size": 8, "momentum": 0.0},
            seed=5,
        )
    )


@pytest.fixture(scope="module")
def asked(fed, tmp_path_factory):
    """The assignment of the half-width client, and its honest report."""
    plan, state = plan_round(fed, ServerState.initial(fed))
    todo = list(assignments(fed, state, plan, Disk(tmp_path_factory.mktemp("run"))))[-1]
    assert todo.spec.width == 0.5
    runner = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective)
    return todo, runner(Broadcast.of(state), (todo,))[0]


@pytest.fixture
def bounds(fed):
    return Bounds(
        fed.space, fed.method.objective.client_state, max_examples=1000, max_norm=None, max_state_norm=None
    )


def reply(content):
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    question = Message(RecordDict(), 7, "train", group_id="0")
    return Message(content, reply_to=question)


def honest(report):
    return encode_report(report, Size(1, 1))


def test_check_reply_returns_the_report_that_was_sent(asked, bounds):
    todo, report = asked
    found = check_reply(todo, reply(honest(report)), bounds)
    assert isinstance(found, ClientReport)
    assert found.spec is todo.spec
    assert (found.client_id, found.round_index) == (report.client_id, 0)
    assert (found.num_examples, found.num_steps) == (report.num_examples, report.num_steps)
    assert found.metrics == report.metrics
    assert list(found.delta) == list(report.delta)
    assert all(torch.equal(found.delta[name], value) for name, value in report.delta.items())
    assert found.state.keys() == report.state.keys() == {"client_control"}
    assert all(
        torch.equal(found.state["client_control"][n], v) for n, v in report.state["client_control"].items()
    )


def number(name, value):
    def change(content):
        content["report"][name] = value

    return change


def array(key="update", **changes):
    """Change fields of the first array of a record; ``data`` may be a function of the bytes."""

    def change(content):
        record = content[key]
        name = next(iter(record))
        old = record[name]
        fields = {
            "dtype": old.dtype,
            "shape": tuple(old.shape),
            "stype": old.stype,
            "data": old.data,
            **changes,
        }
        if callable(fields["data"]):
            fields["data"] = fields["data"](old.data)
        record[name] = Array(**fields)

    return change


def values(key, value):
    def change(content):
        name = next(iter(content[key]))
        tensor = torch.frombuffer(bytearray(content[key][name].data), dtype=torch.float32)
        tensor[-1] = value
        content[key][name].data = tensor.numpy().tobytes()

    return change


def values_of(piece, value):
    """Fill a piece of a compressed update with one byte."""

    def change(content):
        array = content["update"][piece]
        array.data = bytes([value]) * len(array.data)

    return change


def remove(*path):
    def change(content):
        *above, last = path
        place = content
        for step in above:
            place = place[step]
        del place[last if isinstance(last, str) else next(iter(place))]

    return change


def put(key, record):
    def change(content):
        content[key] = record

    return change


def swap_first_two(content):
    a, b, *_ = content["update"]
    content["update"][a], content["update"][b] = content["update"][b], content["update"][a]


FULL = tuple(torch.zeros(8, 64).shape)  # the first weight of the global model; the slice has [4, 64]

BAD = [
    ("a number that is missing", remove("report", "steps"), "records", "numbers differ .* in steps"),
    ("a number too many", number("more", 1), "records", "numbers differ .* in more"),
    ("10^12 samples", number("examples", 10**12), "examples", "1000000000000 samples, not 1 to 1000$"),
    ("no samples", number("examples", 0), "examples", "0 samples"),
    ("fewer than no samples", number("examples", -3), "examples", "-3 samples"),
    ("samples that are no integer", number("examples", 3.0), "numbers", "examples is 3.0, no whole number"),
    ("a list of samples", number("examples", [3]), "numbers", r"examples is \[3\], no whole number"),
    ("no steps", number("steps", 0), "numbers", "0 steps"),
    ("another round", number("round", 3), "round", "client ., round 3"),
    ("another client", number("client", 9), "round", "client 9, round 0"),
    ("a loss that is NaN", number("loss", math.nan), "non-finite", "the loss is nan"),
    ("a loss that is infinite", number("loss", math.inf), "non-finite", "the loss is inf"),
    ("an update with a NaN", values("update", math.nan), "non-finite", "update of .* holds a NaN"),
    (
        "an update with an infinity",
        values("update", -math.inf),
        "non-finite",
        "update of .* holds a NaN or an inf",
    ),
    ("an increment with a NaN", values(CONTROL, math.nan), "non-finite", f"{CONTROL} of .* holds a NaN"),
    ("a global shape", array(shape=FULL, data=bytes(4 * 512)), "shape", r"shape \(8, 64\), not \(4, 64\)"),
    ("a transposed shape", array(shape=(64, 4)), "shape", r"shape \(64, 4\), not \(4, 64\)"),
    ("a flat shape", array(shape=(256,)), "shape", r"shape \(256,\), not \(4, 64\)"),
    ("a negative shape", array(shape=(-4, -64)), "shape", r"shape \(-4, -64\)"),
    ("too few bytes", array(data=lambda data: data[:-4]), "shape", r"1020 bytes for shape \(4, 64\)"),
    ("too many bytes", array(data=lambda data: data * 2), "shape", "2048 bytes"),
    ("double precision", array(dtype="float64", data=bytes(8 * 256)), "dtype", "'float64'"),
    ("objects", array(dtype="object", stype="numpy.ndarray"), "dtype", "'object'"),
    ("a numpy file", array(stype="numpy.ndarray"), "dtype", "numpy.ndarray"),
    ("an increment of the wrong shape", array(CONTROL, shape=(64, 4)), "shape", f"{CONTROL} of"),
    ("a parameter that is missing", remove("update", 0), "records", "update differ .* in "),
    (
        "a parameter too many",
        lambda c: c["update"].update(x=c["update"][next(iter(c["update"]))]),
        "records",
        "in x",
    ),
    ("two parameters exchanged", swap_first_two, "shape", "has shape"),
    ("no update", remove("update"), "records", "records differ .* in update"),
    ("no increments", remove(CONTROL), "records", f"in {CONTROL}"),
    ("another record", put("extra", ConfigRecord({"a": 1})), "records", "in extra"),
    ("an update of numbers", put("update", MetricRecord({"a": 1})), "records", "update is no ArrayRecord"),
    (
        "a report of text",
        put("report", ConfigRecord({"examples": "9"})),
        "records",
        "report is no MetricRecord",
    ),
    ("an empty update", put("update", ArrayRecord()), "records", "update differ"),
    ("nothing", lambda content: content.clear(), "records", "records differ"),
]


@pytest.mark.parametrize(("change", "kind", "reason"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_check_reply_rejects(asked, bounds, change, kind, reason):
    todo, report = asked
    content = honest(report)
    change(content)
    found = check_reply(todo, reply(content), bounds)
    assert isinstance(found, Rejection)
    assert found.kind == kind
    assert re.search(reason, found.reason), found.reason


@pytest.mark.parametrize(("key", "option"), [("update", "max_norm"), (CONTROL, "max_state_norm")])
def test_check_reply_bounds_the_norms_of_updates_and_of_increments(asked, bounds, key, option):
    todo, report = asked
    tensors = report.delta if key == "update" else report.state["client_control"]
    norm = math.sqrt(sum(float(value.double().square().sum()) for value in tensors.values()))
    message = reply(honest(report))
    assert isinstance(check_reply(todo, message, replace(bounds, **{option: norm * 1.001})), ClientReport)
    found = check_reply(todo, message, replace(bounds, **{option: norm * 0.999}))
    limit = f"{norm * 0.999:g}"
    assert found == Rejection("norm", f"the norm of {key} is {norm:.4g}, above deploy.{option} {limit}")


@pytest.mark.parametrize("kind", COMPRESSIONS.names())
def test_check_reply_reads_a_compressed_report(fed, asked, bounds, kind):
    todo, report = asked
    compression = COMPRESSIONS[kind].value()
    sent = compress(report, compression, todo.seed)
    found = check_reply(todo, reply(honest(sent)), replace(bounds, compression=compression))
    expected = decompress(sent, compression, fed.space, todo.spec)
    assert isinstance(found, ClientReport)
    for ours, theirs in (
        (found.delta, expected.delta),
        (found.state["client_control"], expected.state["client_control"]),
    ):
        assert list(ours) == list(theirs)
        assert all(torch.equal(ours[name], value) for name, value in theirs.items())


BAD_PIECES = [
    ("int8", array(dtype="uint8"), "dtype", r"is 'uint8' .*, not raw int8"),
    ("int8", array(data=lambda data: data[:-1]), "shape", "bytes for shape"),
    ("int8", remove("update", "scales"), "records", "update differ .* in scales"),
    ("int8", remove("update", "steps"), "records", "update differ .* in steps"),
    ("bf16", array(data=lambda data: b"\x80\x7f" * (len(data) // 2)), "non-finite", "a NaN or an infinity"),
    ("topk", array(shape=(1,), data=bytes(4)), "shape", r"shape \(1,\), not"),
    ("topk", values_of("bitmap", 0), "shape", "update: a compressed update names positions that are not"),
]


@pytest.mark.parametrize(("kind", "change", "why", "reason"), BAD_PIECES)
def test_check_reply_rejects_compressed_reports_that_stand_for_nothing(
    asked, bounds, kind, change, why, reason
):
    todo, report = asked
    compression = COMPRESSIONS[kind].value()
    content = honest(compress(report, compression, todo.seed))
    change(content)
    found = check_reply(todo, reply(content), replace(bounds, compression=compression))
    assert isinstance(found, Rejection)
    assert found.kind == why
    assert re.search(reason, found.reason), found.reason


def test_check_reply_rejects_what_is_compressed_otherwise_than_configured(asked, bounds):
    todo, report = asked
    int8 = COMPRESSIONS["int8"].value()
    sent = honest(compress(report, int8, todo.seed))
    for configured, content in ((None, sent), (COMPRESSIONS["bf16"].value(), sent), (int8, honest(report))):
        found = check_reply(todo, reply(content), replace(bounds, compression=configured))
        assert isinstance(found, Rejection)
        assert found.kind == "records"


def test_check_reply_bounds_the_norm_of_what_a_compressed_report_stands_for(asked, bounds):
    todo, report = asked
    int8 = COMPRESSIONS["int8"].value()
    content = honest(compress(report, int8, todo.seed))
    scales = content["update"]["scales"]
    scales.data = (torch.frombuffer(bytearray(scales.data), dtype=torch.float32) * 1e6).numpy().tobytes()
    found = check_reply(todo, reply(content), replace(bounds, compression=int8, max_norm=1e3))
    assert isinstance(found, Rejection)
    assert found.kind == "norm"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.NODE_UNAVAILABLE, "offline"),
        (ErrorCode.MESSAGE_UNAVAILABLE, "expired"),
        (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "error"),
    ],
)
def test_check_reply_says_what_an_error_means(asked, bounds, code, kind):
    found = check_reply(asked[0], reply(Error(code, "why\n  it   failed" + "x" * 1000)), bounds)
    assert isinstance(found, Rejection)
    assert found.kind == kind
    assert found.reason.startswith("why it failedxxx")  # one line, and not a long one
    assert len(found.reason) == 300


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "<class 'widthwise.core.errors.ConfigError'>:<'it is 'a', not b.'>",
            "ConfigError: it is 'a', not b.",
        ),
        ("<class 'ValueError'>:<'two\nlines'>", "ValueError: two\nlines"),
        ("App heartbeat expired.", "App heartbeat expired."),
        ("<class 'x'>:<", "<class 'x'>:<"),
        ("", "no reason given"),
    ],
)
def test_reason_of_says_what_was_raised_as_python_does(said, reason):
    assert reason_of(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, said)) == reason
