"""Checks of the settings of a paper's rows: each must name one point of the space, or say why it is
not run. The network is traced here where a row needs another one."""

from __future__ import annotations

from bitfront.search.config.errors import KeyPath, Problems
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.sections.paper import PaperRow, PaperSpec
from bitfront.spaces.setting import SettingProblem, points
from bitfront.spaces.space import Space
from bitfront.trainables.errors import did_you_mean


def check_rows(config: SearchConfig, space: Space, problems: Problems) -> None:
    """Note in `problems` every row that leaves a drawn key open, is outside of the space, unless it
    has a reason, or of no known column, and shared settings that no row has."""
    paper = config.paper
    if paper is None:
        return
    used: set[str] = set()
    before = len(problems)
    for index, row in enumerate(paper.rows):
        path = ("paper", "rows", index, "where")
        if row.column is not None and row.column not in paper.columns:
            hint = did_you_mean(row.column, paper.columns)
            problems.add((*path[:-1], "column"), f"unknown column, {hint}")
            continue
        if row.reason:
            continue
        try:
            found = points(space, row.where, paper.where, config.search.seed)
            used |= {key for drawn, _ in found for key in drawn}
        except SettingProblem as problem:
            if problem.key is None:
                message = f"'{row.label}' {problem.message}: a row is one point of the space"
                problems.add(path, message)
            else:
                problems.add(_path_of(paper, row, path, problem.key), problem.message)
    if len(problems) == before:
        for key in paper.where:
            if key not in used and not key.startswith("plan"):
                problems.add(("paper", "where", key), "no row draws it")
        for name in set(paper.columns) - {row.column for row in paper.rows}:
            problems.add(("paper", "columns", name), "no row is of it")


def _path_of(paper: PaperSpec, row: PaperRow, where: KeyPath, key: str) -> KeyPath:
    """Where a key of a row's setting is written: for its column, in the row or for all rows. The
    levels of layers may be written as one plan."""
    for name in (key, "plan") if key.startswith("plan.") else (key,):
        if row.column is not None and name in paper.columns[row.column]:
            return ("paper", "columns", row.column, name)
        if name in row.where:
            return (*where, name)
    return ("paper", "where", key)


def row_problem(config: SearchConfig, space: Space, row: PaperRow) -> str:
    """Why a row is no point of the space; '' where it is one."""
    assert config.paper is not None
    try:
        points(space, row.where, config.paper.where, config.search.seed)
    except SettingProblem as problem:
        return problem.text
    return ""
