"""Claims about YAML and JSON: what is written reads back as it was, and whatever the bytes, reading
ends in data or in one line that says where the fault is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bitfront.trainables.errors import LONGEST_LINE, UserError, quoted
from bitfront.trainables.text_files import (
    LARGEST_INTEGER,
    TooLargeError,
    check_format,
    dump_yaml,
    load_yaml,
    read_json,
    read_text,
)

# Hashes that look like numbers are not rare: 1.4 % of all trial ids are one.
TEXTS = st.one_of(
    st.text(),
    st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
    st.from_regex(r"[-+]?[0-9_]{1,4}(\.[0-9]*)?[eE][-+]?[0-9]{1,3}", fullmatch=True),
    st.sampled_from(
        ["yes", "null", "~", "=", "<<", "0x1f", "1:30", "2001-01-01", ".inf", "*a", ""]
    ),
)
NUMBERS = st.one_of(
    st.integers(-LARGEST_INTEGER, LARGEST_INTEGER), st.floats(allow_nan=False), st.booleans()
)
DATA = st.recursive(
    st.one_of(st.none(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXTS, inner)),
    max_leaves=10,
)


@settings(deadline=None, max_examples=300)
@given(DATA)
@example("38580e12")
@example({"trial": "38580e12", "38580e12": ["1e5", 1e5]})
@example("a\x85b\u2028 \ufeff\n \U0001f600")
def test_what_is_dumped_is_read_back_as_it_was(data: Any) -> None:
    found, _ = load_yaml(dump_yaml(data), "x.yaml")
    assert found == data
    assert json.dumps(found) == json.dumps(data)  # of the same types, too


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x: &a [*a]", "x.yaml:1 .*an alias stands for itself"),
        ("a: 1\nx: &a {y: {z: *a}}", "x.yaml:2 .*an alias stands for itself"),
        ("x: !!timestamp x", "'!!timestamp' is no type here"),
        ("x: !!binary '~'", "'!!binary' is no type here"),
        ("x: !!bool maybe", "x.yaml:1 .*'maybe' is no bool"),
        ("a: 1\nx: !!int abc", "x.yaml:2 .*'abc' is no int"),
        ("x: !!float abc", "'abc' is no float"),
        ("x: !!int ''", "'' is no int"),
        (f"x: {'9' * 400}", "too large a number"),
        (f"x: {'9' * 5000}", "is no int"),
        ("x: *nowhere", "undefined alias"),
        ("? [a]\n: b", "unhashable"),
        ("x: {a: 1, b", "x.yaml:1 not valid YAML"),
        ("x: \x00", "not valid YAML"),
        ("[" * 3000, "nested deeper"),
        (f"x: [{'a, ' * 30_000}]", "more than 20,000 values"),
    ],
)
def test_what_cannot_be_read_is_one_short_line(text: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        load_yaml(text, "x.yaml")
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("text", ["1:30", "-1:30", "190:20:30", "1:30.5"])
def test_a_time_is_the_text_it_is(text: str) -> None:
    """And no number in base 60, as in YAML 1.1."""
    assert load_yaml(f"a: {text}", "x.yaml")[0] == {"a": text}


def test_a_date_is_the_text_it_is() -> None:
    assert load_yaml("[2001-99-99, 2001-01-01]", "x")[0] == ["2001-99-99", "2001-01-01"]


def test_aliases_that_would_fill_the_memory_are_refused_before_they_do() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 7)]
    with pytest.raises(TooLargeError, match=r"x.yaml:4 .*more than 20,000 values"):
        load_yaml("\n".join(lines), "x.yaml")
    long = f"a: &a {'x' * 500_000}\nb: [*a, *a, *a]"
    with pytest.raises(TooLargeError):
        load_yaml(long, "x.yaml")
    chain = "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200))
    with pytest.raises(TooLargeError, match="nested deeper"):
        load_yaml(chain, "x.yaml")
    assert load_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}", "x")[0]["b"] == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "file.json:1 damaged"),
        (b'{"a": 1,\n "b"', "file.json:2 damaged"),
        (b'{"a": "\xff"}', "file.json:1 cannot be read: not UTF-8"),
        (b"a\nb\xff", "file.json:2 cannot be read: not UTF-8"),
        (b"[" * 200_000, "file.json: damaged"),
        (b"9" * 5000, "file.json: damaged"),
        (b"", "file.json:1 damaged"),
    ],
)
def test_damaged_json_is_told_with_its_file_and_line(
    tmp_path: Path, content: bytes, told: str
) -> None:
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(UserError, match=told):
        read_json(tmp_path / "file.json")


def test_no_more_is_read_of_a_file_than_it_may_have() -> None:
    with pytest.raises(TooLargeError, match="larger than 1,000 bytes"):
        read_text(Path("/dev/zero"), 1000)


def test_a_folder_or_a_name_that_is_none_is_told() -> None:
    for path in (Path("/"), Path("a\x00b")):
        with pytest.raises(UserError, match="cannot be read"):
            read_text(path)


@settings(deadline=None)
@given(st.integers(0, 2000), st.text(), st.sampled_from(["\n", " ", ""]))
def test_a_message_stays_short_whatever_it_repeats(times: int, text: str, between: str) -> None:
    error = UserError(f"--set {between.join([text] * times)}: write it as key=value")
    assert all(len(line) < LONGEST_LINE + 60 for line in str(error).split("\n"))
    assert len(str(error).split("\n")) < 50
    str(error).encode()


def test_of_a_long_message_both_ends_are_kept() -> None:
    error = UserError(f"--set {'x' * 200_000}: write it as key=value")
    assert error.message.startswith("--set xxx")
    assert error.message.endswith("x: write it as key=value")
    assert "199," in error.message
    assert len(error.message) < LONGEST_LINE + 60


def test_what_cannot_be_printed_is_written_out() -> None:
    assert UserError("\ud800 is no name").message == "\\ud800 is no name"
    assert quoted("x" * 1000).startswith("'xxx")
    assert quoted(10**5000) == "a very large int"


def test_newer_formats_are_refused_and_older_ones_opened() -> None:
    check_format(None, 1, "x")
    check_format(1, 1, "x")
    with pytest.raises(UserError, match="x was written by a newer bitfront") as caught:
        check_format(2, 1, "x")
    assert "update" in (caught.value.hint or "")
    for damaged in (0, -1, True, "1", 1.0, [], {}):
        with pytest.raises(UserError, match="no version of its format"):
            check_format(damaged, 1, "x")


@pytest.mark.parametrize("text", [r'x: "\ud800"', r'"\ud83d\ude00": 1', r'x: ["a", "\udfff"]'])
def test_half_a_character_is_no_text(text: str) -> None:
    with pytest.raises(UserError, match=r"file\.yaml:1 not valid YAML: half a character"):
        load_yaml(text, "file.yaml")
