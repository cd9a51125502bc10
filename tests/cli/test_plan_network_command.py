from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from gratis.cli.plan import network
from gratis.records.errors import GratisError

SIZES = ["--n", "10000", "--d", "3072", "--classes", "2", "--width", "1024", "--depth", "10", "--kl-budget", "1"]


def program() -> typer.Typer:
    app = typer.Typer()
    app.command()(network)
    return app


def test_text_names_the_least_and_what_kl_is_not() -> None:
    answer = CliRunner().invoke(program(), SIZES)
    assert answer.exit_code == 0
    assert "leaks least: lecun at depth 10" in answer.output
    assert "not (ε, δ)-DP" in answer.output
    assert "replace-one" in answer.output


def test_json_holds_the_table() -> None:
    data = json.loads(CliRunner().invoke(program(), [*SIZES, "--json", "--neighbouring", "zero-out"]).output)
    assert data["neighbouring"] == "zero-out"
    assert len(data["choices"]) == 16
    he = next(c for c in data["choices"] if c["scheme"] == "he" and c["depth"] == 10)
    assert he["kl_of_reference_run"] == pytest.approx(he["published_kl_of_reference_run"] / 4)
    assert data["costs_least"]["excess_risk_bound"] == min(c["excess_risk_bound"] for c in data["choices"])


@pytest.mark.parametrize("depth", ["1001", "4000000", str(10**30)])
def test_absurd_depths_are_refused_by_name(depth: str) -> None:
    answer = CliRunner().invoke(program(), [*SIZES, "--depth", depth])
    assert isinstance(answer.exception, GratisError)
    assert str(answer.exception) == f"--depth must be at most 1000 weight matrices, got {depth}"


@pytest.mark.parametrize("change", [(), ("--width", "1"), ("--d", "1"), ("--width", "1000000"), ("--classes", "1")])
def test_the_largest_depth_is_answered(change: tuple[str, ...]) -> None:
    assert CliRunner().invoke(program(), [*SIZES, "--depth", "1000", *change]).exit_code == 0


@pytest.mark.parametrize("change", [("--depth", "0"), ("--width", "0"), ("--kl-budget", "-1"), ("--neighbouring", "x")])
def test_bad_input_is_refused(change: tuple[str, str]) -> None:
    answer = CliRunner().invoke(program(), [*SIZES, *change])
    assert isinstance(answer.exception, GratisError)
