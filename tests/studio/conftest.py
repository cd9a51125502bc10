"""A folder with a table, and the studio on it: in this process for requests, as a program for browsers."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the studio is an extra: pip install 'gratis[studio]'")
pytest.importorskip("uvicorn", reason="the studio is an extra: pip install 'gratis[studio]'")
httpx = pytest.importorskip("httpx", reason="requests are made with httpx")

SECRET = "Zaphod-Beeblebrox"  # a cell that no answer may hold


class Client:
    """Requests to an application in this process, one event loop each. (Starlette's own client wants httpx2 now.)"""

    def __init__(self, app: Any, *, base_url: str, headers: dict[str, str] | None = None) -> None:
        self._app, self._base, self._headers = app, base_url, headers or {}

    def request(self, method: str, path: str, **more: Any) -> Any:
        async def ask() -> Any:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url=self._base, headers=self._headers) as client:
                return await client.request(method, path, **more)

        return asyncio.run(ask())

    def get(self, path: str, **more: Any) -> Any:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> Any:
        return self.request("POST", path, **more)


@pytest.fixture
def clients() -> type[Client]:
    return Client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    rng = np.random.default_rng(0)
    age, city = rng.integers(18, 80, 400), rng.choice(["Bern", "Chur", SECRET], 400)
    wage = 20 + 0.3 * age + 5 * (city == "Bern") + rng.normal(0, 2, 400)
    lines = [f"{a},{c},{w:.2f}" for a, c, w in zip(age, city, wage, strict=True)]
    (root / "wages.csv").write_text("age,city,wage\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return root


@dataclass
class Running:
    """The program, and the address that it printed."""

    process: subprocess.Popen[str]
    address: str

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def started(folder: Path) -> Iterator[Callable[[], Running]]:
    """Start `gratis studio` as a program of its own, as often as asked."""
    running: list[Running] = []
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}

    def start() -> Running:
        process = subprocess.Popen(
            [sys.executable, "-c", "from gratis.cli import main; main()", "studio", ".", "--no-browser"],
            cwd=folder, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert process.stdout is not None
        text = ""
        while "key" not in text:
            line = process.stdout.readline()
            assert line, "the studio ended before it said where it is"
            text += line
        found = re.search(r"http://127\.0\.0\.1:\d+/#token=\S+", text)
        assert found is not None
        running.append(Running(process, found[0]))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.kill()
