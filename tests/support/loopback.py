"""A federation on this machine: SuperLink, SuperNodes and Flower's command line as processes of their own.

Everything is what the README of a written project tells its user to type, but for ports that are free and for
programs that start at once (``warm_start``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import warm_start

import widthwise

BIN = Path(sys.executable).parent
MARK = "WIDTHWISE_LOOPBACK"
"""Marks in the environment of each process whose it is."""

START = 60.0
"""Seconds that a process may take until it is up, on a busy machine."""


class Loopback:
    """The processes of one project's federation; all of them are gone when the block ends.

    Args:
        project: What ``widthwise deploy init`` has written.
        home: An empty folder: logs, and Flower's own.
    """

    def __init__(self, project: Path, home: Path) -> None:
        self.project, self.home = project, home
        self.port, *self.node_ports = _free_ports(9)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._warm = str(home / "warm")  # a socket: its path must be short
        warm_start.install(home / "bin", self._warm)
        self.environment = {
            **os.environ,
            "PATH": f"{home / 'bin'}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(widthwise.__file__).parents[1]),
            "FLWR_HOME": str(project / ".flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
            "OMP_NUM_THREADS": "1",
            MARK: str(home),
        }
        connections = project / ".flwr" / "config.toml"
        connections.write_text(connections.read_text().replace(":8000", f":{self.port}"))

    def __enter__(self) -> Self:
        reaper = [sys.executable, __file__, str(self.home)]
        self._reaper = subprocess.Popen(reaper, stdin=subprocess.PIPE, start_new_session=True)
        try:
            config = self.project / "federation" / "run.yaml"
            self.start("warm", sys.executable, warm_start.__file__, self._warm, config)
            self.wait_for("programs can be forked", Path(self._warm).exists)
            self.start_superlink()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill every process that this block has started, and those that they have started."""
        self._reaper.communicate()
        for process in self.processes.values():
            process.wait()

    def alive(self) -> Iterator[int]:
        """Yield the processes of this block."""
        return alive(self.home)

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a process in a group of its own; what it prints is appended to its log."""
        with self.log_file(name).open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.project,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def log_file(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def log(self, name: str) -> str:
        return self.log_file(name).read_text(encoding="utf-8", errors="replace")

    def kill(self, name: str) -> None:
        """Kill a process and its group, without a chance to say goodbye."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes.pop(name).wait()

    def wait_for(self, what: str, condition: Callable[[], bool], seconds: float = START) -> None:
        """Wait until something is so.

        Raises:
            TimeoutError: with the end of every log, if it is not so in time.
        """
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                logs = "\n".join(
                    f"--- {file.name}\n{file.read_text(errors='replace')[-3000:]}"
                    for file in sorted(self.home.glob("*.log"))
                )
                raise TimeoutError(f"{what}: not within {seconds:g} s\n{logs}")
            time.sleep(0.05)

    def start_superlink(self) -> None:
        """Start the server's side with TLS and authentication, and wait until it answers."""
        self.start(
            "superlink",
            *("flower-superlink", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--ssl-ca-certfile", "keys/ca.crt"),
            *("--ssl-certfile", "keys/server.crt", "--ssl-keyfile", "keys/server.key"),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
            *("--database", "superlink.sqlite"),
        )
        self.wait_for("the SuperLink listens", lambda: _listens(self.port))

    def start_node(self, number: int, capacity: float) -> subprocess.Popen[bytes]:
        """Start the node of a client."""
        config = f"partition-id={number} capacity={capacity}"
        key = self.project / "keys" / f"node-{number}"
        return self.start_supernode(f"node-{number}", self.node_ports[number], config, *self.trust(key))

    def start_supernode(
        self, name: str, port: int, config: str, *options: str | Path
    ) -> subprocess.Popen[bytes]:
        """Start a SuperNode with options that say whom it trusts and who it is."""
        link = ("--superlink", f"127.0.0.1:{self.port}")
        return self.start(
            name, "flower-supernode", *link, "--port", str(port), "--node-config", config, *options
        )

    def trust(self, key: Path, authority: Path | None = None) -> tuple[str | Path, ...]:
        """Return the options of a node that has a key and trusts an authority, by default the project's."""
        root = authority or self.project / "keys" / "ca.crt"
        return "--root-certificates", root, "--auth-supernode-private-key", key

    def restart_node(self, number: int, capacity: float) -> None:
        """Start a node that was killed until it is let in: Flower holds it for alive for up to a minute."""
        name = f"node-{number}"
        while True:
            before = len(self.log(name))
            process = self.start_node(number, capacity)
            self.wait_for(
                f"{name} is let in or refused",
                partial(self._said, name, before, "SuperNode ID", "Exit Code"),
            )
            if "SuperNode ID" in self.log(name)[before:]:
                return
            process.wait(START)

    def _said(self, name: str, before: int, *words: str) -> bool:
        return any(word in self.log(name)[before:] for word in words)

    def find(self, program: str) -> list[int]:
        """Return the processes that run a program."""
        return [pid for pid in self.alive() if Path(f"/proc/{pid}/comm").read_text().strip() == program]

    def flwr(self, *arguments: str | Path) -> str:
        """Run a command of Flower to its end and return what it prints."""
        done = subprocess.run(
            ["flwr", *map(str, arguments)],
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=START,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def alive(home: Path) -> Iterator[int]:
    """Yield the processes of a block, known by their environment: some leave their parent's group."""
    mark = f"{MARK}={home}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)


def reap(home: Path) -> None:
    """Wait until the test is over or dead, which ends standard input, and kill what it has left."""
    sys.stdin.buffer.read()
    while found := list(alive(home)):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _free_ports(number: int) -> list[int]:
    """Return ports that nothing listens at, all different: each is held until the last is found."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    try:
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    reap(Path(sys.argv[1]))
