"""The commands of testbed/warm.py: asks the process that has imported everything to fork, passes
signals on, and ends as the forked process did. Each command is a copy of this file beside the
socket."""

import array
import json
import os
import signal
import socket
import sys

LENGTH = 12
# Scripts of Ray that are forked.
WORKER, SETUP = "default_worker.py", "setup_worker.py"
SERVICES = ("dashboard/agent.py", "runtime_env/agent/main.py", "/log_monitor.py", "/monitor.py")
# What `jupyter execute` does; the kernel is started with the Python of this process.
NOTEBOOK = "from nbclient.cli import main; main()"
# A dashboard without pages; the one with pages starts processes to which it passes files on. Of
# those it starts what answers bitfront: jobs, packages, logs (NodeHead knows the head among nodes).
PAGELESS = ("dashboard/dashboard.py", "--disable-frontend")
MODULES = "--modules-to-load=JobHead,NodeHead,StateHead"
PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGABRT", "SIGALRM")


def received(peer: socket.socket, length: int) -> bytes:
    """So many bytes of a socket."""
    data = b""
    while len(data) < length:
        more = peer.recv(length - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def ask(peer: socket.socket, request: dict[str, object], files: list[int]) -> None:
    """Tell a server what is wanted, and pass standard files on."""
    data = json.dumps(request).encode()
    head = str(len(data)).rjust(LENGTH).encode()
    peer.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
    peer.sendall(data)


def wanted() -> tuple[str, list[str]] | None:
    """(kind, words) of a process that can be forked; None where only a fresh one will do."""
    words = sys.argv[1:]
    name = os.path.basename(sys.argv[0])
    if name == "bitfront":
        return "command", ["bitfront", *words]
    if name == "jupyter":
        return "command", ["-c", NOTEBOOK, *words[1:]]
    if words[:1] == ["-u"]:
        words = words[1:]
    if not words:
        return None
    script = os.path.basename(words[0])
    if script == WORKER:
        return "worker", words
    if script == SETUP:  # it executes the Python that a fresh process of Ray has named
        here = os.path.abspath(sys.argv[0])
        return "command", [w.replace(f'"{sys.executable}"', f'"{here}"') for w in words]
    pageless = words[0].endswith(PAGELESS[0]) and PAGELESS[1] in words
    if words[0] in ("-m", "-c") or words[0].endswith(SERVICES) or pageless:
        return "command", words
    if script.startswith("-") or "/site-packages/" in words[0]:
        return None
    return "command", words


def main() -> None:
    found = wanted()
    if found is None:
        words = sys.argv[1:]
        if any(word.endswith(PAGELESS[0]) for word in words) and "--minimal" not in words:
            words.append(MODULES)
        os.execv(sys.executable, [sys.executable, *words])
    kind, words = found
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    signals = [getattr(signal, name) for name in PASSED_ON]
    # Signals wait until there is a process to pass them on to.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "words": words,
        "folder": os.getcwd(),
        "umask": umask,
        "env": dict(os.environ),
        "ignored": [s for s in signals if signal.getsignal(s) == signal.SIG_IGN],
        "blocked": [s for s in signals if s in blocked],
        "terminal": None,
        "python": None,
        "leads": os.getpgrp() == os.getpid(),
    }
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(os.path.join(folder, kind))
    ask(peer, request, [0, 1, 2])
    lines = peer.makefile()
    process = int(lines.readline())
    for number in signals:
        signal.signal(number, lambda sign, _frame: os.kill(process, sign))
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    status = os.waitstatus_to_exitcode(int(lines.readline() or 9))
    if status < 0:
        if -status != signal.SIGKILL:  # which has no other way to end
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
