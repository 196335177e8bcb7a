"""Every number that a paper prints in its tables is carried by a row of a ready-made search, or the
row says why it is not run.

`printed/NAME.tsv` is a transcript of a paper's tables, made from the paper and not from the
searches: a line a number, in the paper's percent, with the spread and the flops printed beside it.
The searches of a paper are those whose title has NAME in brackets or as its short name."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfront.spaces.ready_made import searches

PRINTED = Path(__file__).parent / "printed"
# The transcript, the word that titles of the paper's searches contain.
PAPERS = {"mixbin": "(MixBin)"}


@cache
def papers(word: str) -> list[dict[str, Any]]:
    """The `paper` sections of the ready-made searches whose text has this word, as written."""
    texts = [path.read_text() for path in searches().values()]
    read = [yaml.safe_load(text) for text in texts if word in text and "\npaper:" in text]
    return [data["paper"] for data in read]


def rows(word: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(number of the table, label, row) of all searches of a paper whose numbers are of that table
    and of its own network and data."""
    for paper in papers(word):
        table = re.fullmatch(r"Table (\d+)", paper["table"])
        if word in paper["title"] and table and not paper.get("differs"):
            for row in paper["rows"]:
                yield table[1], row["label"], row


@pytest.mark.parametrize("name", PAPERS)
def test_every_printed_number_has_a_row(name: str) -> None:
    with (PRINTED / f"{name}.tsv").open() as file:
        printed = list(csv.DictReader(file, delimiter="\t"))
    carried = {(table, label): row for table, label, row in rows(PAPERS[name])}
    missing = [f"{p['table']}: {p['label']}" for p in printed]
    missing = [m for m, p in zip(missing, printed, strict=True) if _key(p) not in carried]
    assert missing == []
    for each in printed:
        row = carried[_key(each)]
        found = {key: row.get(key) for key in ("value", "spread", "flops_pct")}
        wanted = {
            "value": _fraction(each["value"]),
            "spread": _fraction(each["spread"]),
            "flops_pct": float(each["flops_pct"]) if each["flops_pct"] else None,
        }
        assert found == pytest.approx(wanted, abs=1e-9), each


def _key(printed: dict[str, str]) -> tuple[str, str]:
    return printed["table"], printed["label"]


def _fraction(percent: str) -> float | None:
    return float(percent) / 100 if percent else None


@pytest.mark.parametrize("name", PAPERS)
def test_no_search_has_a_number_that_is_not_printed(name: str) -> None:
    with (PRINTED / f"{name}.tsv").open() as file:
        printed = {
            (p["table"], p["label"], p["value"]) for p in csv.DictReader(file, delimiter="\t")
        }
    known = {(table, label): float(value) for table, label, value in printed}
    for table, label, row in rows(PAPERS[name]):
        if "value" in row:
            assert known[table, label] == pytest.approx(100 * row["value"]), (table, label)
