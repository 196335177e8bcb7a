"""Names that installed packages declare: read from their metadata, imported at the first use."""

from importlib.metadata import EntryPoint

import pytest

from bitfront.cli import main
from bitfront.trainables.own_code import entry_points


def points(*pairs):
    return [EntryPoint(name, value, entry_points.GROUP) for name, value in pairs]


def test_a_name_says_its_kind_and_its_code():
    found, broken = entry_points.read(points(("method.soft", "torch.nn.functional:softsign")))
    assert broken == ()
    assert [(e.kind, e.name, e.reference) for e in found] == [
        ("method", "soft", "torch.nn.functional:softsign")
    ]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("soft", "torch:softsign", "names are KIND.NAME"),
        ("metod.soft", "torch:softsign", "names are KIND.NAME"),
        ("method.soft", "torch", "which names no code"),
        ("method.soft", "no_such_package.methods:soft", "there is no module"),
    ],
)
def test_a_broken_declaration_is_a_sentence(name, value, message):
    found, broken = entry_points.read(points((name, value)))
    assert found == ()
    assert message in broken[0]


def test_they_are_listed_with_their_package_and_warnings(monkeypatch, capsys):
    known = tuple(
        entry_points.Named("method", name, "their_methods:Soft", "their-package")
        for name in ("soft", "bnn")
    )
    monkeypatch.setattr(entry_points, "declared", lambda: (known, ("one is broken",)))
    assert main(["methods", "s*"]) == 0
    printed = capsys.readouterr()
    assert "soft: of the package their-package (their_methods:Soft)" in printed.out
    assert "bnn: of the package" not in printed.out
    assert "(none)" not in printed.out
    assert "warning: one is broken" in printed.err
    assert "declares 'method.bnn', but bitfront has a bnn" in printed.err
