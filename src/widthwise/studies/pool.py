"""Worker processes that train whole runs side by side, one run each at a time."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import torch
import torch.multiprocessing as mp

from widthwise.core.errors import WidthwiseError
from widthwise.core.records import RoundRecord
from widthwise.engine import EXECUTORS, Federation, is_run, run_federation
from widthwise.engine.files import write_text
from widthwise.engine.folder import ERROR
from widthwise.engine.processes import SCRIPT, die_with_parent, script_hidden
from widthwise.methods import METHODS, PARTS
from widthwise.studies.build import build
from widthwise.studies.study import PlannedRun
from widthwise.tasks import DATASETS, MODELS

#: What a reader should know of a run before it starts: (kind of message, text).
Notes = Callable[[Federation], list[tuple[str, str]]]
GRACE_SECONDS = 60.0
"""How long an interrupted worker may take to save its run."""


@dataclass(frozen=True)
class Advance:
    """A run has finished so many of its rounds; ``accuracy`` is the last one measured."""

    path: Path
    done: int
    accuracy: float | None


@dataclass(frozen=True)
class Note:
    """Something to tell the user about a run."""

    path: Path
    kind: str
    text: str


@dataclass(frozen=True)
class Ended:
    """A run is complete, or has failed for the reason in ``error``."""

    path: Path
    error: str | None = None


Event = Advance | Note | Ended


class RunPool:
    """Trains up to ``jobs`` runs at once, each in a process of its own that lives on for the next run.

    Where several runs share the cores, each of them trains its clients on one thread and one core, or on one
    of the devices, which the processes take in turn: no run
    waits for another's slowest client. A lone run keeps its own executor. Results are the same. A worker
    that dies takes its run with it and is replaced; workers die with the process that owns the pool. They
    do not import the user's script, which therefore needs no ``__main__`` guard, unless parts were registered
    outside of this package.

    Args:
        jobs: Number of runs side by side.
        data_dir: Folder of local data files.
        notes: Says what a reader should know of a run before it starts; an importable function.
    """

    def __init__(self, jobs: int, data_dir: Path | None = None, notes: Notes | None = None) -> None:
        self.jobs = jobs
        self._data_dir, self._notes = data_dir, notes
        self._idle: list[tuple[Any, Connection]] = []
        self._busy: dict[Connection, tuple[Any, PlannedRun]] = {}
        self._started = 0

    def __enter__(self) -> Self:
        return self

    @property
    def free(self) -> int:
        """How many more runs can be started now."""
        return self.jobs - len(self._busy)

    def submit(self, run: PlannedRun) -> None:
        """Start a run, or go on with the part of it that its folder holds."""
        if self.jobs > 1:
            engine = run.config.engine.model_copy(update={"executor": "serial"})
            run = replace(run, config=run.config.model_copy(update={"engine": engine}))
        while self._idle:
            process, pipe = self._idle.pop()
            try:
                pipe.send(run)
            except ConnectionError:  # it died while it had nothing to do
                process.join()
                continue
            break
        else:
            process, pipe = self._start()
            pipe.send(run)
        self._busy[pipe] = (process, run)

    def events(self) -> Iterator[Event]:
        """Wait for news and yield what is there."""
        for ready in wait(list(self._busy)):
            assert isinstance(ready, Connection)
            process, run = self._busy[ready]
            try:
                event: Event = ready.recv()
            except (EOFError, ConnectionError):
                process.join()
                del self._busy[ready]
                yield Ended(run.path, _death(process.exitcode))
                continue
            if isinstance(event, Ended):
                del self._busy[ready]
                self._idle.append((process, ready))
            yield event

    def _start(self) -> tuple[Any, Connection]:
        # A server process imports everything once and forks the workers, which inherit no threads.
        context = mp.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        ours, theirs = context.Pipe()
        # Not a daemon: a lone run starts worker processes of its own.
        arguments = (theirs, self._started if self.jobs > 1 else None, self._data_dir, self._notes)
        self._started += 1
        process = context.Process(target=_serve, args=arguments)
        with script_hidden(unless=_has_own_parts() or getattr(self._notes, "__module__", None) in SCRIPT):
            process.start()
        theirs.close()
        return process, ours

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, pipe in self._idle:
            pipe.close()
        for process, _ in self._busy.values():
            process.terminate()  # the worker saves its run and ends
        for process in [p for p, _ in (*self._idle, *self._busy.values())]:
            process.join(timeout=GRACE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        self._idle, self._busy = [], {}


def _has_own_parts() -> bool:
    """Return whether the user's script, or what it imports, has registered a part: workers need it too."""
    registries = (METHODS, *PARTS.values(), DATASETS, MODELS, EXECUTORS)
    return any(not entry.module.startswith("widthwise.") for registry in registries for entry in registry)


def _death(exitcode: int | None) -> str:
    remedy = (
        "Lower --jobs or free memory, which it probably ran out of."
        if exitcode == -signal.SIGKILL
        else "Its own message is above."
    )
    return f"its process died (exit code {exitcode}), but it must live as long as the run. {remedy}"


def _serve(pipe: Connection, place: int | None, data_dir: Path | None, notes: Notes | None) -> None:
    """Train the runs that come.

    Args:
        pipe: To the owner of the pool.
        place: Number of this process among those that train side by side, or None for one alone.
        data_dir: Folder of local data files.
        notes: See `RunPool`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner of the pool alone answers Ctrl-C
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=die_with_parent, daemon=True).start()  # so that its run can be resumed
    if place is not None:
        torch.set_num_threads(1)
    while True:
        try:
            run: PlannedRun = pipe.recv()
        except (EOFError, ConnectionError, KeyboardInterrupt):
            return
        try:
            pipe.send(_train(run, pipe, place, data_dir, notes))
        except (KeyboardInterrupt, ConnectionError):
            return


def _train(
    run: PlannedRun, pipe: Connection, place: int | None, data_dir: Path | None, notes: Notes | None
) -> Ended:
    try:
        federation = build(run.config, data_dir, run.label)
        if place is not None:
            device = federation.devices[place % len(federation.devices)]
            engine = federation.engine.model_copy(update={"device": str(device)})
            federation = replace(federation, engine=engine)
        for kind, text in notes(federation) if notes is not None else ():
            pipe.send(Note(run.path, kind, text))
        run_federation(federation, run.path, resume=is_run(run.path), sinks=[_PipeSink(run.path, pipe)])
    except WidthwiseError as error:
        return Ended(run.path, str(error))
    except ConnectionError:
        raise
    except Exception as error:  # a defect of ours or of a part of the user's must not stop the other runs
        if is_run(run.path):
            write_text(run.path / ERROR, traceback.format_exc())
        return Ended(run.path, f"{type(error).__name__}: {error}")
    return Ended(run.path)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the saving
    raise KeyboardInterrupt


class _PipeSink:
    """Sends a run's progress to the owner of the pool."""

    def __init__(self, path: Path, pipe: Connection) -> None:
        self._path, self._pipe = path, pipe
        self._accuracy: float | None = None

    def on_start(self, federation: Federation, start_round: int) -> None:
        self._pipe.send(Advance(self._path, start_round, None))

    def on_round(self, record: RoundRecord) -> None:
        if record.accuracy is not None:
            self._accuracy = record.accuracy
        self._pipe.send(Advance(self._path, record.round + 1, self._accuracy))

    def on_end(self, result: dict[str, Any]) -> None:
        """Nothing: the end is told when the folder is closed."""
