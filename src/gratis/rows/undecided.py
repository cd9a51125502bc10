"""Refusals that name everything at once, and the options that decide all of it: for a command line or for Python.

Before the cells are read, names and types are used, and what the first cells look like. What reading them found is
said in names, never in values.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from gratis.records.errors import GratisError
from gratis.rows.columns import is_text
from gratis.rows.first_cells import Looks
from gratis.rows.readings import is_personal, shared_ids

__all__ = [
    "Advice",
    "Problems",
    "UndecidedError",
    "advised",
    "as_numbers",
    "listed",
    "names_in",
    "refuse_undecided",
]

Advice = Mapping[str, str | int | tuple[str, ...]]

_BUCKETS = 32
_SEARCHED = "finds the common ones within the budget"
_MANY = 12  # columns, of which each gets a line of its own
_OPTIONS = {"private_levels": "--private-levels", "ignore": "--ignore", "numeric": "--numeric",
            "missing_target": "--missing-target", "encoding": "--encoding", "hash_buckets": "--hash"}  # fmt: skip


def listed(names: Iterable[str]) -> str:
    """Names in one text, separated by commas; a name with a comma, a quote or a space at its end stands in quotes.

    >>> listed(["town", "rooms, all"]), names_in('town, "rooms, all"')
    ('town,"rooms, all"', ['town', 'rooms, all'])
    """
    text = io.StringIO()
    writer, plain = csv.writer(text, lineterminator=""), list(names)
    if any(name != name.strip() for name in plain):
        writer = csv.writer(text, lineterminator="", quoting=csv.QUOTE_ALL)
    writer.writerow(plain)
    return text.getvalue()


def names_in(text: str) -> list[str]:
    """The names of such a text."""
    try:
        found = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error:
        raise GratisError("a list of names has a quote that does not end") from None
    names = found if '"' in text else [name.strip() for name in found]
    return [name for name in names if name.strip()]


def advised(advice: Advice, *, python: bool) -> str:
    """Options as they are typed.

    >>> advised({"ignore": ("a b", "c"), "missing_target": "leave-out"}, python=False)
    "--ignore 'a b,c' --missing-target leave-out"
    >>> advised({"ignore": ("a b", "c"), "missing_target": "leave-out"}, python=True)
    "ignore=['a b', 'c'], missing_target='leave-out'"
    """
    if python:
        return ", ".join(f"{k}={list(v) if isinstance(v, tuple) else v!r}" for k, v in advice.items())
    return " ".join(
        f"{_OPTIONS[key]} {shlex.quote(listed(value) if isinstance(value, tuple) else str(value))}"
        for key, value in advice.items()
    )


class UndecidedError(GratisError):
    """A table that takes decisions before it can be read: what decides all of them first, then why, a line each.

    `advice` are the options that decide everything, by their names in Python. `python`: said for a data frame, not for
    a command line.
    """

    def __init__(self, advice: Advice, lines: Iterable[str], *, last: str = "", python: bool = False) -> None:
        self.advice, self.python = dict(advice), python
        self._why, self._last = tuple(dict.fromkeys(lines)), last
        self.lines = (*self._why, *((last,) if last else ()))
        self.command: str | None = None  # the whole one, where there was one
        super().__init__("\n".join([f"add {advised(advice, python=python)}; nothing was spent:", *self.lines]))

    def along_with(self, advice: Advice, *lines: str) -> UndecidedError:
        """The same with more to decide, which is not known from the columns alone; what else can be done comes last."""
        merged = {**self.advice, **advice}
        for name, before in self.advice.items():
            more = merged[name]
            if isinstance(before, tuple) and isinstance(more, tuple):
                merged[name] = tuple(dict.fromkeys([*before, *more]))
        return UndecidedError(merged, (*self._why, *lines), last=self._last, python=self.python)

    def hashed(self) -> UndecidedError:
        """The same with text hashed: a search for levels takes rows one by one, and not persons."""
        if "private_levels" not in self.advice:
            return self
        advice = {name: value for name, value in self.advice.items() if name != "private_levels"}
        search = f"{_option('private_levels', self.python)} {_SEARCHED}"
        lines = [line.replace(search, f"{_option('hash_buckets', self.python)} hashes it") for line in self._why]
        return UndecidedError({"hash_buckets": _BUCKETS, **advice}, lines, last=self._last, python=self.python)


def as_numbers(name: str, what: str = "", *, python: bool) -> str:
    """The line about a column of text that looks like numbers."""
    return (
        f"{what}{name!r} holds text, and its first cells look like numbers: {_option('numeric', python)} reads them, "
        "also $1,200 or 12%, and other cells are missing"
    )


def _option(name: str, python: bool) -> str:
    return name if python else _OPTIONS[name]


def refuse_undecided(
    types: Mapping[str, Any], others: Iterable[str], looks: Looks, repeated: Set[str], *, python: bool
) -> None:
    """Refuse, all at once, the columns whose types leave open how they are read; with what decides it.

    `others` are the columns that can be read: identifiers among them are left out along with the rest. `looks` is what
    columns of text look like by their first cells, `repeated` the identifiers that several of the first rows share.
    """
    texts = [name for name, kind in types.items() if is_text(kind)]
    unreadable = [name for name in types if name not in texts]
    named = [name for name in (*texts, *others) if is_personal(name)]
    numbers = tuple(name for name in looks.numbers if name not in named)
    common = tuple(name for name in texts if name not in (*named, *numbers))
    ignored = tuple(dict.fromkeys([*named, *unreadable]))
    said = {"private_levels": common, "numeric": numbers, "ignore": ignored}
    search, ignore = (_option(name, python) for name in ("private_levels", "ignore"))
    lines = [
        *_each(common, f"holds text, whose levels are never read from private rows: {search} {_SEARCHED}"),
        *(as_numbers(name, python=python) for name in numbers),
        *_each([n for n in named if n not in repeated], f"looks like a name or an identifier: {ignore} leaves it out"),
        *(f"{name!r} {shared_ids(name, python=python)}; {ignore} leaves it out" for name in named if name in repeated),
        *_each(unreadable, f"cannot be read as numbers: {ignore} leaves it out", {n: types[n] for n in unreadable}),
    ]  # fmt: skip
    last = ""
    if texts:
        text = (common or texts)[0]
        shown = [f"--hash {_BUCKETS}", f"--levels {shlex.quote(text + '=A,B,C')}", "--schema FILE"]
        if python:
            shown = [f"hash_buckets={_BUCKETS}", f"levels={{{text!r}: ['A', 'B', 'C']}}", "schema=FILE"]
        other = [advised({name: (text,)}, python=python) for name in ("ignore", "numeric")]
        last = (
            f"other ways for text: hash it ({shown[0]}), list public levels ({shown[1]}, or {shown[2]}, which `gratis "
            f"schema` makes), leave it out ({other[0]}), or read it as numbers ({other[1]})"
        )
    advice = {name: columns for name, columns in said.items() if columns}
    raise UndecidedError(advice, lines, last=last, python=python)


def _each(names: Iterable[str], what: str, kinds: Mapping[str, Any] | None = None) -> list[str]:
    """A line a column; one for all of them where they are many."""
    shown = [repr(name) if kinds is None else f"{name!r} ({kinds[name]})" for name in names]
    return [f"{', '.join(shown)}: {what}"] if len(shown) > _MANY else [f"{name} {what}" for name in shown]


@dataclass(frozen=True, slots=True)
class Problems:
    """What reading all cells found, in names: columns of numbers with other cells, no UTF-8, targets that miss.

    `known` says whether any target was read at all: where none was, leaving rows out would leave none.
    """

    unreadable: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    targets: bool = False
    known: bool = False

    def __or__(self, other: Problems) -> Problems:
        return Problems(
            self.unreadable | other.unreadable, self.broken | other.broken, self.targets or other.targets,
            self.known or other.known,
        )  # fmt: skip

    def refuse(self, order: Iterable[str], target: str, *, python: bool) -> None:
        """Refuse all of it at once, with the options that let it pass."""
        lines = list[str]()
        advice: dict[str, str | int | tuple[str, ...]] = {}
        dirty, broken = (tuple(name for name in order if name in found) for found in (self.unreadable, self.broken))
        if broken:
            advice["encoding"] = "windows-1252"
            how = _option("encoding", python)
            lines += _each(
                broken, f"holds text that is no UTF-8: {how} reads the file as the usual other way of writing"
            )
        if dirty:
            advice["numeric"] = dirty
            how = _option("numeric", python)
            lines += _each(dirty, f"holds text among numbers in some rows: {how} takes such cells for missing values")
        if self.targets and not self.known:
            raise GratisError(
                f"no row of the target {target!r} holds a declared class or a number: see how the file writes them"
            )
        if self.targets:
            advice["missing_target"] = "leave-out"
            lines.append(
                f"the target {target!r} is missing, infinite or no declared class in some rows: "
                f"{_option('missing_target', python)} leave-out lets them contribute nothing, and they are counted"
            )
        if lines:
            raise UndecidedError(advice, lines, python=python)
