"""The benchmark of inheriting: what its bar compares."""

from benchmarks.inherit import MARKS, bars, thirds


def searched(rule, epochs, end, at):
    row = {"problem": "p", "rule": rule, "seed": 0, "epochs": epochs, "end": end}
    return row | {f"at {mark}": at(mark) for mark in MARKS}


def test_the_bar_compares_with_three_times_the_epochs_from_scratch():
    scratch = searched("scratch", 45, 0.45, lambda mark: mark / 100)
    found = searched("inherit", 12.4, 0.31, lambda mark: 0.0)
    (line,) = thirds([scratch, found])
    assert line["scratch, 3x epochs"] == 0.36
    assert line["scratch, as many"] == 0.12
    assert line["scratch needs"] == 36
    assert bars([scratch, found])[0].startswith("MISS")
    assert bars([scratch, found | {"end": 0.36}])[0].startswith("PASS")
