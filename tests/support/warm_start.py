"""Starts ``flwr-clientapp`` in milliseconds: forks of one process that has imported torch.

Flower starts a process for each message to a node, by a name that it looks up in ``PATH``. ``install``
writes a program of that name into a folder that is put first there. It hands its arguments and streams to the
process that ``serve`` runs, which forks a child for them; the child is what ``flwr-clientapp`` is otherwise.
The program itself uses nothing but sockets, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

PROGRAM = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    message = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(message).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(message)
"""


def install(folder: Path, address: str) -> None:
    """Write the program that asks the server at ``address`` for a fork."""
    folder.mkdir()
    program = folder / "flwr-clientapp"
    program.write_text(PROGRAM.format(python=sys.executable, address=address), encoding="utf-8")
    program.chmod(0o755)


def serve(address: str, config: str) -> None:
    """Do once what each client would do, so that all is imported; then fork a child for each."""
    from flwr.supernode.cli import flwr_clientapp

    from widthwise.studies import build, load_config

    build(load_config(config))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are nobody's to wait for
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        while True:
            connection, _ = server.accept()
            with connection:
                size, streams, _, _ = socket.recv_fds(connection, 8, 3)
                with connection.makefile("rb") as channel:
                    argv, folder, environment = json.loads(channel.read(int.from_bytes(size, "big")))
                if os.fork():
                    for stream in streams:
                        os.close(stream)
                    continue
            server.close()
            break
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    flwr_clientapp()


if __name__ == "__main__":
    serve(*sys.argv[1:])
