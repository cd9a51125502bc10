"""The command line: one file a command, `--json` on every one, failures are one sentence and a non-zero code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `gratis` program.

    Exit codes: 0 done, 2 bad input or refused, 3 an audit's alarm, 130 after Ctrl-C, 143 after SIGTERM.
    """
    from gratis.cli.interruption import Interrupted, interruptible

    try:
        with interruptible():  # also while the libraries are loaded
            from gratis.cli.program import run

            code = run(list(sys.argv[1:] if arguments is None else arguments))
    except Interrupted as stop:
        sys.stderr.write(f"gratis: {stop}\n")
        code = stop.code
    sys.exit(code)
