"""How soon the studio answers a move of a slider, and how soon every model's figure is there.

A walk over the sliders as a user makes it: one step at a time in rows, columns or ε, with a pause to look. Times are
those of whole requests over loopback to a server of its own process. Two figures a move:

- first: until the answer that the page draws (figures that are known, the trade-off, commands; the rest is marked as
  being planned). The server waits at most 0.15 s for plans before it gives it.
- exact: until the chosen ε has its figure for every model of the task.

    python benchmarks/studio.py [--pause 1.0] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

import httpx
import numpy as np

START = {"rows": 5000, "columns": 10, "classes": None, "epsilon": 1.0, "delta": 1e-6, "neighbouring": "replace-one"}
# One step of one slider each; both tasks, then a jump to sizes that were never near.
WALK: list[dict[str, Any]] = [
    {}, {"epsilon": 1.5}, {"epsilon": 2.0}, {"epsilon": 0.7}, {"rows": 10_000}, {"rows": 20_000}, {"columns": 20},
    {"columns": 50}, {"epsilon": 0.3}, {"delta": 1e-7}, {"rows": 50_000},
    {"classes": 2}, {"epsilon": 0.5}, {"rows": 100_000}, {"columns": 100}, {"classes": 5}, {"epsilon": 3.0},
    {"rows": 2_000, "columns": 5, "classes": None}, {"rows": 1_000_000, "columns": 200},
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pause", type=float, default=1.0, help="Seconds that the user looks before the next move.")
    parser.add_argument("--json", help="Write the figures here.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-c", "from gratis.cli import main; main()", "studio", folder, "--no-browser"]
        server = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        try:
            found = walk(server, arguments.pause)
        finally:
            server.kill()
    report(found, arguments.pause)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


def walk(server: subprocess.Popen[str], pause: float) -> list[dict[str, Any]]:
    assert server.stdout is not None
    line = next(line for line in server.stdout if "token" in line)
    address, _, token = line.strip().partition("#token=")
    client = httpx.Client(base_url=address, headers={"x-gratis-token": token}, timeout=120)
    begun = time.perf_counter()
    body, found = dict(START), []
    picture(client, body)  # what the page shows first: the planners start with it
    ready = time.perf_counter() - begun
    for change in WALK:
        body |= change
        begun = time.perf_counter()
        models = picture(client, body)["models"]
        first = time.perf_counter() - begun
        known = [name for name, model in models.items() if model["chosen"] is not None or name == "mlp"]
        waited: dict[str, float] = dict.fromkeys(known, first)
        while len(waited) < len(models):
            time.sleep(0.02)
            for name, model in picture(client, body)["models"].items():
                if model["chosen"] is not None:
                    waited.setdefault(name, time.perf_counter() - begun)
        found.append({"body": dict(body), "first": first, "known": sorted(known), "exact": waited})
        time.sleep(pause)
    found[0]["ready"] = ready
    return found


def picture(client: httpx.Client, body: dict[str, Any]) -> Any:
    answer = client.post("/api/picture", json=body)
    answer.raise_for_status()
    return answer.json()


def report(found: list[dict[str, Any]], pause: float) -> None:
    print(f"{len(found)} moves, {pause:g} s apart; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for move in found:
        sizes = re.sub(
            r"[{}'\"]", "", json.dumps({k: move["body"][k] for k in ("rows", "columns", "classes", "epsilon")})
        )
        exact = ", ".join(f"{name} {seconds:.2f}" for name, seconds in move["exact"].items() if name != "mlp")
        print(f"first {move['first']:.3f} s; exact: {exact}   ({sizes})")
    first = np.array([move["first"] for move in found[1:]])
    print(f"first answer: median {np.median(first):.3f} s, largest {first.max():.3f} s (goal: 0.3)")
    for name in ("linear", "logistic", "additive", "random-features"):
        times = np.array([move["exact"][name] for move in found[1:] if name in move["exact"]])
        within = np.mean(times <= 0.3)
        shown = f"median {np.median(times):.2f} s, largest {times.max():.2f} s"
        print(f"{name}: exact within 0.3 s in {within:.0%} of {len(times)} moves, {shown}")


if __name__ == "__main__":
    main()
