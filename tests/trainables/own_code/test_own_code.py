"""Code of the user's own: found and hashed without being run, run only where it is trusted."""

import fcntl
import importlib
import os
import shutil
import sys
import tempfile

import pytest

from bitfront.trainables import own_code
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import bundles, places, trusted
from bitfront.trainables.own_code.sources import read_source

NET = "import helper\n\nclass Net:\n    width = helper.WIDTH\n"


@pytest.fixture
def folder(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "my_net.py").write_text(NET)
    (code / "helper.py").write_text("WIDTH = 3\n")
    return code


def test_a_reference_is_settled_with_the_hash_of_all_its_files(folder):
    settled = own_code.settle("my_net.py:Net", folder)
    assert settled.startswith("my_net.py:Net@")
    assert own_code.shown(settled) == "my_net.py:Net"
    (folder / "helper.py").write_text("WIDTH = 4\n")
    assert own_code.settle("my_net.py:Net", folder) != settled


def test_hashing_runs_nothing(folder):
    (folder / "my_net.py").write_text("raise SystemExit('run')\nclass Net: pass\n")
    own_code.settle("my_net.py:Net", folder)


def test_a_changed_file_is_named(folder):
    settled = own_code.settle("my_net.py:Net", folder)
    (folder / "helper.py").write_text("WIDTH = 5\n")
    with pytest.raises(UserError, match=r"my_net\.py has changed"):
        own_code.load_object(settled)


def test_the_edited_file_of_the_user_is_found_beside_a_kept_copy(folder, tmp_path, monkeypatch):
    settled = own_code.settle("my_net.py:Net", folder)
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    own_code.look_in(kept)
    assert places.edited(settled) is None
    (folder / "helper.py").write_text("WIDTH = 5\n")
    used, file, digest = places.edited(settled)  # the folder in which the user named it
    assert (used.path, file) == (kept / "my_net.py", folder / "my_net.py")
    assert digest not in ("", settled.rpartition("@")[2])
    (folder / "my_net.py").write_text("class Net(:\n")
    assert places.edited(settled)[1:] == (folder / "my_net.py", "")
    here = tmp_path / "here"
    shutil.copytree(kept, here)
    monkeypatch.chdir(here)  # the same file lies where the user is now
    assert places.edited(settled) is None


def test_code_that_is_not_trusted_is_not_run(folder):
    own_code.look_in(folder)
    source = places.find(own_code.parse("my_net.py:Net"))
    stranger = f"my_net.py:Net@{source.sha256[:12]}"
    with pytest.raises(UserError, match="code that you have not run before") as refused:
        own_code.load_object(stranger)
    assert "--trust" in str(refused.value)
    own_code.trust(source.sha256)
    assert own_code.load_object(stranger).width == 3


def test_trust_is_remembered_by_hash(folder):
    own_code.settle("my_net.py:Net", folder)
    sha256 = places.find(own_code.parse("my_net.py:Net")).sha256
    trusted._now.clear()
    assert own_code.is_trusted(sha256)


def test_an_edited_file_is_loaded_anew_with_its_helpers(folder):
    first = own_code.load_object(own_code.settle("my_net.py:Net", folder))
    (folder / "helper.py").write_text("WIDTH = 44\n")
    second = own_code.load_object(own_code.settle("my_net.py:Net", folder))
    assert (first.width, second.width) == (3, 44)


def test_a_file_may_be_called_like_an_installed_module(folder):
    (folder / "json.py").write_text("class Net: width = 7\n")
    assert own_code.load_object(own_code.settle("json.py:Net", folder)).width == 7
    assert importlib.import_module("json").dumps([1]) == "[1]"


@pytest.mark.parametrize("name", ["numpy", "json", "sys", "bitfront"])
def test_a_file_beside_the_code_does_not_take_the_place_of_a_library(folder, name):
    before = importlib.import_module(name)
    (folder / f"{name}.py").write_text("raise ValueError('not this one')\n")
    (folder / "my_net.py").write_text(f"import {name}\n{NET}")
    assert own_code.load_object(own_code.settle("my_net.py:Net", folder)).width == 3
    assert sys.modules[name] is before


def test_a_module_of_a_package_is_found_by_its_dotted_name(tmp_path):
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sizes.py").write_text("WIDTH = 9\n")
    (package / "nets.py").write_text("from .sizes import WIDTH\nclass Net: width = WIDTH\n")
    settled = own_code.settle("my_package.nets:Net", tmp_path)
    assert own_code.load_object(settled).width == 9
    source = read_source(own_code.parse("my_package.nets:Net"), package / "nets.py")
    assert sorted(source.files) == [
        "my_package/__init__.py",
        "my_package/nets.py",
        "my_package/sizes.py",
    ]


def test_an_installed_package_is_trusted_and_not_sent():
    settled = own_code.settle("torchvision.models.squeezenet:squeezenet1_1")
    assert [sent.files for sent in own_code.bundle([settled]).sources] == [{}]
    assert own_code.load_object(settled).__name__ == "squeezenet1_1"


def test_code_that_was_sent_is_found_without_its_folder(folder, monkeypatch):
    settled = own_code.settle("my_net.py:Net", folder)
    sent = own_code.bundle([settled])
    for file in folder.iterdir():
        file.unlink()
    monkeypatch.setattr(places, "_folders", [])
    trusted._now.clear()
    shutil.rmtree(trusted.folder())
    own_code.unpack(sent)
    assert own_code.load_object(settled).width == 3


def test_folders_of_sent_code_go_when_their_processes_were_killed(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    left, used, new = (tmp_path / "temporary" / f"bitfront-code-{name}" for name in "abc")
    for each in (left, used, new):
        each.mkdir(parents=True)
        (each / "net.py").write_text("")
        os.utime(each, (0, 0) if each is not new else None)
    number = os.open(used, os.O_RDONLY)
    fcntl.flock(number, fcntl.LOCK_EX)
    trusted._now.clear()
    monkeypatch.setattr(bundles, "_unpacked", set())
    own_code.unpack(own_code.bundle([own_code.settle("my_net.py:Net", folder)]))
    os.close(number)
    kept = set((tmp_path / "temporary").iterdir())
    assert left not in kept
    assert {used, new} < kept
    assert len(kept) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("class Net(:\n", r"my_net\.py:1 is not valid Python"),
        ("\n\n1 / 0\n", r"my_net\.py:3: .*ZeroDivisionError"),
        ("import nowhere_to_be_found\n", r"my_net\.py:1: .*ModuleNotFoundError"),
        ("raise SystemExit(3)\n", r"my_net\.py:1: .*SystemExit"),
        ("class Nett: pass\n", r"has no 'Net', did you mean 'Nett'"),
    ],
)
def test_what_is_wrong_with_the_code_is_one_line(folder, content, message):
    (folder / "my_net.py").write_text(content)
    with pytest.raises(UserError, match=message) as refused:
        own_code.load_object(own_code.settle("my_net.py:Net", folder))
    assert "\n" not in refused.value.message


def test_a_file_that_is_not_there_is_named_with_where_it_was_looked_for(folder):
    with pytest.raises(UserError, match=r"other\.py: no such file") as refused:
        own_code.settle("other.py:Net", folder)
    assert str(folder) in str(refused.value)


def test_modules_of_code_do_not_stay_in_front_of_others(folder):
    own_code.load_object(own_code.settle("my_net.py:Net", folder))
    assert sys.path[0] != str(folder)
