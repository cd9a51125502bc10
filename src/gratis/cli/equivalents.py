"""The same once more: the command that was typed, and the Python that does what it did. No path of this machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gratis.estimators.values import CLASSES_OCCUR
from gratis.rows.person_ids import number_persons
from gratis.rows.undecided import listed, names_in

if TYPE_CHECKING:
    from gratis.estimators.table_fit import TableJob
    from gratis.rows.undecided import Advice

__all__ = ["fixed_command", "shown_command", "shown_python"]

_OF_THIS_RUN = frozenset({"as_json", "force", "output"})


def shown_command(context: Any) -> str:
    """The command of a typer.Context with the options that were given, files by their names."""
    return _command(context, dict(context.params), lambda path: path.name, _OF_THIS_RUN)


def fixed_command(context: Any, advice: Advice) -> str:
    """The command that was typed with what a refusal advises, whole: to be copied and run."""
    given = dict(context.params)
    for name, value in advice.items():
        before = names_in(given.get(name) or "") if isinstance(value, tuple) else []
        given[name] = listed(dict.fromkeys([*before, *value])) if isinstance(value, tuple) else value
    return _command(context, given, str, frozenset())


def _command(context: Any, given: dict[str, Any], path: Callable[[Path], str], hidden: Set[str]) -> str:
    words, options = ["gratis", str(context.info_name)], []
    for parameter in context.command.params:
        value = given.get(parameter.name)
        if parameter.name in hidden or value is None or value == parameter.default:
            continue
        if isinstance(value, list | tuple):
            options += [word for one in value for word in (parameter.opts[0], str(one))]
            continue
        shown = path(value) if isinstance(value, Path) else str(value)
        if parameter.param_type_name == "argument":
            words.append(shown)
        elif isinstance(value, bool):
            options.append(parameter.opts[0] if value else (parameter.secondary_opts or ["--no-" + parameter.name])[0])
        else:
            options += [parameter.opts[0], shown]
    return shlex.join([*words, *options])


def shown_python(job: TableJob, file: str, given: Mapping[str, Any] | None = None) -> str:
    """The same fit by a table estimator; `given` are the command's parameters. Empty where it takes the command."""
    given, how, budget = given or {}, job.reading, job.budget
    options = job.options if job.choice else {**job.plan.choices, **job.options}
    plain = all(isinstance(value, str | int | float | bool | None) for value in options.values())
    # Persons: how many rows there are is nobody's to know.
    units = job.n_rows if job.persons is None else number_persons(job.persons.names)[1]
    if (budget.delta or 0.0) * units >= 1 or not plain:  # --force-delta, or a plan that was made in Python
        return ""
    arguments: dict[str, Any] = {
        "neighbouring": None if str(budget.neighbouring) == "replace-one" else str(budget.neighbouring),
        "model": None if job.choice else job.model,
        "schema": Path(how.schema).name if isinstance(how.schema, str | os.PathLike) else None,
        "levels": {name: list(levels) for name, levels in how.levels.items()},
        "private_levels": list(how.private_levels),
        "hash_buckets": how.hash_buckets,
        "ignore": [name for name in how.ignore if job.persons is None or name != job.persons.column],
        "numeric": list(how.numeric),
        "classes": None if CLASSES_OCCUR in job.assumptions else list(job.target.levels or ()),
        "missing_target": None if job.missing_target == "refuse" else job.missing_target,
        "held_out": job.held_out,
        "unit": None if job.persons is None else job.persons.column,
        "options": options,
        "ledger": Path(given["ledger"]).name if given.get("ledger") else None,
        "dataset": given.get("budget"),
    }
    estimator = "DPTableRegressor" if job.task == "regression" else "DPTableClassifier"
    dialect = {"encoding": how.encoding, "separator": how.separator, "decimal": how.decimal}
    told = "".join(f", {name}={value!r}" for name, value in dialect.items() if value is not None)
    opened = f"open_table({file!r}{told})" if told else repr(file)
    lines = "".join(f"    {name}={value!r},\n" for name, value in arguments.items() if value)
    return (
        f"from gratis import {estimator}{', open_table' if told else ''}\n\n"
        f"model = {estimator}(\n    epsilon={budget.epsilon!r},\n    delta={budget.delta!r},\n{lines})\n"
        f"model.fit({opened}, {job.target.name!r})\n"
        'model.save("model.gratis")\n'
    )
