"""Sweeps: one function over many settings, on one core, many cores or a cluster, continued after an interruption.

What comes back depends on the function, its settings and the seed alone: every setting has a stream of randomness of
its own, derived from its content; linear algebra runs on one thread; every result goes through JSON, stored or not.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gratis
from gratis.records.checks import check_count
from gratis.records.errors import GratisError
from gratis.records.extras import install_command

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["BACKENDS", "Execution", "executing", "kept_in", "sweep"]

BACKENDS = ("loky", "dask", "ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Where sweeps run, and where finished settings are kept.

    Parameters
    ----------
    backend: "loky" (this machine), "dask" or "ray". Dask uses the client that is open, else the scheduler of
        DASK_SCHEDULER_ADDRESS, else a local cluster; Ray the cluster of RAY_ADDRESS, else a local one.
    jobs: settings computed at once.
    folder: results are kept here and found again by a later run; None keeps nothing.
    progress: a rich progress display that gets one bar a sweep.
    """

    backend: str = "loky"
    jobs: int = 1
    folder: Path | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise GratisError(f"unknown backend {self.backend!r}; expected one of {', '.join(BACKENDS)}")
        object.__setattr__(self, "jobs", check_count("jobs", self.jobs))


_CURRENT: ContextVar[Execution] = ContextVar("execution")


@contextmanager
def executing(execution: Execution) -> Iterator[None]:
    """Run the sweeps inside the block this way."""
    token = _CURRENT.set(execution)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def kept_in(name: str) -> Path | None:
    """Return a folder beside the kept results for files that are too large for them; None if nothing is kept."""
    folder = _CURRENT.get(Execution()).folder
    if folder is None:
        return None
    (folder / name).mkdir(parents=True, exist_ok=True)
    return folder / name


def sweep(function: Callable[..., Any], settings: Sequence[Mapping[str, Any]], *, seed: int = 0) -> list[Any]:
    """Return function(**setting, rng=…) for every setting, in their order, as plain JSON data.

    Equal settings are computed once: give repetitions a setting of their own. With `Execution.folder`, a result is
    written (to a temporary file that is then renamed) as soon as it arrives, under a hash of the function's name, its
    module's source, setting, seed and version of Gratis: an interrupted sweep computes only what is missing, a changed
    setting is computed anew. Changes in other modules are not seen; empty the folder or do not resume then.

    Parameters
    ----------
    function:
        Defined at the top of a module; takes the setting's entries and `rng` as keywords, returns what JSON can hold.
    settings:
        Plain JSON data.
    seed:
        Public seed of all streams. A setting's stream comes from this, the function's name and the setting with its
        floats to nine digits, so that it is the same on every machine.

    >>> def noisy_square(x, rng):
    ...     return x * x + 0 * rng.normal()
    >>> sweep(noisy_square, [{"x": 1}, {"x": 3}])
    [1.0, 9.0]
    """
    execution = _CURRENT.get(Execution())
    source = _source(function)
    keys = [_digest(source, setting, seed) for setting in settings]
    found: dict[str, Any] = {}
    for key in dict.fromkeys(keys):
        kept = _kept(execution, function, key)
        if kept:
            found[key] = kept["result"]
    missing = {key: dict(setting) for key, setting in zip(keys, settings, strict=True) if key not in found}
    advance = _bar(execution.progress, function, total=len(found) + len(missing), done=len(found))
    for key, text in _computed(execution, function, missing, seed):
        found[key] = json.loads(text)
        _keep(execution, function, key, missing[key], seed, found[key])
        advance()
    return [found[key] for key in keys]


def _bar(progress: Progress | None, function: Callable[..., Any], *, total: int, done: int) -> Callable[[], None]:
    if progress is None:
        return lambda: None
    task = progress.add_task(function.__name__.strip("_").replace("_", " "), total=total, completed=done)
    return lambda: progress.advance(task)


