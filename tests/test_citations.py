"""What code and pages refer to is there: sections by number, headings by link, files by path."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NUMBER = r"\d+(?:\.\d+)*"
# `docs/methods.md 2.3`, `docs/methods.md 2.2, 2.11`, `docs/methods.md 1.1-1.4`, `... 2 and 3`: the
# first number, then what follows it in the same breath. `protocol 4` and the like end a citation.
CITATION = re.compile(
    rf"(?:docs/)?(methods|design)\.md\s+(?:#\s+)?({NUMBER}(?:(?:\s*-\s*|, | and |,\n\s*){NUMBER})*)"
)
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A path in backticks, as pages write it: `search/front.py`, `trainables/methods/`.
ROOMS = (
    "bitfront|dashboards|search|spaces|trainables|testbed|benchmarks|tests|docs|clusters|examples"
    "|website"
)
PATH = re.compile(rf"`((?:{ROOMS})/[\w./-]*)`")
# Files of the examples in CONTRIBUTING.md, and patterns.
EXAMPLES = {"spaces/searches/NAME.yaml"}


@cache
def tracked() -> list[Path]:
    """The files of the repository, without the links from `bitfront` to its siblings."""
    try:
        found = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\n")
    except (subprocess.CalledProcessError, FileNotFoundError):  # an archive, as CI tests it
        found = [
            str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if ".venv" not in str(path)
        ]
    paths = [ROOT / name for name in found if name.endswith((".py", ".md", ".yaml"))]
    return [path for path in paths if path.is_file() and not linked(path)]


def linked(path: Path) -> bool:
    return any(part.is_symlink() for part in path.parents if part.is_relative_to(ROOT / "bitfront"))


def pages() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md" and path.name != "CHANGELOG.md"]


@cache
def headings(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return HEADING.findall(text)


def sections(page: str) -> set[str]:
    """The numbers of a page's headings: 2 of `## 2. Words`, 2.3 of `### 2.3 Prediction`."""
    numbers = (re.match(NUMBER, heading) for heading in headings(ROOT / "docs" / f"{page}.md"))
    return {found.group() for found in numbers if found}


def anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.replace(" ", "-")


def citations(text: str) -> list[tuple[str, str]]:
    """(page, section) of every section cited."""
    return [
        (page, number)
        for page, numbers in CITATION.findall(text)
        for number in re.findall(NUMBER, numbers)
    ]


def test_citations_are_recognised():
    text = "(docs/methods.md 2.2, 2.11) docs/methods.md 1.1-1.4, and docs/design.md 5. methods.md 9"
    assert citations(text) == [
        ("methods", "2.2"),
        ("methods", "2.11"),
        ("methods", "1.1"),
        ("methods", "1.4"),
        ("design", "5"),
        ("methods", "9"),
    ]


def test_every_cited_section_exists():
    known = {page: sections(page) for page in ("methods", "design")}
    cited = 0
    for path in tracked():
        for page, number in citations(path.read_text()):
            cited += 1
            assert number in known[page], f"{path.relative_to(ROOT)} cites {page}.md {number}"
    assert cited > 100


def test_no_page_is_cited_that_is_not_here():
    # Of the places on the site mkdocs makes sure.
    for path in (path for path in tracked() if "website" not in path.parts):
        for name in re.findall(r"\b([a-z_]+\.md)\b", path.read_text()):
            places = (ROOT / "docs" / name, ROOT / "docs" / "results" / name, path.parent / name)
            assert any(place.exists() for place in places), f"{path.relative_to(ROOT)} names {name}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        name, _, place = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        if place:
            assert place in {anchor(heading) for heading in headings(file)}, target


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_files_named_on_a_page_exist(page):
    if page.parent.name == "benchmarks":
        return  # its table of results names files relative to itself
    for name in set(PATH.findall(page.read_text())) - EXAMPLES:
        # A name without an ending is a module or a package.
        assert (ROOT / name).exists() or (ROOT / f"{name}.py").exists(), name


# The lists of modules in docs/design.md: a folder at the margin, its modules indented below.
LISTS = re.compile(r"```text\n(.*?)```", re.DOTALL)
# Families: a new member is one new file, and the map need not know it.
FAMILIES = re.compile(
    "bitfront/verbs/.+|dashboards/figures/.+|search/samplers|trainables/layers/diagnostics"
    "|trainables/(attacks|costs|data|methods|models|selectors|tasks)"
)


def mapped() -> dict[str, list[str]]:
    """The modules that docs/design.md lists, by folder."""
    found: dict[str, list[str]] = {}
    folder = ""
    for block in LISTS.findall((ROOT / "docs" / "design.md").read_text()):
        for line in filter(None, block.splitlines()):
            if line.startswith(" "):
                found[folder] += line.strip().split("  ")[0].split(", ")
            else:
                folder = line.split()[0].rstrip("/")
                found[folder] = []
    return found


def test_the_map_lists_every_module_of_every_room():
    there: dict[str, list[str]] = {}
    for path in tracked():
        name = path.relative_to(ROOT)
        rooms = (
            *("bitfront", "dashboards", "search", "spaces", "trainables"),
            *("testbed", "studies", "website"),
        )
        if name.parts[0] in rooms and name.suffix == ".py" and name.name != "__init__.py":
            there.setdefault(str(name.parent), []).append(name.name)
    listed = mapped()
    for folder in sorted(there.keys() | listed.keys()):
        on_map, on_disk = listed.get(folder, []), there.get(folder, [])
        assert len(set(on_map)) == len(on_map), folder
        assert set(on_map) <= set(on_disk), folder
        assert set(on_map) == set(on_disk) or FAMILIES.fullmatch(folder), folder
