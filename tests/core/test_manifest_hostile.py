"""Hostile manifests, and texts that are no manifests: a clear and quick refusal, which never quotes a password."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft_core.manifest import ManifestError, ParsedManifest, parse_manifest
from weft_core.settings import LimitSettings, Settings

SETTINGS = Settings()
MIB = 1 << 20
ALIAS_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGE_BOMB = "a: &a {k: 1}\n" + "".join(
    f"{new}: &{new} {{<<: [{','.join(['*' + old] * 9)}]}}\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def refused(text: str | bytes) -> str:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, SETTINGS)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "the manifest is empty"),
        ("\n# only a comment\n", "the manifest is empty"),
        ("null", "the manifest is empty"),
        ("- name: x", "line 1: expected a mapping ('name: …' and so on), found a list"),
        ("manifest.yml", "found plain text"),
        ("name: a\n---\nname: b", "line 2: a second YAML document"),
        ("name: caf\xe9".encode("latin-1"), "line 1: not UTF-8 text"),
        ("a: 1\nname: x".encode("utf-16"), "line 1: not UTF-8 text"),
        ("name: \ud800", "half of a surrogate pair"),
        ("name: a\0b", "a control character"),
        ('a: 1\nname: "a\\0b"', "line 2: a control character"),
        ("a:\n\tb: 1", "line 2: not valid YAML at column 1: a tab where indentation goes"),
        ("name: 'x\nb: 1", "a quote is not closed"),
        ("name: a: b", "line 1: not valid YAML at column 8"),
        ("name: x\n  learners: 2", "line 2: not valid YAML at column 11"),
        ("a: {b: 1\nc: 2", "line 2: not valid YAML"),
        ("name: @x", "line 1: not valid YAML at column 7: a value can't begin like this"),
        ("name: {{ template }}", "line 1: a mapping as a key"),
        ("? [a]\n: b", "line 1: a list as a key"),
        ("name: *x", "line 1: an alias to what is not defined before it"),
        ("name: &x", "line 1: an anchor that nothing refers to"),
        ("name: !x y", "line 1: a YAML tag, which is not accepted"),
        ("name: !!python/object/apply:os.system ['true']", "a YAML tag, which is not accepted"),
        ("name: !!binary aGVsbG8=", "a YAML tag, which is not accepted"),
        ("a: &a [*a]", "or to itself"),
        ("&a b: &c {x: *c}", "or to itself"),
        ("<<: [x]", "'<<' merges mappings, found 'x'"),
    ],
)
def test_no_manifest(text: str | bytes, words: str) -> None:
    assert words in refused(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(b"a: " + b"x" * 10_000_000, "10,000,003 bytes, accepted are 1,048,576", id="10 MB"),
        pytest.param(
            "a: " + "\u20ac" * (MIB // 3), "accepted are 1,048,576", id="too large in bytes, not in characters"
        ),
        pytest.param(ALIAS_BOMB, "every alias counts in full", id="alias bomb"),
        pytest.param(MERGE_BOMB, "every alias counts in full", id="merge bomb"),
        pytest.param("[" * (MIB - 8), "nested deeper than 24 levels", id="deep flow"),
        pytest.param("{a: " * (MIB // 5), "nested deeper than 24 levels", id="deep mappings"),
        pytest.param("- " * (MIB // 2 - 8), "nested deeper than 24 levels", id="deep blocks"),
        pytest.param("a: [" + "1," * (MIB // 2 - 8) + "]", "more than 10,000 values", id="many items"),
        pytest.param("a: 1\n" * (MIB // 6), "more than 10,000 values", id="many duplicates"),
        pytest.param("".join(f"k{n}: &a{n} x\n" for n in range(40_000)), "more than 10,000 values", id="many anchors"),
        pytest.param("".join(f"k{n}: 1\n" for n in range(4_000)), "and 3952 more problems", id="many problems"),
        pytest.param("x" * (MIB - 50) + ": 1", "not valid YAML", id="long key"),
        pytest.param("description: " + "x" * (MIB - 50), "1,048,526 characters, accepted", id="long value"),
        pytest.param(" " * (MIB - 8), "the manifest is empty", id="blanks"),
    ],
)
def test_exhausting_ones_cost_little(text: str | bytes, words: str) -> None:
    before = time.thread_time()
    assert words in refused(text)
    # At most 40 ms, and more where a large process collects its garbage just then. A bomb that goes off takes minutes.
    assert time.thread_time() - before < 10


def test_the_limit_is_the_settings() -> None:
    tight = Settings(limits=LimitSettings(manifest_bytes=20))
    with pytest.raises(ManifestError, match="accepted are 20"):
        parse_manifest("name: a\nframework: {name: python, command: x}", tight)


PASSWORD = "hunter2"
WAYS_TO_SHOW_A_PASSWORD = [
    "connection: {auth_url: x, user_name: u, password: %s}",
    "connection: {auth_url: 'http://u:%s@store', user_name: u, password: p}",
    "connection: {auth_url: %s, user_name: [%s], password: {%s: %s}}",
    "connection: {auth_url: x, user_name: u, password: half,%s}",
    "connection: {auth_url: x, password: a,%s,%s}",
    "connection: {auth_url: x, password: &%s}",
    "connection: {auth_url: x, password: *%s}",
    "connection: {auth_url: x, password: !%s x}",
    "connection: {auth_url: x, password: @%s}",
    "connection: {auth_url: x, password: '%s}",
    'connection: {auth_url: x, password: "\\%s"}',
    "connection: {auth_url: x, password: a: %s}",
    "connection: {auth_url: x, session_token: [%s]}",
    "connection: %s",
    "connection: [%s]",
    "conection: {password: %s}",
    "connection: {auth_url: x, pasword: %s}",
    "connection:\n    password: |\n      %s\n   user_name: x",
    "connection: {region: [%s], password: %s}",
]


@pytest.mark.parametrize("way", WAYS_TO_SHOW_A_PASSWORD)
def test_errors_never_show_a_password(way: str) -> None:
    text = f"name: x\nlearners: many\nframework: {{name: python, command: x}}\ndata_stores:\n- id: s\n  {way}\n"
    text = text.replace("%s", PASSWORD)
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, SETTINGS)
    assert PASSWORD not in str(caught.value) + repr(caught.value.problems)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("key", ["password", "password[0]", "password.x", "user_name", "auth_url", "pasword"])
def test_errors_never_show_a_password_that_was_set(key: str) -> None:
    overrides = {f"data_stores[0].connection.{key}": PASSWORD, "data_stores[0].connection.password.y": PASSWORD}
    text = f"name: x\nframework: {{name: python, command: x}}\ndata_stores: [{{connection: {{password: {PASSWORD}}}}}]"
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, SETTINGS, overrides=overrides)
    assert PASSWORD not in str(caught.value) + repr(caught.value.problems)


def test_errors_never_show_an_environment_value_or_a_webhook() -> None:
    text = (
        f"name: x\nframework: {{name: python, command: x}}\nenv: {{A: [{PASSWORD}], B: {PASSWORD * 9999}}}\n"
        f"secrets: {{C: '{PASSWORD}!'}}\nnotify: [{{url: 'https//hooks/{PASSWORD}'}}]"
    )
    shown = refused(text)
    assert shown.count("\n") == 3
    assert PASSWORD not in shown


VALID = """\
name: job
version: 1.0
labels: {team: vision, n: 010}
learners: 2
memory: 1Gb
framework:
  name: horovod
  command: >
    python train.py
      --epochs 2
