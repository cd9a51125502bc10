"""Refusals that name everything at once, and the options that decide all of it: for a command line or for Python.

Before the cells are read, names and types are used, and what the first cells look like. What reading them found is
said in names, never in values.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gratis.records.errors import GratisError
from gratis.rows.columns import is_text
from gratis.rows.first_cells import Looks
from gratis.rows.readings import looks_like_identifier, names_a_person

__all__ = ["AS_NUMBERS", "Advice", "Problems", "UndecidedError", "advised", "listed", "names_in", "refuse_undecided"]

Advice = Mapping[str, str | tuple[str, ...]]

AS_NUMBERS = "reads what looks like numbers by its first cells ($1,200 and 12% too; other cells are missing)"
_OPTIONS = {"private_levels": "--private-levels", "ignore": "--ignore", "numeric": "--numeric",
            "missing_target": "--missing-target", "encoding": "--encoding"}  # fmt: skip


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
        f"{_OPTIONS[key]} {shlex.quote(listed(value) if isinstance(value, tuple) else value)}"
        for key, value in advice.items()
    )


class UndecidedError(GratisError):
    """A table that takes decisions before it can be read: all of them in one refusal.

    `advice` are the options that decide everything, by their names in Python; `effects` says what they do, `otherwise`
    what else could be decided. `python`: said for a data frame, not for a command line.
    """

    def __init__(
        self, problem: str, advice: Advice, effects: tuple[str, ...] = (), *, otherwise: str = "", python: bool = False
    ) -> None:
        self.problem, self.advice, self.effects = problem, dict(advice), effects
        self.otherwise, self.python = otherwise, python
        self.command: str | None = None  # the whole one, where there was one
        super().__init__(f"{problem}: add {advised(advice, python=python)}, which {_and(effects)}{otherwise}")

    def along_with(self, advice: Advice, effect: str = "", otherwise: str = "") -> UndecidedError:
        """The same with more to decide, which is not known from the columns alone."""
        effects = (*self.effects, effect) if effect else self.effects
        merged = {**self.advice, **advice}
        for name, before in self.advice.items():
            more = merged[name]
            if isinstance(before, tuple) and isinstance(more, tuple):
                merged[name] = tuple(dict.fromkeys([*before, *more]))
        return UndecidedError(self.problem, merged, effects, otherwise=self.otherwise + otherwise, python=self.python)


def _and(parts: tuple[str, ...]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def refuse_undecided(types: Mapping[str, Any], others: Iterable[str], looks: Looks, *, python: bool) -> None:
    """Refuse, all at once, the columns whose types leave open how they are read; with what decides it.

    `others` are the columns that can be read: identifiers among them are left out along with the rest. `looks` is what
    columns of text look like by their first cells.
    """
    texts = [name for name, kind in types.items() if is_text(kind)]
    unreadable = [name for name in types if name not in texts]
    named = [name for name in (*texts, *others) if looks_like_identifier(name) or names_a_person(name)]
    numbers = tuple(name for name in looks.numbers if name not in named)
    common = tuple(name for name in texts if name not in (*named, *numbers))
    ignored = tuple(dict.fromkeys([*named, *unreadable]))
    advice: dict[str, str | tuple[str, ...]] = {}
    effects, said = [], []
    if common:
        advice["private_levels"] = common
        effects.append("finds common levels within the budget")
    if numbers:
        advice["numeric"] = numbers
        effects.append(AS_NUMBERS)
    if ignored:
        advice["ignore"] = ignored
        of = ["what looks like names or identifiers"] * bool(named)
        effects.append(f"leaves out {' and '.join([*of, *['what cannot be read'] * bool(unreadable)])}")
    if texts:
        held = f"column {texts[0]!r} holds" if len(texts) == 1 else f"columns {', '.join(map(repr, texts))} hold"
        said.append(f"{held} text, and levels are never read from private rows")
    if unreadable:
        kinds = ", ".join(f"{name!r} ({types[name]})" for name in unreadable)
        said.append(f"{kinds} cannot be read as numbers")
    otherwise = ""
    if texts:
        text, columns = (common or texts)[0], tuple(texts)
        shown = ["--hash 32", f"--levels {shlex.quote(text + '=A,B,C')}", "--schema file"]
        if python:
            shown = ["hash_buckets=32", f"levels={{{text!r}: ['A', 'B', 'C']}}", "schema="]
        otherwise += (
            f"; or hash text with {shown[0]}, list public levels with {shown[1]} or in a {shown[2]} (`gratis schema` "
            f"makes one), {'or ' * bool(numbers)}leave it out with "
            f"{advised({'ignore': columns}, python=python)}"
        )
        if not numbers:
            numeric = advised({"numeric": (text,)}, python=python)
            otherwise += f", or read numbers among which some cells are none with {numeric}"
    raise UndecidedError(" and ".join(said), advice, tuple(effects), otherwise=otherwise, python=python)


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
        said, effects = [], []
        advice: dict[str, str | tuple[str, ...]] = {}
        dirty, broken = (tuple(name for name in order if name in found) for found in (self.unreadable, self.broken))
        if broken:
            advice["encoding"] = "windows-1252"
            said.append(f"{_columns(broken)} text that is no UTF-8")
            effects.append("reads the file as the usual other way of writing text")
        if dirty:
            advice["numeric"] = dirty
            said.append(f"{_columns(dirty)} text among numbers in some rows")
            effects.append("reads $1,200 and 12% as numbers and takes other such cells for missing values")
        if self.targets and not self.known:
            raise GratisError(
                f"no row of the target {target!r} holds a declared class or a number: see how the file writes them"
            )
        if self.targets:
            advice["missing_target"] = "leave-out"
            said.append(f"the target {target!r} is missing, infinite or no declared class in some rows")
            effects.append("lets such rows contribute nothing, while the number of rows stays public")
        if said:
            raise UndecidedError(" and ".join(said), advice, tuple(effects), python=python)


def _columns(names: tuple[str, ...]) -> str:
    return f"column {names[0]!r} holds" if len(names) == 1 else f"columns {', '.join(map(repr, names))} hold"
