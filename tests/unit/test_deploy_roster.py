"""What nodes say of themselves, and who is believed."""

from __future__ import annotations

import re

import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from widthwise.deploy.check import Rejection
from widthwise.deploy.roster import Claim, Expected, check_claim

SAID = {"client": 2, "samples": 30, "config": "abc", "capacity": 0.5, "torch": "2.13.0"}


def reply(content):
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    return Message(content, reply_to=Message(RecordDict(), 7, "query"))


def said(**changes):
    values = {name: value for name, value in {**SAID, **changes}.items() if value is not None}
    return reply(RecordDict({"node": ConfigRecord(values)}))


def test_check_claim_returns_what_a_node_says():
    assert check_claim(said(), Expected("abc", 4)) == Claim(2, 0.5, 30, {"torch": "2.13.0"})
    assert check_claim(said(capacity=None), Expected("abc", 4)) == Claim(2, None, 30, {"torch": "2.13.0"})


@pytest.mark.parametrize(
    ("message", "kind", "reason"),
    [
        (said(config="abd"), "config", "it has configuration 'abd', not abc"),
        (said(config=None), "config", "it has configuration None, not abc"),
        (said(client=4), "client", "it says that it is client 4, not 0 to 3"),
        (said(client=-1), "client", "client -1"),
        (said(client=True), "client", "client True"),
        (said(client="2"), "client", "client '2'"),
        (said(client=None), "client", "client None"),
        (said(samples=0), "samples", "it says 0 samples, but a client has at least 1"),
        (said(samples=1.5), "samples", "1.5 samples"),
        (said(capacity=0.0), "capacity", "it says capacity 0.0, but a width is in"),
        (said(capacity=1.5), "capacity", "capacity 1.5"),
        (said(capacity=float("nan")), "capacity", "capacity nan"),
        (said(capacity="all"), "capacity", "capacity 'all'"),
        (reply(RecordDict()), "config", "configuration None"),
        (reply(RecordDict({"node": MetricRecord({"client": 1})})), "config", "configuration None"),
        (reply(Error(2, "it\n broke")), "error", "it broke"),
    ],
)
def test_check_claim_rejects(message, kind, reason):
    found = check_claim(message, Expected("abc", 4))
    assert isinstance(found, Rejection)
    assert found.kind == kind
    assert re.search(reason, found.reason), found.reason


def test_check_claim_rejects_less_than_the_run_counts_on_and_takes_more():
    settled = Expected("abc", 4, {2: 0.75})
    found = check_claim(said(), settled)
    assert found == Rejection("capacity", "it can train 0.5, but the run counts on 0.75 of it")
    assert isinstance(check_claim(said(capacity=1.0), settled), Claim)
    assert isinstance(check_claim(said(capacity=None), settled), Claim)
