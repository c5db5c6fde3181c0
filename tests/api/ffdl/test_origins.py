"""FfDL's own web page calls the API from the browser, from an origin of its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from pydantic import ValidationError
from tests.api.conftest import Api, Person

from weft_core.settings import ApiSettings, Settings

PAGE = "https://ffdl.example.org"
CALL = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
ASKED = "authorization,x-watson-authorization-token,x-watson-userinfo"


@pytest.fixture(scope="module")
def open_api(api_settings: Settings) -> Iterator[Api]:
    section = ApiSettings(ffdl_origins=["http://localhost:4200", PAGE])
    running = Api(api_settings.model_copy(update={"api": section}))
    yield running
    running.stop()


def preflight(http: httpx.Client, origin: str, method: str = "GET", path: str = "/v1/models") -> httpx.Response:
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": ASKED}
    return http.options(path, headers={**CALL, "Origin": origin, **asked})


def test_ffdls_page_is_let_in(open_api: Api) -> None:
    ann = open_api.person()
    anyone = open_api.client()
    for method in ("GET", "POST", "PATCH", "DELETE"):
        answer = preflight(anyone, PAGE, method)
        assert answer.status_code == 200, answer.text
        assert answer.headers["access-control-allow-origin"] == PAGE, "exactly this one, not any"
        assert method in answer.headers["access-control-allow-methods"]
        allowed = answer.headers["access-control-allow-headers"].lower().replace(" ", "").split(",")
        assert set(ASKED.split(",")) <= set(allowed)
        assert "access-control-allow-credentials" not in answer.headers
    # As the page signs in: the user's name is a token, the password is "dummy".
    page = {**CALL, "X-Watson-Userinfo": f"bluemix-instance-id={ann.token}", "X-Watson-Authorization-Token": "abcdef"}
    answer = httpx.get(f"{open_api.url}/v1/models", headers=page, auth=(ann.token, "dummy"))
    assert (answer.status_code, answer.json()) == (200, {"models": []})
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["vary"] == "Origin", "a cache must not give it to another page"
    assert "Location" in answer.headers["access-control-expose-headers"]
    # An error can be read as well.
    answer = httpx.get(f"{open_api.url}/v1/models", headers=CALL)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, PAGE)


@pytest.mark.parametrize(
    "origin", ["https://ffdl.example.org.evil.net", "http://ffdl.example.org", "https://ffdl.example.org:8443", "null"]
)
def test_no_other_page(open_api: Api, origin: str) -> None:
    ann = open_api.person()
    assert "access-control-allow-origin" not in preflight(open_api.client(), origin).headers
    answer = httpx.get(f"{open_api.url}/v1/models", headers={**CALL, "Origin": origin}, auth=(ann.token, "dummy"))
    assert answer.status_code in (401, 403)
    assert "access-control-allow-origin" not in answer.headers


def test_only_ffdls_api(open_api: Api) -> None:
    ann = open_api.person()
    answer = ann.http.get("/api/v1/jobs", headers=CALL)
    assert "access-control-allow-origin" not in answer.headers
    assert "access-control-allow-origin" not in preflight(open_api.client(), PAGE, path="/api/v1/jobs").headers


def test_off_unless_it_is_set(api: Api, ann: Person) -> None:
    assert "access-control-allow-origin" not in preflight(api.client(), PAGE).headers
    answer = httpx.get(f"{api.url}/v1/models", headers=CALL, auth=(ann.token, "dummy"))
    assert answer.status_code in (401, 403)


@pytest.mark.parametrize(
    "origin", ["*", "https://*.example.org", "https://x.org/", "x.org", "null", "https://X.org", ""]
)
def test_origins_are_exact(origin: str) -> None:
    with pytest.raises(ValidationError, match="expected origins as browsers write them"):
        ApiSettings(ffdl_origins=[origin])
