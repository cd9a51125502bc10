"""How soon the studio answers a move of a slider, and how soon every model's figure is there.

A walk over the sliders as a user makes it: one step at a time in rows, columns or ε, with a pause to look. Times are
those of whole requests over loopback to a server of its own process. Three figures a move:

- first: until the answer that the page draws (figures that are known, the trade-off, commands; the rest is marked as
  being planned). The server waits at most 0.15 s for plans before it gives it.
- shown: until the chosen ε has a figure for every model of the task; that of random features may be the rough one in
  closed form, which the page marks with ≈ until the plan is there.
- exact: until it has the plan's own figure.

On a shared machine waiting for a core is most of it, so the seconds of the processor that a model's figure takes are
measured too, in a process of its own that has planned once.

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
    processor = processor_seconds()
    report_processor(processor)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"walk": found, "processor": processor, "load": os.getloadavg()[0]}, file, indent=1)


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
        shown: dict[str, float] = {}
        exact: dict[str, float] = {}
        after = first
        while len(exact) < len(models):
            for name, model in models.items():
                if model["chosen"] is not None or name == "mlp":
                    shown.setdefault(name, after)
                    if name == "mlp" or not model["chosen"].get("approximate"):
                        exact.setdefault(name, after)
            if len(exact) < len(models):
                time.sleep(0.02)
                models = picture(client, body)["models"]
                after = time.perf_counter() - begun
        found.append({"body": dict(body), "first": first, "shown": shown, "exact": exact})
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
        for kind in ("shown", "exact") if name == "random-features" else ("exact",):
            times = np.array([move[kind][name] for move in found[1:] if name in move[kind]])
            within = np.mean(times <= 0.3)
            spread = f"median {np.median(times):.2f} s, largest {times.max():.2f} s"
            print(f"{name}, {kind}: within 0.3 s in {within:.0%} of {len(times)} moves, {spread}")


def processor_seconds() -> dict[str, list[float]]:
    """Of the processor, for every model's figure along the same walk, in this process."""
    from gratis.studio.planner import answer

    models = {None: ("linear", "additive", "random-features"), 1: ("logistic", "additive")}
    body, found = dict(START), {}
    for change in ({}, *WALK):
        body |= change
        for name in models[None if body["classes"] is None else 1]:
            kinds = (True, False) if name == "random-features" else (False,)
            for rough in kinds:
                begun = time.process_time()
                answer(body | {"model": name, "rough": rough})
                label = f"{name}{', rough' if rough else ''}"
                found.setdefault(label, []).append(time.process_time() - begun)
    return {name: times[1:] for name, times in found.items()}  # the first compiles and imports


def report_processor(found: dict[str, list[float]]) -> None:
    for name, times in found.items():
        within = np.mean(np.array(times) <= 0.3)
        print(
            f"{name}: {np.median(times):.3f} s of a processor (median), {max(times):.3f} (largest), {within:.0%} ≤ 0.3"
        )


if __name__ == "__main__":
    main()
