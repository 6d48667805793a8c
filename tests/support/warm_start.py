"""Starts Flower's programs in milliseconds: as forks of one process that has imported what they need.

Flower starts a process for each message to a node, by a name that it looks up in ``PATH``, and each would
import torch. ``install`` writes programs of these names into a folder that is put first there. Such a program
hands its arguments and streams to the process that ``serve`` runs, which forks a child for them; the child is
what the program is otherwise. The program itself needs nothing but sockets, so it starts at once, and it ends
when the child does, with its exit code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from importlib.metadata import entry_points
from pathlib import Path

PROGRAMS = ("flwr", "flwr-serverapp", "flwr-clientapp", "flower-superexec")
SOURCE = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    message = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(message).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(message)
    sys.exit(int(server.recv(8) or b"137"))
"""


def install(folder: Path, address: str) -> None:
    """Write the programs that ask the server at ``address`` for a fork."""
    folder.mkdir()
    for name in PROGRAMS:
        program = folder / name
        program.write_text(SOURCE.format(python=sys.executable, address=address), encoding="utf-8")
        program.chmod(0o755)


def serve(address: str, config: str) -> None:
    """Do once what client and server would do, so that all is imported; then fork for each that asks."""
    from widthwise.studies import build, load_config

    scripts = entry_points(group="console_scripts")
    mains = {name: scripts[name].load() for name in PROGRAMS}
    build(load_config(config))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are nobody's to wait for
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        while True:
            connection, _ = server.accept()
            size, streams, _, _ = socket.recv_fds(connection, 8, 3)
            with connection.makefile("rb") as channel:
                sys.argv, folder, environment = json.loads(channel.read(int.from_bytes(size, "big")))
            if not os.fork():
                break
            connection.close()
            for stream in streams:
                os.close(stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    name = Path(sys.argv[0]).name
    Path("/proc/self/comm").write_text(name)
    code = 1
    try:
        mains[name]()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(str(code).encode())
    os._exit(code)  # threads of the parent, for which Python would wait, have not come along


if __name__ == "__main__":
    serve(*sys.argv[1:])