def _computed(
    execution: Execution, function: Callable[..., Any], missing: Mapping[str, Mapping[str, Any]], seed: int
) -> Iterator[tuple[str, str]]:
    """Yield (key, JSON text) in the order in which results arrive."""
    if not missing:
        return
    if execution.backend == "loky" and execution.jobs == 1:
        yield from (_one(function, key, setting, seed) for key, setting in missing.items())
        return
    from joblib import Parallel, delayed, parallel_config

    tasks = [delayed(_one)(function, key, setting, seed) for key, setting in missing.items()]
    with ExitStack() as stack:
        _connect(execution, stack)
        stack.enter_context(parallel_config(backend=execution.backend, n_jobs=execution.jobs))
        if execution.backend == "ray":
            # Ray's backend cannot hand over results as they arrive, so they are asked for in small lots.
            for start in range(0, len(tasks), 2 * execution.jobs):
                yield from Parallel()(tasks[start : start + 2 * execution.jobs])
        else:
            yield from Parallel(return_as="generator_unordered", batch_size=1)(tasks)


def _connect(execution: Execution, stack: ExitStack) -> None:
    """Make the cluster known to joblib; close on leaving what was opened here."""
    try:
        if execution.backend == "dask":
            import dask.config
            from distributed import Client, default_client

            try:
                default_client()
            except ValueError:
                known = dask.config.get("scheduler-address", None)
                local: dict[str, Any] = {
                    "n_workers": execution.jobs,
                    "threads_per_worker": 1,
                    "dashboard_address": None,
                }
                stack.enter_context(Client(known) if known else Client(**local))
        elif execution.backend == "ray":
            from ray.util.joblib import register_ray

            register_ray()
    except ImportError:
        raise GratisError(
            f"the backend {execution.backend!r} is not installed: {install_command(execution.backend)}; or take "
            "--backend loky"
        ) from None


def _one(function: Callable[..., Any], key: str, setting: Mapping[str, Any], seed: int) -> tuple[str, str]:
    """Compute one setting, with linear algebra on one thread (more threads may round sums differently)."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

    # Of the name and the setting alone: an edit of the program or a new version leaves the randomness as it was.
    digest = hashlib.sha256(json.dumps([_name(function), _rounded(setting)], sort_keys=True).encode()).digest()
    words = tuple(np.frombuffer(digest, dtype="<u4").tolist())
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=words))
    with threadpool_limits(1), executing(Execution()):
        return key, json.dumps(function(**setting, rng=rng))


def _rounded(data: Any) -> Any:
    """Plain data with nine digits of every float: machines differ in the last digit of a power (np.geomspace)."""
    if isinstance(data, Mapping):
        return {key: _rounded(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_rounded(value) for value in data]
    return float(f"{data:.9g}") if isinstance(data, float) else data


def _source(function: Callable[..., Any]) -> str:
    """Name and source of the function's module: constants beside a function change its results as its lines do."""
    try:
        text = inspect.getsource(inspect.getmodule(function) or function)
    except (OSError, TypeError):
        text = ""
    return f"{_name(function)}\n{text}"


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _digest(source: str, setting: Mapping[str, Any], seed: int) -> str:
    try:
        content = json.dumps([source, setting, seed, gratis.__version__], sort_keys=True)
    except TypeError as error:
        raise GratisError(f"the settings of a sweep must be plain JSON data; {error}") from None
    return hashlib.sha256(content.encode()).hexdigest()


def _place(folder: Path, function: Callable[..., Any], key: str) -> Path:
    return folder / function.__qualname__.strip("_") / f"{key[:32]}.json"


def _kept(execution: Execution, function: Callable[..., Any], key: str) -> dict[str, Any] | None:
    """Return what is stored under the key; a file that cannot be read counts as missing."""
    if execution.folder is None:
        return None
    try:
        stored = json.loads(_place(execution.folder, function, key).read_text(encoding="utf-8"))
        return stored if stored["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(
    execution: Execution, function: Callable[..., Any], key: str, setting: Mapping[str, Any], seed: int, result: Any
) -> None:
    if execution.folder is None:
        return
    path = _place(execution.folder, function, key)
    stored = {"key": key, "setting": setting, "seed": seed, "version": gratis.__version__, "result": result}
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(stored), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise GratisError(
            f"cannot keep results in {execution.folder} ({error.strerror}); set XDG_CACHE_HOME to a folder that can be "
            "written, or take --no-resume"
        ) from None
