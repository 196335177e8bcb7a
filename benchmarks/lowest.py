"""Whether the lowest versions that pyproject.toml allows really work: python -m benchmarks.lowest

Makes an environment with them (some GB, minutes), plays the README's tour in small and runs a few
tests in it. By hand, whenever a bound changes: the versions come from pyproject.toml alone."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
# What `tests` needs to run; the others of that group are tools.
RUNNERS = ("hypothesis", "psycopg", "pytest", "pytest-timeout", "pytest-xdist")
# Of every package the part that leans on it most, without Ray and browsers: the tour has those.
TESTS = (
    "tests/search/ledger/test_ledger.py",
    "tests/search/ledger/test_reader.py",
    "tests/search/tracking/test_tracker.py",
    "tests/search/ledger/test_odd_paths.py",
    "tests/search/test_front.py",
    "tests/search/samplers/test_surrogate.py",
    "tests/trainables/test_checksums.py",
    "tests/trainables/worker/test_worker.py",
    "tests/trainables/test_packed.py",
    "tests/trainables/training/test_attacks.py",
    "tests/trainables/models/test_models.py",
    "tests/dashboards/figures/test_figures.py",
    "tests/dashboards/pages/test_live.py",
)
COMPLAINTS = ("Traceback", "pictures were not made", "did not take everything")
TOUR = (
    ("run", "--trials", "4", "--set", "task.epochs=2"),
    ("front", "quickstart", "--plot"),
    ("status", "quickstart"),
    ("export", "quickstart", "--knee", "--epochs", "2", "--seeds", "1"),
    ("train", "recipe.yaml"),
    ("report", "quickstart"),
    ("figure", "quickstart", "-o", "front.pdf"),
    ("doctor",),
)


def lowest(requirement: str) -> str:
    """The requirement with the lowest version it allows and no other."""
    wanted = Requirement(requirement)
    bounds = [s.version for s in wanted.specifier if s.operator in (">=", "==", "~=")]
    extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
    return f"{wanted.name}{extras}" + (f"=={bounds[0]}" if bounds else "")


def pins(project: Path = ROOT / "pyproject.toml") -> list[str]:
    """What is installed: every dependency, and what runs the tests."""
    told = tomllib.loads(project.read_text())["project"]
    runners = [r for r in told["optional-dependencies"]["test"] if Requirement(r).name in RUNNERS]
    return [lowest(requirement) for requirement in [*told["dependencies"], *runners]]


def install(folder: Path) -> Path:
    """The Python of an environment with the lowest versions, this tree in it."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    # No constraints of the caller's: they are the versions that are known to work.
    env = {k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"}
    for words in ([*pins()], ["--no-deps", "-e", str(ROOT)]):
        subprocess.run([python, "-m", "pip", "install", "-q", *words], check=True, env=env)
    return python


def tour(python: Path) -> list[str]:
    """The commands of the tour that did not end well."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for words in TOUR:
            command = [python, "-m", "bitfront.cli", *words]
            ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            shown = f"bitfront {' '.join(words)}"
            said = ended.stdout + ended.stderr
            # A search goes on without its pictures or MLflow, and only says so.
            bad = bool(ended.returncode) or any(text in said for text in COMPLAINTS)
            print(f"{'FAIL' if bad else 'PASS'}  {shown}", flush=True)
            if bad:
                print(ended.stdout[-2000:], ended.stderr[-4000:], flush=True)
                failed.append(shown)
    return failed


def tested(python: Path, tests: Sequence[str]) -> bool:
    command = [str(python), "-m", "pytest", "-q", "-n", "0", *tests]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", type=Path, help="keep the environment there, and use it again")
    parser.add_argument("--list", action="store_true", help="print the versions and end")
    parser.add_argument("tests", nargs="*", default=TESTS, help="instead of the usual ones")
    args = parser.parse_args()
    if args.list:
        print("\n".join(pins()))
        return 0
    folder = args.env or Path(tempfile.mkdtemp(prefix="lowest-"))
    try:
        python = install(folder.absolute())
        failed = tour(python)
        passed = tested(python, args.tests)
    finally:
        if args.env is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"tour: {len(failed)} of {len(TOUR)} failed; tests: {'PASS' if passed else 'FAIL'}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
