"""A command on the head, followed from here: what it printed arrives whatever is interrupted."""

import subprocess
import sys
from pathlib import Path

import pytest
import ray

from bitfront.search.cluster import ray_client
from bitfront.search.cluster.ray_client import CommandThere

pytestmark = pytest.mark.fast


class Call:
    """A remote method that is called at once, here."""

    def __init__(self, method):
        self.remote = method


@pytest.fixture
def there(tmp_path):
    """A command that printed and has ended, as an actor has it."""
    command = object.__new__(CommandThere)
    command.folder = Path(tmp_path / "command")
    command.folder.mkdir()
    command.printed = command.folder / "output"
    with command.printed.open("w") as output:
        words = [sys.executable, "-c", "print('the front'); raise SystemExit(3)"]
        command.process = subprocess.Popen(words, stdout=output)
    command.process.wait()
    return command


def test_a_ctrl_c_during_the_last_answer_loses_nothing(there, monkeypatch, capsys):
    lost = []

    def get(answer):
        if not lost:
            lost.append(answer)
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(ray, "get", get)
    actor = type("Actor", (), {})()
    for name in ("read", "interrupt", "clean"):
        setattr(actor, name, Call(getattr(there, name, None)))
    assert ray_client._follow(actor) == 3
    assert lost == [("the front\n", 3)], "the command had ended when ctrl-C was pressed"
    assert capsys.readouterr().out == "the front\n"
    assert not there.folder.exists(), "its files are deleted"
