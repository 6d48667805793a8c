"""A ClientApp that cheats once: takes the place of a written project's ``client_app.py`` in a test.

In round 1 client 0 sends NaN, and client 3 works until it is killed; in round 2 client 1 sends wrong shapes;
in round 3 client 2 says that it has 10^12 samples, but not before client 3 is back. Else they are honest.
"""

import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp

from widthwise.deploy import client_app

honest = client_app(Path(__file__).with_name("run.yaml"))
app = ClientApp()


def not_a_number(reply: Message) -> None:
    for array in reply.content.array_records["update"].values():
        array.data = np.full(array.shape, np.nan, np.float32).tobytes()


def wrong_shapes(reply: Message) -> None:
    update = reply.content.array_records["update"]
    reply.content["update"] = ArrayRecord(
        {n: Array(a.dtype, (*a.shape, 2), a.stype, a.data * 2) for n, a in update.items()}
    )


def too_many_samples(reply: Message) -> None:
    wait_for("back", 20)
    reply.content["report"] = MetricRecord({**reply.content.metric_records["report"], "examples": 10**12})


def never_answer(reply: Message) -> None:
    (HOME / "at work").touch()
    wait_for("nothing", 60)


def wait_for(event: str, seconds: float) -> None:
    """Wait until the test has made a file of that name."""
    until = time.monotonic() + seconds
    while not (HOME / event).exists() and time.monotonic() < until:
        time.sleep(0.1)


HOME = Path(os.environ.get("WIDTHWISE_LOOPBACK", "."))
CHEATS = {(0, 1): not_a_number, (1, 2): wrong_shapes, (2, 3): too_many_samples, (3, 1): never_answer}


@app.query()
def introduce(message: Message, context: Context) -> Message:
    return honest(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    reply = honest(message, context)
    report = reply.content.metric_records["report"]
    if cheat := CHEATS.get((report["client"], report["round"])):
        cheat(reply)
    return reply
