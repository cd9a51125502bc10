"""`gratis audit replay`: replay a fit on hostile neighbours and compare everything that happens before the noise."""

from __future__ import annotations

import typer

from gratis.audits.replay import ReplayAudit
from gratis.cli.output import emit
from gratis.records.errors import GratisError

__all__ = ["emit_replay"]


def emit_replay(name: str, audit: ReplayAudit, *, as_json: bool, alarm: int) -> None:
    """Print the outcome; exit with `alarm` if a pair showed more than is certified, or none could be replayed."""
    if not audit.pairs:
        raise GratisError(f"{name}: {audit.verdict}")
    lines = [f"{name}: {audit.verdict}"]
    lines += [
        f"  {count} pairs: {what}, first in: {audit.examples[what]}"
        for what, count in audit.differences.most_common(10)
    ]
    if audit.largest_ratio:
        lines.append(f"largest ratio in: {audit.worst_pair}")
    lines += [f"not seen: {words}" for words in audit.limits]
    emit({"audit": name, "method": "replay", **audit.to_json()}, as_json=as_json, text="\n".join(lines))
    if audit.alarm:
        raise typer.Exit(alarm)
