"""Ways to damage files: bytes, text, structures, tensors and rows of a database. Everything comes
from a seeded generator, so that a damage can be made again."""

from __future__ import annotations

import copy
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

# What YAML takes for something else than text, or cannot take.
SPECIALS = (
    "&a [*a]", "*nowhere", "!!timestamp x", "!!bool maybe", "!!int abc", "!!float abc", "!!int ''",
    "!!binary '~'", "!!set {a, b}", "!!omap [a: 1]", "!!python/object/apply:os.system [ls]", "!x y",
    "2001-99-99", "2001-01-01", "12:30:61", "0x", "0b2", "1e999", "-1e999", ".inf", "-.inf", ".nan",
    "1e5", "38580e12", "9" * 400, "9" * 5000, "0." + "3" * 400, "-0", "~", "null", "yes", "''",
    "[", "]", "{", "}", "{a: b", "? a", "? [a]\n: b", "- - - a", "|", ">", "%YAML 9.9", "---",
    "...", "@", "`", "\t", "\x00", "\x07", "\ufeff", "\u2028", "\x85", "\ud800", "\U0001f600",
    "<<: *a", "{<<: [1, 2]}", "{<<: {a: 1}}", "=", "<<", "a: b: c", "'", '"', '"\\ud800"', "#",
    "x" * 200_000, "[" * 3000, "{a: " * 300, "&x x", "*x", "../../etc/passwd", "/dev/zero", "-1",
    "folder:x:²", "folder:a/b:64:20", "sequences:x:²", "permuted-mnist:²", "~no-such-user/x",
    '"a\\0b"', "0", "-", "1/0", "8/255", "1e-400", "[[[[1]]]]", "{1: 2}", "{null: 1}", "{true: 1}",
    "[null]",
)  # fmt: skip
BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
)
# In the place of any value.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e308, 1e-320, 10**18, 2**63, -(2**70), 10**400, "",
    "x", "F", "B" * 50, "nan", "inf", "1e5", "38580e12", "\ud800", "\x00", "../..", "/", "a/b", " ",
    "é\u2028\U0001f600", "x" * 100_000, [], {}, [[]], [None], [1, "a", None], {"a": {}}, {"": 1},
    [0.1, 0.1], {"float": [1, 0]}, {"int": ["a", 2]}, {"float": [0, 1], "log": True}, "8/255",
    {"int": [1, 10**15]}, [True, False], "digits", "mlp", "bnn", "val_accuracy", "flops", "max",
)  # fmt: skip


def mangled_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flipped, cut off, doubled, overwritten or replaced."""
    data = bytearray(content)
    kind = rng.randrange(7)
    at = rng.randrange(len(data) + 1)
    if kind == 0 and data:
        for _ in range(rng.choice((1, 1, 1, 3, 30))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at:at] = rng.randbytes(rng.choice((1, 4, 100)))
    elif kind == 3:
        del data[at : at + rng.choice((1, 8, 200))]
    elif kind == 4:
        length = rng.choice((1, 16, 512))
        data[at : at + length] = rng.choice((b"\x00", b"\xff")) * length
    elif kind == 5:
        data[at:at] = data[: rng.choice((8, 100, 1000))]
    else:
        data = bytearray(rng.choice((b"", b"{", b"\xff\xfe", b"[", b"null", b"0", b"\x00" * 64)))
    return bytes(data)


def mangled_text(text: str, rng: random.Random) -> bytes:
    """With something special in it, lines lost, or damaged as bytes."""
    kind = rng.randrange(5)
    lines = text.splitlines() or [""]
    if kind == 0:
        return mangled_bytes(text.encode(), rng)
    if kind == 1:  # in the place of a value
        at = rng.randrange(len(lines))
        key, colon, _ = lines[at].partition(":")
        lines[at] = f"{key}{colon} {rng.choice(SPECIALS)}"
    elif kind == 2:  # a line of its own
        at = rng.randrange(len(lines) + 1)
        indent = " " * rng.choice((0, 2, 4))
        lines.insert(at, indent + rng.choice(("", "x: ", "- ")) + rng.choice(SPECIALS))
    elif kind == 3:
        at = rng.randrange(len(text) + 1)
        return _encoded(text[:at] + rng.choice(SPECIALS) + text[at:])
    elif rng.random() < 0.1:
        lines += BOMB.splitlines()
    else:  # lost, doubled or in another order
        rng.shuffle(lines) if rng.random() < 0.2 else lines.insert(
            rng.randrange(len(lines) + 1), lines.pop(rng.randrange(len(lines)))
        )
        if rng.random() < 0.5:
            del lines[rng.randrange(len(lines))]
    return _encoded("\n".join(lines) + "\n")


def mangled_data(data: Any, rng: random.Random) -> Any:
    """A structure with one to three things changed in it."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = rng.choice(_places(data) or [(None, None)])
        if holder is None:
            return rng.choice(VALUES)
        kind = rng.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice(("x", "", "name", "1", "é"))] = rng.choice(VALUES)
        elif kind == 2:
            other, name = rng.choice(_places(data))
            holder[key] = copy.deepcopy(other[name])
        elif kind == 3:
            deep: Any = holder[key]
            for _ in range(rng.choice((2, 60, 500))):
                deep = [deep] if rng.random() < 0.5 else {"a": deep}
            holder[key] = deep
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return data


