"""The README's first tour, command by command as it stands there. The first command is started as a
user starts it, the others without waiting for their imports. Then what docs/tutorial.md does beyond
it, in the folder that the tour leaves."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from testbed import warm
from testbed.pages import blocks, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
TUTORIAL = blocks((ROOT / "docs" / "tutorial.md").read_text())
# Of docs/deploy.md, with an image.
IMAGE = "import torch\n\nimage = torch.zeros(1, 8, 8)\n"
# Verbs that serve a page until they are ended, and the port each listens on when none is given.
PAGES = {"dashboard": 8050, "ui": 5000}
SECONDS = 600


def commands():
    section = README.partition("\n## Five minutes\n")[2].partition("\n## ")[0]
    block = re.search(r"```bash\n(.*?)```", section, flags=re.DOTALL).group(1)
    return [line.partition("#")[0].strip() for line in block.splitlines() if line.strip()]


def environment(fresh):
    """That of a new user: the installed command, nothing of bitfront's set, no browser."""
    inherited = warm.environment()
    if fresh:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        inherited = {**os.environ, "PATH": path}
    kept = {k: v for k, v in inherited.items() if not k.startswith(("BITFRONT_", "MLFLOW_"))}
    return {**kept, "BROWSER": "true", "PYTHONUNBUFFERED": "1"}


def start(command, folder):
    env = environment(fresh=command == commands()[0])
    first, *words = shlex.split(command)
    return subprocess.Popen(
        [shutil.which(first, path=env["PATH"]), *words],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # In the background ctrl-C is ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def call(command, folder):
    process = start(command, folder)
    try:
        out = process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        out = process.communicate()[0]
    assert process.returncode == 0, f"{command}\n{out}"
    assert "Traceback" not in out, f"{command}\n{out}"
    return out


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def look(command, port, folder):
    """Start what serves a page, get the page, end it with ctrl-C. Only where somebody else has the
    usual port is another one given."""
    if not is_free(port):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = f"{command} --port {port}"
    process = start(command, folder)
    try:
        page = fetched(f"http://127.0.0.1:{port}/", process)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            out = process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            out = process.communicate()[0]
    # 130: the page was there before the command had come to say so.
    assert process.returncode in (0, 130), f"{command}\n{out}"
    assert "Traceback" not in out, f"{command}\n{out}"
    return page


def fetched(url, process):
    deadline = time.monotonic() + SECONDS / 2
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return answer.read().decode(errors="replace")
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"{url} did not answer")


@pytest.mark.timeout(1800)
def test_the_first_tour_of_the_readme_works_as_it_is_written(tmp_path):
    """Two to four minutes on two cores: a real search, final training, more trials."""
    said = {}
    for command in commands():
        verb = shlex.split(command)[1]
        assert command.startswith("bitfront ")
        port = PAGES.get(verb)
        said[verb] = call(command, tmp_path) if port is None else look(command, port, tmp_path)
    assert list(said) == [
        "run", "front", "status", "dashboard", "ui", "report", "export", "train",
        "deploy", "extend",
    ]  # fmt: skip
    assert "first trial:" in said["run"]  # what a fresh worker does until it has imported torch
    assert "40/40 trials" in said["run"]
    assert "Front of quickstart" in said["front"]
    assert re.search(r"quickstart\s+complete", said["status"])
    assert "<title>" in said["dashboard"]
    assert "MLflow" in said["ui"]
    assert (tmp_path / "bitfront-runs" / "quickstart" / "report.html").exists()
    plan = yaml.safe_load((tmp_path / "recipe.yaml").read_text())["spec"]["plan"]
    assert set(plan) not in ({"F"}, {"B"})
    assert re.search(r"test accuracy \d", said["train"])
    assert "same predictions" in said["deploy"]
    assert "40 trials done, 20 to go" in said["extend"]
    assert "60/60 trials" in said["extend"]
    # `config` is the user's own folder, which tests have here.
    left = sorted(p.name for p in tmp_path.iterdir() if p.name != "config")
    assert left == ["bitfront-runs", "net", "recipe-trained", "recipe.yaml"]
    follow_the_tutorial(tmp_path)


def beyond(block):
    """The commands of a block of the tutorial that the tour does not have."""
    return [line for line in block.content.splitlines() if line not in commands()]


def follow_the_tutorial(folder):
    """Its files are written, its other commands run in the order of the page."""
    (folder / "page.py").write_text(
        IMAGE + blocks((ROOT / "docs" / "deploy.md").read_text())[0].content
    )
    run("python page.py", folder)
    said = ""
    for block in TUTORIAL:
        if block.name:
            (folder / block.name).write_text(block.content)
        elif block.language == "bash" and (block.note != "compiler" or shutil.which("cc")):
            said += run("\n".join(beyond(block)), folder)
    assert re.search(r"plan [FWB]+: this is a \d, and should be a 0", said)


def test_the_tutorial_has_the_tour_and_little_more():
    lines = [line for b in TUTORIAL if b.language == "bash" for line in b.content.splitlines()]
    assert set(commands()) <= set(lines) | {"bitfront deploy"}
    assert [line for b in TUTORIAL if b.language == "bash" for line in beyond(b)] == [
        "python digit.py",
        "cc -std=c99 -O2 net/net.c net/main.c -lm -o digit",
        "./digit",
    ]
