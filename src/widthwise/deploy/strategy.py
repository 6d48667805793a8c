"""What the ServerApp runs: Flower's strategy whose rounds are those of the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import safetensors.torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from safetensors import SafetensorError

from widthwise.core.errors import CheckpointError, RunError
from widthwise.core.records import RoundRecord
from widthwise.deploy.check import Bounds, Rejection, check_reply
from widthwise.deploy.exchange import LOG, Exchange
from widthwise.deploy.executor import GridExecutor, Hand
from widthwise.deploy.journal import Journal
from widthwise.deploy.roster import Expected, Roster
from widthwise.deploy.settings import identity, settled, stored
from widthwise.deploy.wire import encode_task
from widthwise.engine import DeployConfig, Federation, RunResult, is_run, load_run, run_federation
from widthwise.engine.round import dispatch
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig


class SliceStrategy(Strategy):
    """Sends each node its slice, checks what comes back, and lets the engine do the rest of the round.

    Not a variant of federated averaging: a client's message, and its answer, have the shapes of its own
    slice. ``start`` hands the rounds to the engine's loop, for which the grid is one more executor;
    cohorts, widths, aggregation, states of clients, estimators, evaluation, checkpoints and the run folder
    are therefore those of ``widthwise run``, and so are the global parameters, to the bit, where nobody is
    dropped.

    A run folder that holds a part of the run is gone on with: everything is saved after every round.

    Args:
        config: The run.
        out: Its folder.
    """

    hand: Hand
    """The round in hand, set by the executor."""

    def __init__(self, config: RunConfig, out: Path) -> None:
        engine = config.engine.model_copy(update={"checkpoint_every": 1})
        self.config, self.out = config.model_copy(update={"engine": engine}), out
        self.settings = config.deploy or DeployConfig()
        self.federation = build(stored(self.config, out) or self.config)

    def start(self, grid: Grid) -> Result:  # type: ignore[override] # the configuration says all the rest
        """Wait for the nodes, run all rounds that are left, and return the result.

        Raises:
            InputError: if the configuration is wrong, or the run folder holds something else.
            RunError: if too few nodes are there, or the run fails on the way.
        """
        self.summary()
        if is_run(self.out) and load_run(self.out).complete:
            run = run_federation(self.federation, self.out, resume=True)  # refuses another run
            LOG.info("the run in %s is complete already; another one needs another folder (out)", self.out)
            return _result(run)
        return _result(self._run(grid))

    def _run(self, grid: Grid) -> RunResult:
        exchange = Exchange(grid)
        clients, seconds = range(self.config.task.clients), self.settings.wait
        roster = Roster(exchange, Expected(identity(self.config), len(clients)), ttl=max(60.0, 2 * seconds))
        least = min(self.settings.min_nodes or len(clients), len(clients))
        if (found := roster.gather(clients, least, seconds)) < least:
            raise RunError(
                f"the number of clients with a node is {found} after {seconds:g} s, but {least} must be "
                "there before the first round. Start the others, or lower deploy.min_nodes.",
                stage="start",
            )
        if not is_run(self.out):  # a run that goes on keeps its capacities
            config = settled(self.config, roster.members())
            self.federation = self.federation if config is self.config else build(config)
        fed = self.federation
        roster.settle(dict(enumerate(fed.task.capacities.tolist())))
        executor = GridExecutor(self, exchange, roster, fed, self.settings, Journal(self.out))
        return run_federation(fed, self.out, resume=True, sinks=[_Log()], executor=executor)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Yield the message to each client of the round in hand, its slices cut when it is asked for.

        What is sent follows from the assignments alone; ``arrays`` and ``config`` are not looked at.
        """
        fed = self.federation
        for asked in self.hand.asked:
            task = dispatch(fed.space, self.hand.broadcast, asked.assignment)
            yield Message(
                encode_task(task, fed.task.tiers),
                asked.node,
                MessageType.TRAIN,
                group_id=str(task.round_index),
                # Replies wait at the SuperLink for their turn, and are gone when the message's time is over.
                ttl=2 * self.settings.deadline,
            )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Judge replies; the engine folds those that count, and the global tensors are its own.

        Returns:
            No arrays, and how many replies count or do not, by kind.
        """
        counts: Counter[str] = Counter()
        fed = self.federation
        states, limits = fed.method.objective.client_state, self.settings
        norms = limits.max_norm, limits.max_state_norm
        bounds = Bounds(fed.space, states, limits.max_examples, *norms, fed.compression)
        for reply in replies:
            asked = self.hand.by_message(reply.metadata.reply_to_message_id)
            duplicate = Rejection("duplicate", "it has answered already") if asked.verdicts else None
            verdict = duplicate or check_reply(asked.assignment, reply, bounds)
            asked.verdicts.append((reply, verdict))
            counts[verdict.kind if isinstance(verdict, Rejection) else "accepted"] += 1
        return None, MetricRecord(dict(counts))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nobody: the test samples are the server's."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing, since nobody is asked."""
        return None

    def summary(self) -> None:
        """Log what is run."""
        fed = self.federation
        text = "%s: %d rounds of %d of %d clients, %d parameters, run folder %s"
        parameters = fed.space.num_params(fed.space.full())
        LOG.info(
            text,
            fed.label,
            fed.training.rounds,
            fed.training.cohort,
            fed.task.num_clients,
            parameters,
            self.out,
        )
        if fed.privacy is not None:
            LOG.warning(
                "privacy: every node has the configuration, and in it the seed that cohorts and noise follow "
                "from: epsilon holds against those who get the model, not against nodes (docs/privacy.md)"
            )


class _Log:
    """Logs each round."""

    def on_start(self, federation: Federation, start_round: int) -> None:
        LOG.info("the run starts at round %d of %d", start_round, federation.training.rounds)

    def on_round(self, record: RoundRecord) -> None:
        accuracy = "not evaluated" if record.accuracy is None else f"accuracy {record.accuracy:.4f}"
        lost = f", dropped {dict(record.dropped)}" if record.dropped else ""
        LOG.info("round %d: %s, coverage %.3f%s", record.round, accuracy, record.coverage, lost)

    def on_end(self, result: dict[str, object]) -> None:
        LOG.info("the run is complete: accuracy %s", result["final_accuracy"])


def _result(run: RunResult) -> Result:
    """Return a finished run as Flower's result: the final model, and the evaluations of the server."""
    try:
        model = safetensors.torch.load_file(run.path / "final.safetensors")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"final.safetensors in run folder {str(run.path)!r} cannot be read ({error}), but a finished run "
            "has its model there. Run it again in another folder."
        ) from error
    evaluated = run.rounds.dropna(subset=["accuracy"])
    metrics = zip(evaluated["round"], evaluated["accuracy"], evaluated["loss"], strict=True)
    return Result(
        arrays=ArrayRecord(model),
        evaluate_metrics_serverapp={
            int(t) + 1: MetricRecord({"accuracy": float(accuracy), "loss": float(loss)})
            for t, accuracy, loss in metrics
        },
    )
