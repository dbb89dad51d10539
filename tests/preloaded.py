"""Stands in for `python` in scripts that tests run: TensorFlow is imported once, and programs are forked from there.

    python preloaded.py SOCKET                forks what is asked for, until its input ends
    python -S -E preloaded.py SOCKET WORD...  asks for what `python WORD...` does, with its streams, signals and status

Imports are most of what a short command takes. Nothing has been computed when it is forked, and there is one thread.
"""

import importlib
import json
import os
import runpy
import signal
import socket
import struct
import sys

_NUMBER = struct.Struct("q")


def ask(path: str, words: list[str]) -> int:
    """Has a program run with the environment, folder and streams of this process; returns its exit status."""
    request = json.dumps([words, dict(os.environ), os.getcwd()]).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [_NUMBER.pack(len(request))], [0, 1, 2])
        connection.sendall(request)
        program = _received(connection)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(program, number))
        status = os.waitstatus_to_exitcode(_received(connection))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _received(connection: socket.socket) -> int:
    return _NUMBER.unpack(connection.recv(_NUMBER.size, socket.MSG_WAITALL))[0]


def next_program(path: str) -> list[str]:
    """Returns in a process that was forked for it; ends where nobody holds the standard input open any more."""
    import select

    for name in ("datalens_tf.training.classifier", "scipy.stats", "sklearn.linear_model", "matplotlib.pyplot",
                 "dp_accounting"):
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "Threads are missing in what is forked."
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for those that wait for programs.
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        print("ready", flush=True)
        while sys.stdin not in (ready := select.select([listening, sys.stdin], [], [])[0]):
            assert ready == [listening]
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                return _forked(connection)
            connection.close()
    sys.exit(0)


def _forked(connection: socket.socket) -> list[str]:
    """Forks once more: the program, and what tells of its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, *_ = socket.recv_fds(connection, _NUMBER.size, 3)
    words, environment, folder = json.loads(connection.recv(_NUMBER.unpack(size)[0], socket.MSG_WAITALL))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if program := os.fork():
        connection.sendall(_NUMBER.pack(program))
        for number in range(3):  # Whoever reads what the program writes waits for the program alone.
            os.close(number)
        connection.sendall(_NUMBER.pack(os.waitpid(program, 0)[1]))
        os._exit(0)
    connection.close()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    return words


def run(first: str, *others: str) -> None:
    """What `python FIRST OTHER...` does."""
    if first == "-m":
        sys.argv, sys.path[0] = list(others), os.getcwd()
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif first == "-":
        sys.argv, sys.path[0] = [first, *others], ""
        exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = [first, *others], os.path.dirname(first)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        run(*next_program(sys.argv[1]))
    elif sys.argv[2].startswith("-") and sys.argv[2] not in ("-m", "-"):
        os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
