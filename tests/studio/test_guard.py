"""Nobody but the page itself gets an answer: another host, origin, token, a page of another site, a large body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gratis.studio.guard import TOKEN_HEADER
from gratis.studio.server import Studio

PORT = 8765
HOME = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def studio(folder: Path) -> Studio:
    return Studio(folder, port=PORT)


Answers = Callable[..., Any]


@pytest.fixture
def client(studio: Studio, clients: Any) -> Answers:
    def make(*, base: str = HOME, token: str | None = "right", **headers: str) -> Any:
        given = {} if token is None else {TOKEN_HEADER: studio.token if token == "right" else token}
        return clients(studio.app(), base_url=base, headers={**given, **headers})

    return make


def test_the_page_itself_is_answered(client: Answers) -> None:
    for base in (HOME, f"http://localhost:{PORT}"):
        answer = client(base=base, origin=base, **{"sec-fetch-site": "same-origin"}).post("/api/start", json={})
        assert answer.status_code == 200
        assert answer.json()["tables"] == ["wages.csv"]


@pytest.mark.parametrize("token", [None, "", "wrong", "x" * 43, "é"])
def test_a_wrong_token_is_refused(client: Answers, token: str | None) -> None:
    headers = [] if token is None else [(TOKEN_HEADER.encode(), token.encode())]
    answer = client(token=None).post("/api/start", json={}, headers=headers)
    assert answer.status_code == 403
    assert "token" in answer.json()["error"]
    assert "wages" not in answer.text


def test_the_token_stands_in_no_place_that_is_sent_or_served(client: Answers, studio: Studio) -> None:
    assert studio.address == f"{HOME}/#token={studio.token}"
    asked = client(token=None)
    for page in ("/", "/static/api.js", "/static/main.js"):
        answer = asked.get(page)
        assert answer.status_code == 200
        assert studio.token not in answer.text
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", f"127.0.0.1.evil:{PORT}"]
)
def test_another_host_is_refused(client: Answers, host: str) -> None:
    """DNS rebinding: a name of the attacker's that leads to this machine."""
    for path in ("/", "/api/start"):
        answer = client(base=f"http://{host}").request("GET" if path == "/" else "POST", path)
        assert answer.status_code == 403, path


@pytest.mark.parametrize(
    "origin", ["http://evil.example", f"http://127.0.0.1:{PORT + 1}", "null", f"https://127.0.0.1:{PORT}"]
)
def test_another_origin_is_refused(client: Answers, origin: str) -> None:
    """Also with the right token, and also another port of this machine."""
    assert client(origin=origin).post("/api/start", json={}).status_code == 403
    assert client(origin=origin).get("/").status_code == 403
    preflight = client(origin=origin, **{"access-control-request-method": "POST"}).request("OPTIONS", "/api/start")
    assert preflight.status_code == 403
    assert not [name for name in preflight.headers if name.startswith("access-control")]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_request_that_the_browser_calls_foreign_is_refused(client: Answers, site: str) -> None:
    assert client(**{"sec-fetch-site": site}).post("/api/start", json={}).status_code == 403


def test_only_json_of_a_bounded_size_is_read(client: Answers) -> None:
    asked = client()
    assert asked.post("/api/start", data={"a": "b"}).status_code == 415
    assert (
        asked.post("/api/start", content=b"{}" + b" " * 2**20, headers={"content-type": "application/json"}).status_code
        == 413
    )

    async def drip() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 2**16

    answer = asked.post("/api/start", content=drip(), headers={"content-type": "application/json"})
    assert answer.status_code == 400
    for wrong in (b"", b"[]", b"nonsense", b"[" * 100_000, b'"text"'):
        answer = asked.post("/api/start", content=wrong, headers={"content-type": "application/json"})
        assert answer.status_code == 400, wrong[:10]
        assert answer.json()["error"]


def test_every_answer_tells_the_browser_to_load_nothing_from_elsewhere(client: Answers) -> None:
    asked = client()
    refused = client(token="wrong")
    for answer in (
        asked.get("/"),
        asked.get("/static/main.js"),
        asked.post("/api/start", json={}),
        asked.get("/nothing"),
        refused.post("/api/start", json={}),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_pages_are_read_only_and_hold_no_foreign_address(client: Answers) -> None:
    import gratis.studio.server as server

    asked = client()
    assert asked.post("/", json={}).status_code == 405
    assert asked.get("/static/../server.py").status_code == 404
    assert asked.get("/static/%2e%2e/server.py").status_code == 404
    for path in (Path(server.__file__).parent / "static").iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path.name
        assert "https://" not in text, path.name
        assert "innerHTML" not in text, path.name


@pytest.mark.parametrize("signed", ["é", "%C3%A9", "%F0%9F%92%B0", "%FF", "%00", "%ED%A0%80", "0" * 64])
def test_a_signature_of_any_letters_is_refused_in_a_sentence(client: Answers, signed: str) -> None:
    answer = client(token=None).get(f"/file/{signed}/wages.csv")
    assert answer.status_code == 403
    assert answer.json() == {"error": "this link is not one of this studio's"}
    assert client(token=None).get(f"/file/{signed}/%ED%A0%80%F0%9F.json").status_code == 403  # nor by any path
