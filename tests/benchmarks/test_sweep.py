"""Claims about the sweep over networks of libraries, in small."""

from __future__ import annotations

import pytest

from benchmarks import sweep

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["torchvision/squeezenet1_1", "torchvision/mobilenet_v3_small", "timm/efficientvit_m0"]
)
def test_a_network_takes_both_plans_and_responds(name: str) -> None:
    row = sweep.examined(name)
    assert "refused" not in row
    assert row["all-W"] == row["outputs differ"] == "yes"
    assert row["degenerate"] == 0
    assert 0.1 < row["+1 min"] <= row["+1 max"] < 0.9
    assert row["outputs differ, keep"] == "no"


def test_a_network_that_fails_is_a_row_with_its_reason() -> None:
    row = sweep.examined("torchvision/nothing")
    assert "unknown model" in row["refused"]


def test_the_page_counts_what_the_table_shows() -> None:
    rows = [sweep.examined("torchvision/squeezenet1_1"), {"network": "timm/x", "refused": "why"}]
    text = sweep.page(rows)
    assert "**1 of 2 networks take a plan (1 of torchvision, 0 of timm)" in text
    assert "| timm/x | why |" in text
