"""The same once more: the command that was typed, and the Python that does what it did. No path of this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gratis.estimators.table_fit import TableJob

__all__ = ["shown_command", "shown_python"]

_OF_THIS_RUN = {"as_json", "force", "output"}


def shown_command(context: Any) -> str:
    """The command of a typer.Context with the options that were given, files by their names."""
    words, options = ["gratis", str(context.info_name)], []
    for parameter in context.command.params:
        value = context.params.get(parameter.name)
        if parameter.name in _OF_THIS_RUN or value is None or value == parameter.default:
            continue
        shown = Path(value).name if isinstance(value, Path) else str(value)
        if parameter.param_type_name == "argument":
            words.append(shown)
        elif isinstance(value, bool):
            options.append(parameter.opts[0] if value else (parameter.secondary_opts or ["--no-" + parameter.name])[0])
        else:
            options += [parameter.opts[0], shown]
    return shlex.join([*words, *options])


def shown_python(job: TableJob, file: str) -> str:
    """The same fit as a program."""
    budget = job.budget
    relation = "" if str(budget.neighbouring) == "replace-one" else f", neighbouring={str(budget.neighbouring)!r}"
    given: dict[str, Any] = {"model": job.model, "task": job.task}
    if job.task == "classification" and job.target.levels is not None:
        given["classes"] = list(job.target.levels)
    if job.held_out:
        given["held_out"] = job.held_out
    if job.persons is not None:
        given["unit"] = job.persons.column
    if job.options:
        given["options"] = job.options
    arguments = "".join(f"    {name}={value!r},\n" for name, value in given.items())
    return (
        "from gratis import Budget, save_model\n"
        "from gratis.estimators.table_fit import plan_table_fit\n\n"
        f"budget = Budget(epsilon={budget.epsilon!r}, delta={budget.delta!r}{relation})\n"
        f"job = plan_table_fit(\n    {file!r}, {job.target.name!r}, budget,\n{arguments}"
        "    # schema=…, ledger=…: as in the command\n)\n"
        "job.check()       # every cell is read; nothing is spent\n"
        "done = job.run()  # from here on the budget is spent\n"
        'save_model("model.gratis", done.estimator, done.context)\n'
    )
