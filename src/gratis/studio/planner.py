"""A process that plans: one request a line, one answer a line. It ends when whoever asks is gone.

Planning simulates twins for up to some seconds; in a process of its own it does not hold the page up, and it keeps the
twins that later plans of the same sizes share.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

__all__ = ["answer", "main"]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Plan one model for one budget: what `gratis compare` shows of it; or its cost roughly, in closed form."""
    from gratis.estimators.fit_plan import plan, rough_cost
    from gratis.records.errors import GratisError

    try:
        if request.get("rough"):
            sizes = {name: request[name] for name in ("rows", "columns", "epsilon", "delta", "neighbouring")}
            rough = rough_cost(request["model"], **sizes)
            return {"cost": rough and rough._asdict(), "approximate": True}
        made = plan(
            request["model"], rows=request["rows"], columns=request["columns"], classes=request["classes"],
            epsilon=request["epsilon"], delta=request["delta"], neighbouring=request["neighbouring"],
        )  # fmt: skip
    except GratisError as error:
        return {"error": " ".join(str(error).split())}
    return {"cost": made.cost and made.cost._asdict(), "words": made.words()}


def main() -> None:
    """Answer until the standard input ends."""
    out, sys.stdout = sys.stdout, sys.stderr  # nothing but answers may get there
    for line in sys.stdin:
        request = json.loads(line)
        try:
            found = answer(request)
        except Exception as error:  # of a planner that failed: the page says so, and the next request is served
            found = {"error": f"the planner failed ({type(error).__name__})"}
        try:
            out.write(json.dumps(found) + "\n")
            out.flush()
        except BrokenPipeError:  # the studio was killed
            os._exit(0)


if __name__ == "__main__":
    main()
