"""Which files of the repository are pages of the site, and what a link between two files becomes
there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Pages from outside docs/, by their place on the site.
OUTSIDE = {
    "index.md": "README.md",
    "examples.md": "examples/README.md",
    "benchmarks.md": "benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
    "studies/cifar10-resnet20.md": "studies/cifar10-resnet20/README.md",
    "studies/tiny-imagenet-20.md": "studies/tiny-imagenet-20/README.md",
    "studies/own-network.md": "studies/own-network/README.md",
}
PLACES = {source: place for place, source in OUTSIDE.items()}
# Where other files that pages link to are copied.
FILES = "files"

FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE = re.compile(r"`[^`\n]*`")


def anchor(heading: str, _separator: str = "-") -> str:
    """The anchor that GitHub makes of a heading; links in the repository have it."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


def place_of(name: str) -> str | None:
    """Where a file or folder of the repository is on the site; None: there is no such file."""
    path = ROOT / name
    if name in PLACES:
        return PLACES[name]
    if path.is_dir():
        return PLACES.get(f"{name.rstrip('/')}/README.md")
    if not path.is_file():
        return None
    return name.removeprefix("docs/") if name.startswith("docs/") else f"{FILES}/{name}"


def as_page(text: str, source: str, place: str) -> str:
    """The text of a file of the repository as the page at `place`: links lead to places of the
    site; bars in code within tables and brackets side by side are as its reader of Markdown wants
    them."""

    def link(found: re.Match[str]) -> str:
        target = found.group(2)
        name, hash_, heading = target.partition("#")
        if not name or "://" in target or target.startswith("mailto:"):
            return found.group()
        there = place_of(posixpath.normpath(posixpath.join(posixpath.dirname(source), name)))
        if there is None:
            return found.group()
        bare = posixpath.relpath(there, posixpath.dirname(place) or ".")
        return f"{found.group(1)}{bare}{hash_}{heading}{found.group(3)}"

    parts = FENCED.split(text)
    for i in range(0, len(parts), 2):
        parts[i] = LINK.sub(link, parts[i])
        parts[i] = parts[i].replace("] [", "] \\[")  # `[-1, 1] [C]` is no link
        parts[i] = "\n".join(map(_bare_bars, parts[i].split("\n")))
    return "".join(parts)


def linked_files(text: str, source: str) -> set[str]:
    """The files of the repository that a page links to and that are no pages."""
    found = set()
    for _, target, _ in LINK.findall("".join(FENCED.split(text)[::2])):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(source), target.split("#")[0]))
        place = place_of(name) if "://" not in target else None
        if place is not None and place.startswith(f"{FILES}/"):
            found.add(name)
    return found


def _bare_bars(line: str) -> str:
    if not line.startswith("|"):
        return line
    return CODE.sub(lambda code: code.group().replace("\\|", "|"), line)
