"""The server: a table of requests and what answers them. It listens on this machine's loopback address alone."""

from __future__ import annotations

import secrets
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from gratis.records.errors import GratisError
from gratis.studio import fields
from gratis.studio.columns import described_table, encoded
from gratis.studio.folder import MODELS, TABLES, WORK, StudioFolder
from gratis.studio.forecasts import EPSILONS, Asked, Forecasts
from gratis.studio.guard import Guard, signature
from gratis.studio.looking import described_model, prediction
from gratis.studio.questions import attacker, budget_mu, equivalents, needed
from gratis.studio.runs import Runs
from gratis.studio.spending import Spending

__all__ = ["HOST", "Studio", "serve"]

HOST = "127.0.0.1"
_STATIC = Path(__file__).with_name("static")
_FIRST = Asked("linear", 5000, 10, None, 1.0, 1e-6, "replace-one")
# A report is a page of its own: no scripts, no network, whatever its file holds.
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
_DOWNLOADS = (".gratis", ".json", ".html")

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Studio:
    """One folder, one token, one application."""

    def __init__(self, root: Path, *, port: int, token: str | None = None) -> None:
        self.folder = StudioFolder(root)
        self.token = token or secrets.token_urlsafe(32)
        self.port = port
        self.runs = Runs(self.folder)
        self._spending = Spending(self.folder, self.runs)
        self._forecasts: Forecasts | None = None

    @property
    def address(self) -> str:
        """What the user opens. The token stands after `#`: browsers do not send that part to anyone."""
        return f"http://{HOST}:{self.port}/#token={self.token}"

    def app(self) -> Starlette:
        """Return the ASGI application."""
        answers: dict[str, Answer] = {
            "start": self._start,
            "picture": self._picture,
            "needed": lambda body: needed(self._planners(), fields.asked(body), fields.number(body, "loss")),
            "table": lambda body: described_table(self.folder.find(body.get("file"), TABLES)),
            "encoded": lambda body: encoded(body.get("columns"), fields.text(body, "target")),
            "ledgers": lambda _: {"ledgers": self._spending.ledgers()},
            "create-budget": self._spending.create_budget,
            "plan": self._spending.plan,
            "spend": self._spending.spend,
            "runs": lambda _: {"running": self.runs.running(), "runs": self.runs.listed()},
            "run": lambda body: self._linked(self.runs.described(fields.text(body, "name"))),
            "model": self._model,
            "predict": lambda body: prediction(self.folder.find(body.get("file"), MODELS), body.get("values")),
        }
        routes = [
            Route("/", lambda _: FileResponse(_STATIC / "index.html")),
            Mount("/static", StaticFiles(directory=_STATIC)),
            Route("/file/{signature}/{path:path}", self._file),
            *(Route(f"/api/{name}", _endpoint(answer), methods=["POST"]) for name, answer in answers.items()),
        ]
        return Starlette(
            routes=routes,
            middleware=[Middleware(Guard, token=self.token, port=self.port)],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._planners().warm(_FIRST)
        try:
            yield
        finally:
            self._planners().close()
            self._forecasts = None

    def _planners(self) -> Forecasts:
        if self._forecasts is None:
            self._forecasts = Forecasts()
        return self._forecasts

    def _start(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "folder": self.folder.root.name,
            "tables": [name for name in self.folder.files(TABLES) if not name.startswith(f"{WORK}/")],
            "models": self.folder.files(MODELS),
            "ledgers": self._spending.ledgers(),
            "running": self.runs.running(),
            "epsilons": EPSILONS,
        }

    def _picture(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        asked = fields.asked(body)
        mu, persons = budget_mu(asked), fields.optional_whole(body, "rows_per_person") or 1
        return {
            **self._planners().picture(asked),
            "attacker": attacker(mu, asked.neighbouring, delta=asked.delta, rows_per_person=persons),
            **equivalents(asked),
            "warning": None if asked.delta * asked.rows < 1 else "δ should be below one over the number of rows.",
        }

    def _model(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        path = self.folder.find(body.get("file"), MODELS)
        files = {"model": self.folder.shown(path)}
        for kind, name in (("certificate", "certificate.json"), ("report", "report.html")):
            if path.name == "model.gratis" and path.with_name(name).is_file():
                files[kind] = self.folder.shown(path.with_name(name))
        return self._linked({**described_model(path), "files": files})

    def _linked(self, found: dict[str, Any]) -> dict[str, Any]:
        """Add a link to each file; it opens that file alone."""
        links = {
            kind: f"/file/{signature(self.token, path)}/{quote(path)}" for kind, path in found.get("files", {}).items()
        }
        return {**found, "links": links}

    async def _file(self, request: Request) -> Response:
        path = request.path_params["path"]
        given = request.path_params["signature"].encode("utf-8", "replace")  # as bytes: texts must be ASCII
        if not secrets.compare_digest(given, signature(self.token, path).encode()):
            return _refused(403, "this link is not one of this studio's")
        try:
            found = self.folder.find(path, _DOWNLOADS)
        except GratisError as error:
            return _refused(404, str(error))
        if found.suffix == ".html":
            return FileResponse(found, headers={"content-security-policy": _REPORT_POLICY})
        return FileResponse(found, filename=found.name)


def _endpoint(answer: Answer) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        try:
            body = await request.json()
            if not isinstance(body, dict):
                raise ValueError
        except (ValueError, RecursionError):
            return _refused(400, "the request is no JSON object")
        try:
            return JSONResponse(await run_in_threadpool(answer, body))
        except GratisError as error:
            return _refused(400, str(error))
        except OSError as error:
            return _refused(400, f"a file cannot be used: {error.strerror or 'unknown reason'}")
        except Exception:  # a fault of the program: for its user on the terminal, no detail for the page
            traceback.print_exc(file=sys.stderr)
            return _refused(500, "the studio failed; the terminal says where")

    return endpoint


def _refused(status: int, sentence: str) -> Response:
    return JSONResponse({"error": " ".join(sentence.split())}, status_code=status)


def serve(root: Path, *, port: int, announce: Callable[[Studio], None]) -> Studio:
    """Listen until stopped. Port 0 takes a free one."""
    import uvicorn

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except (OSError, OverflowError):
        listening.close()
        raise GratisError(f"port {port} is taken or not allowed; choose another --port") from None
    studio = Studio(root, port=listening.getsockname()[1])
    config = uvicorn.Config(
        studio.app(), log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    listening.listen(64)
    announce(studio)
    with listening:
        server.run(sockets=[listening])
    return studio