def mangled_yaml(text: str, rng: random.Random) -> bytes:
    """Text, or the structure behind it."""
    if rng.random() < 0.5:
        return mangled_text(text, rng)
    try:
        written = yaml.safe_dump(mangled_data(yaml.safe_load(text), rng), sort_keys=False)
    except (yaml.YAMLError, RecursionError, ValueError):
        return mangled_text(text, rng)
    return _encoded(written)


def mangled_json(text: str, rng: random.Random) -> bytes:
    if rng.random() < 0.4:
        return mangled_bytes(text.encode(), rng)
    try:
        return json.dumps(mangled_data(json.loads(text), rng)).encode()
    except (ValueError, RecursionError):
        return mangled_bytes(text.encode(), rng)


def mangle_ledger(path: Path, rng: random.Random) -> str:
    """Damage a SQLite ledger in place: its bytes, or what its rows say. Returns what was done."""
    if rng.random() < 0.3:
        path.write_bytes(mangled_bytes(path.read_bytes(), rng))
        return "bytes"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("PRAGMA ignore_check_constraints = ON")
        tables = [
            row[0]
            for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if database.execute(f"SELECT count(*) FROM {row[0]}").fetchone()[0]
        ]
        table = rng.choice([*tables, *(t for t in tables if "attributes" in t)])
        row = rng.choice(database.execute(f"SELECT rowid FROM {table}").fetchall())[0]
        columns = [c[1] for c in database.execute(f"PRAGMA table_info({table})")]
        column = rng.choice([c for c in columns if c == "value_json"] * 4 + columns)
        kind = rng.randrange(8)
        try:
            if kind == 0:
                database.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
                done = f"a row of {table} lost"
            elif kind == 1:
                database.execute(f"DELETE FROM {table}")
                done = f"all rows of {table} lost"
            elif kind == 2 and rng.random() < 0.3:
                database.execute(f"DROP TABLE {table}")
                done = f"{table} lost"
            else:
                old = database.execute(
                    f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)
                ).fetchone()[0]
                new = _other_value(old, rng)
                where, values = ("rowid = ?", (new, row)) if kind < 7 else ("1", (new,))
                database.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", values)
                done = f"{table}.{column}"
            database.commit()
        except (sqlite3.Error, OverflowError, UnicodeEncodeError):
            database.rollback()
            done = "nothing"
    return done


def _other_value(old: Any, rng: random.Random) -> Any:
    if isinstance(old, str) and rng.random() < 0.7:
        if old[:1] in '{["' or old.isdigit():
            return mangled_json(old, rng).decode("utf-8", "replace")
        return mangled_text(old, rng).decode("utf-8", "replace")
    return rng.choice(
        (None, 0, -1, 10**9, 2**62, 1.5, float("inf"), "", "x", "{", "[]", "{}", "null", "1e999",
         '"\\ud800"', b"\xff\xfe", "[" * 5000, "9" * 5000, "9" * 400, "-1", "NaN", "x" * 100_000,
         "0001-01-01 00:00:00", "9999-12-31 23:59:59", "COMPLETE", "RUNNING", "INF_POS", "MAXIMIZE")
    )  # fmt: skip


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a structure."""
    found: list[tuple[Any, Any]] = []
    waiting = [data]
    while waiting:
        here = waiting.pop()
        keys = (
            list(here)
            if isinstance(here, dict)
            else range(len(here))
            if isinstance(here, list)
            else ()
        )
        for key in keys:
            found.append((here, key))
            waiting.append(here[key])
    return found


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
