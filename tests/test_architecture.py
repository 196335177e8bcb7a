"""The house and its arrows: who may import whom, no cycles, rooms and files one can survey, and the
test set out of a search's reach."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# From the lowest to the highest: a room imports itself and those before it.
ROOMS = ("trainables", "spaces", "search", "dashboards", "bitfront")
MOST_MODULES = 15
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
MOST_DEFERRED = 60
# Packages that take long to import: what needs them may be imported where it is used.
SLOW = {"torch", "ray", "mlflow", "plotly"}


def files_of(room):
    """The Python files of a room; `bitfront` has links to the others, which are not followed."""
    top = ROOT / room
    folders = [top, *(p for p in sorted(top.iterdir()) if p.is_dir() and not p.is_symlink())]
    return [
        file for f in folders for file in sorted(f.glob("*.py") if f == top else f.rglob("*.py"))
    ]


def name_of(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "bitfront" else ("bitfront", *parts))


FILES = {name_of(file): file for room in ROOMS for file in files_of(room)}


def room_of(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "bitfront"


@cache
def imports_of(file):
    """(module, line, whether it is imported when the file is, whether for types only)."""
    tree = ast.parse(file.read_text())
    typed = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    at_once = {id(node) for node in tree.body}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names = {name if name in FILES else node.module for name in inner}
        else:
            continue
        found += [(name, node.lineno, id(node) in at_once, id(node) in typed) for name in names]
    return found


def every_import():
    for module, file in FILES.items():
        for imported, line, at_once, typed in imports_of(file):
            yield module, imported, f"{file.relative_to(ROOT)}:{line}", at_once, typed


def test_imports_point_one_way():
    upward = [
        f"{where} imports {imported}"
        for module, imported, where, _, _ in every_import()
        if imported in FILES and ROOMS.index(room_of(imported)) > ROOMS.index(room_of(module))
    ]
    assert upward == []


def test_no_room_imports_what_stands_outside():
    """Studies, benchmarks and what tests share use the rooms, and may change without them."""
    outside = {"studies", "benchmarks", "testbed", "tests"}
    used = [
        where for _, imported, where, _, _ in every_import() if imported.split(".")[0] in outside
    ]
    assert used == []


def cycles(edges):
    """The strongly connected parts of more than one module (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in edges[module]:
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            part = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(part) > 1:
                found.append(sorted(part))

    for module in edges:
        if module not in index:
            visit(module)
    return found


def test_no_modules_import_each_other_in_a_circle():
    edges = {module: set() for module in FILES}
    for module, imported, _, _, typed in every_import():
        if imported in FILES and imported != module and not typed:
            edges[module].add(imported)
    assert cycles(edges) == []


def test_a_circle_is_noticed():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]


def reaches_something_slow():
    """Modules that import one of the slow packages as soon as they are imported themselves."""
    slow = {
        module
        for module, imported, _, at_once, _ in every_import()
        if at_once and imported.split(".")[0] in SLOW
    }
    while True:
        more = {
            module
            for module, imported, _, at_once, _ in every_import()
            if at_once and imported in slow
        } - slow
        if not more:
            return slow
        slow |= more


def test_imports_are_deferred_only_to_keep_a_start_fast():
    slow = reaches_something_slow()
    deferred = [
        (where, imported)
        for _, imported, where, at_once, typed in every_import()
        if imported in FILES and not at_once and not typed
    ]
    for where, imported in deferred:
        path, line = where.split(":")
        reason = (ROOT / path).read_text().splitlines()[int(line) - 1].partition("#")[2]
        assert imported in slow or reason, f"{where} defers {imported}, which is not slow"
    assert len(deferred) <= MOST_DEFERRED


@pytest.mark.parametrize("room", [*ROOMS, "studies"])
def test_a_folder_holds_no_more_modules_than_one_can_survey(room):
    counts = Counter(file.parent for file in files_of(room) if file.name != "__init__.py")
    crowded = {str(f.relative_to(ROOT)): n for f, n in counts.items() if n > MOST_MODULES}
    assert crowded == {}


def test_files_and_functions_are_short():
    long = {}
    for file in [*FILES.values(), *files_of("studies")]:
        text = file.read_text()
        if len(text.splitlines()) > MOST_LINES:
            long[str(file.relative_to(ROOT))] = len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long[f"{file.relative_to(ROOT)}:{node.name}"] = lines
    assert long == {}


def users_of(package, room=None):
    return {
        str(FILES[module].relative_to(ROOT))
        for module, imported, _, _, _ in every_import()
        if imported.split(".")[0] == package and room in (None, room_of(module))
    }


def test_only_the_worker_knows_ray_and_nothing_in_trainables_knows_optuna_or_mlflow():
    assert users_of("optuna", "trainables") == users_of("mlflow", "trainables") == set()
    assert all(path.startswith("trainables/worker/") for path in users_of("ray", "trainables"))


def test_only_tracking_and_the_doctor_know_mlflow():
    allowed = ("search/tracking/", "search/cluster/doctor.py")
    assert [path for path in users_of("mlflow") if not path.startswith(allowed)] == []


def test_only_final_training_loads_a_test_set():
    using = {
        str(file.relative_to(ROOT))
        for file in FILES.values()
        if "load_test" in file.read_text() and not file.is_relative_to(ROOT / "trainables" / "data")
    }
    assert all(path.startswith("search/recipes/") for path in using), using


def test_no_pickle_is_read_but_code_that_the_user_trusts():
    loading = (ROOT / "trainables" / "own_code" / "loading.py").read_text()
    assert loading.index("trusted.check(") < loading.index("_loaded(reference, source)")
    assert loading.count("cloudpickle.loads(") == 1
    for file in FILES.values():
        text = file.read_text().replace("cloudpickle.loads(source.files", "")
        assert "torch.load(" not in text or "weights_only=True" in text, file
        for reader in ("pickle.load", "joblib", "dill", "allow_pickle=True", "pickled_error"):
            assert reader not in text, file
        assert "yaml.load(" not in text or "SafeLoader" in text, file
