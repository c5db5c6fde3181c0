"""Saved views of the list of jobs."""

from __future__ import annotations

from tests.api.conftest import Api, Person, code_of


def test_views_are_the_projects(api: Api, ann: Person, bob: Person) -> None:
    editor = api.person("editor", ann.project_id)
    viewer = api.person("viewer", ann.project_id)
    path = "/api/v1/views/Failed%20this%20week"
    assert ann.http.put(path, json={"query": "state=FAILED"}).json()["user"] == ann.name
    answer = editor.http.put(path, json={"query": "state=FAILED&since=7d"})
    assert answer.status_code == 200, answer.text
    (view,) = viewer.http.get("/api/v1/views").json()["views"]
    assert (view["name"], view["query"], view["user"]) == ("Failed this week", "state=FAILED&since=7d", editor.name)
    assert code_of(viewer.http.put(path, json={"query": ""})) == "forbidden"
    assert code_of(viewer.http.delete(path)) == "forbidden"
    assert bob.http.get("/api/v1/views").json() == {"views": []}
    assert bob.http.delete(path).status_code == 404
    assert ann.http.put("/api/v1/views/x", json={"query": "a b"}).status_code == 400
    assert ann.http.delete(path).status_code == 204
    assert ann.http.get("/api/v1/views").json() == {"views": []}