data_stores:
  - &store
    id: cos
    connection: {auth_url: "http://s3", user_name: key, password: hunter2}
    training_data: {container: data, prefix: a/b}
  - {<<: *store, id: two}
checkpoint: {every: 5m}
env: {A: yes}
evaluation_metrics: {type: regex_extractor, groups: {g: {regex: '%{INT:x}', scalars: {a: {type: INT, value: $x}}}}}
notify: {url: 'https://example.com', on: [FAILED]}
"""
WORDS = ["null", "-1", "1e400", "...", "---", "$x", "&a", "*a", "*store", "data_stores:", "framework:"]
PIECES = st.sampled_from([*"\n \t:[]{},!'\"|>%@~\u2028é\\#(", "  ", ": ", "- ", "<<: ", *WORDS])


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """The valid manifest with a few pieces cut out, put in or moved."""
    text = VALID
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        text = text[:start] + draw(st.one_of(PIECES, st.just(""), st.just(VALID[start:end] * 2))) + text[end:]
    return text


def outcome(text: str | bytes, overrides: dict[str, str] | None = None) -> ParsedManifest | None:
    """The parser's result; None when it refused, with problems that can be shown."""
    try:
        return parse_manifest(text, SETTINGS, overrides=overrides)
    except ManifestError as error:
        problems = error.problems
    readable = text if isinstance(text, str) else text.decode("utf-8", "replace")
    lines = len(re.split("\r\n|[\n\r\x85\u2028\u2029]", readable))  # YAML's line breaks
    assert problems
    assert all(problem.message for problem in problems)
    assert all(problem.line is None or 1 <= problem.line <= lines for problem in problems)
    return None


def test_the_valid_one_is_valid() -> None:
    assert outcome(VALID) is not None


@settings(deadline=None)  # the machine may be busy
@given(mutated())
def test_whatever_stands_there_is_taken_or_refused(text: str) -> None:
    parsed = outcome(text)
    if parsed is not None:
        assert "\x00" not in parsed.manifest.model_dump_json()


@settings(deadline=None)  # the machine may be busy
@given(st.one_of(st.text(), st.binary(), st.lists(PIECES).map("".join)))
def test_any_text_is_taken_or_refused(text: str | bytes) -> None:
    outcome(text)


KEYS = st.sampled_from(["learners", "data_stores[0].id", "data_stores[2].id", "framework.name", "env.A", "labels[0]"])


@settings(deadline=None)  # the machine may be busy
@given(st.dictionaries(st.one_of(st.text(max_size=20), KEYS), st.text(max_size=20), max_size=3))
def test_anything_may_be_set_or_is_refused(overrides: dict[str, str]) -> None:
    outcome(VALID, overrides)
