"""Code that somebody sent: it is not run before the user trusts it, whatever form it comes in, and
trusting some of it does not trust what lies beside it."""

import importlib.util
import py_compile
import shutil
import sys

import pytest

from bitfront.trainables import own_code
from bitfront.trainables.errors import UserError
from bitfront.trainables.own_code import places, trusted

HARM = "from pathlib import Path\nPath({!r}).write_text('done')\n"


@pytest.fixture
def mark(tmp_path):
    """A file that harmful code would write."""
    return tmp_path / "harm"


@pytest.fixture
def theirs(tmp_path, mark):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "net.py").write_text(HARM.format(str(mark)) + "class Net: pass\n")
    own_code.look_in(folder)
    return folder


def refused(text):
    with pytest.raises(UserError, match="that you have not run before") as error:
        own_code.load_object(text)
    assert "--trust" in str(error.value)


@pytest.mark.parametrize("text", ["net.py:Net", "net:Net"])
def test_a_file_or_module_of_theirs_is_not_run(theirs, mark, text):
    refused(text)
    with own_code.received(), pytest.raises(UserError, match="not run before"):
        own_code.settle(text)
    assert not mark.exists()
    trusted.trust_all()
    own_code.load_object(text)
    assert mark.exists()


def test_a_folder_called_site_packages_is_theirs_too(theirs, mark):
    inside = theirs / "site-packages"
    inside.mkdir()
    shutil.move(theirs / "net.py", inside)
    own_code.look_in(inside)
    refused("net:Net")
    refused("site-packages/net.py:Net")
    assert not mark.exists()


def test_a_pickle_of_theirs_is_not_read(theirs, mark):
    import cloudpickle

    (theirs / "net.pkl").write_bytes(cloudpickle.dumps(mark.write_text))
    refused("net.pkl:Net")
    assert not mark.exists()


@pytest.mark.parametrize("text", ["os:system", "subprocess:run", "shutil:rmtree", "torch:save"])
def test_installed_functions_of_their_recipe_are_not_called(text):
    refused(text)


@pytest.mark.parametrize("text", ["builtins:exec", "posix:system"])
def test_functions_without_a_file_are_no_code(text):
    with pytest.raises(UserError, match="no such module"):
        own_code.load_object(text)


def test_trusting_one_function_of_a_package_does_not_trust_another():
    own_code.settle("torchvision.models.squeezenet:squeezenet1_1")
    refused("torchvision.models.squeezenet:_ovewrite_named_param")


def test_a_compiled_file_beside_trusted_code_is_not_run(tmp_path, mark):
    mine, theirs = tmp_path / "mine", tmp_path / "their"
    for folder in (mine, theirs):
        folder.mkdir()
        (folder / "same.py").write_text("class Net: pass\n")
    settled = own_code.settle("same.py:Net", mine)
    evil = tmp_path / "evil.py"
    evil.write_text(HARM.format(str(mark)))
    py_compile.compile(
        str(evil),
        importlib.util.cache_from_source(str(theirs / "same.py")),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    shutil.rmtree(mine)
    own_code.look_in(theirs)
    own_code.load_object(settled)
    assert not mark.exists()


@pytest.mark.parametrize("late", [False, True])
def test_trusted_code_does_not_import_what_was_added_beside_it(tmp_path, mark, late):
    mine, theirs = tmp_path / "mine", tmp_path / "their"
    code = "import importlib\ndef other(): return importlib.import_module('add' + 'ed_module')\n"
    for folder in (mine, theirs):
        folder.mkdir()
        (folder / "loads.py").write_text(code + ("" if late else "other()\n"))
    (mine / "added_module.py").write_text("FINE = 1\n")
    (theirs / "added_module.py").write_text(HARM.format(str(mark)))
    settled = own_code.settle("loads.py:other", mine)
    shutil.rmtree(mine)
    own_code.look_in(theirs)
    with pytest.raises((UserError, ModuleNotFoundError), match="added_module"):
        own_code.load_object(settled)()
    assert not mark.exists()


def test_own_code_may_import_by_computed_names_from_its_folder(tmp_path):
    (tmp_path / "plugin_of_mine.py").write_text("WIDTH = 5\n")
    (tmp_path / "computed.py").write_text(
        "import importlib\nwidth = importlib.import_module('plugin_' + 'of_mine').WIDTH\n"
    )
    settled = own_code.settle("computed.py:width", tmp_path)
    assert own_code.load_object(settled) == 5
    assert str(tmp_path) in sys.path[1:]


def test_a_module_beside_the_code_does_not_stand_in_for_one_that_a_library_imports(tmp_path, mark):
    (tmp_path / "this.py").write_text(HARM.format(str(mark)))
    (tmp_path / "library_user.py").write_text("import importlib\nzen = importlib.import_module\n")
    zen = own_code.load_object(own_code.settle("library_user.py:zen", tmp_path))
    sys.modules.pop("this", None)
    zen("this")
    assert not mark.exists()


def test_a_link_to_other_code_is_that_code(theirs, tmp_path, mark):
    mine = tmp_path / "mine.py"
    mine.write_text("class Net: width = 8\n")
    own_code.settle(f"{mine}:Net")
    (theirs / "linked.py").symlink_to(mine)
    assert own_code.load_object("linked.py:Net").width == 8
    (theirs / "harmful.py").symlink_to(theirs / "net.py")
    refused("harmful.py:Net")
    assert not mark.exists()


def test_a_reference_with_a_hash_in_a_yaml_is_not_trusted_for_that(theirs, mark):
    source = places.find(own_code.parse("net.py:Net"))
    refused(own_code.settle(f"net.py:Net@{source.sha256[:12]}", theirs))
    assert not mark.exists()


def test_commands_at_once_lose_no_trust():
    for word in ("a" * 64, "b" * 64):
        own_code.trust(word)
    trusted._now.clear()
    assert own_code.is_trusted("a" * 64)
    assert own_code.is_trusted("b" * 64)
    assert not own_code.is_trusted("c" * 64)
