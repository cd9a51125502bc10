"""Griffe extension: what numpy's style does not know about these docstrings.

Examples and references stand at the end without a heading, and parameters may share one entry ("epsilon, delta").
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> ", re.MULTILINE)
_REFERENCE = re.compile(r"^References?: ", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (.*)\n((?: +\S.*(?:\n|\Z))*)", re.MULTILINE)
_UNTYPED = re.compile(r"^(\w+(?:, \w+)+)\n((?: +\S.*(?:\n|\Z))+)", re.MULTILINE)


def _typed(found: re.Match[str]) -> str:
    """One entry a name; what follows the colon is a type only if a description follows it."""
    names, kind, words = found[1].split(", "), found[2], found[3].rstrip()
    if words:
        return "".join(f"{name} : {kind}\n{words}\n" for name in names)
    return "".join(f"{name}\n    {kind}\n" for name in names)


def _untyped(found: re.Match[str]) -> str:
    return "".join(f"{name}\n{found[2].rstrip()}\n" for name in found[1].split(", "))


class DocstringSections(griffe.Extension):
    """Gives every docstring the headings and entries that the parser needs."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Called for every object that was loaded."""
        if not obj.docstring:
            return
        text = _UNTYPED.sub(_untyped, _ENTRY.sub(_typed, obj.docstring.value + "\n"))
        text = _REFERENCE.sub("Notes\n-----\n", text, count=1)
        obj.docstring.value = _EXAMPLE.sub("Examples\n--------\n>>> ", text, count=1)
