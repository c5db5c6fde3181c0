"""Git repositories: which commit a branch or tag is, by git's HTTP protocol (gitprotocol-http), without git itself."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from weft_core.outgoing import Answer, NoAnswer, NotAllowed, Outgoing

COMMIT = re.compile(r"[0-9a-f]{40}")
_SERVICE = "git-upload-pack"
_USER = "x-access-token"
"""The user name beside a token: GitHub requires this one; other servers accept any."""


class RepositoryError(Exception):
    """A repository can't be read. The message is for the user.

    Attributes:
        of_ref: whether only its branch or tag is missing.
        detail: for the service's own log.
    """

    def __init__(self, message: str, detail: str = "", *, of_ref: bool = False) -> None:
        super().__init__(message)
        self.of_ref = of_ref
        self.detail = detail


def split_credentials(secret: str) -> tuple[str, str]:
    """User and password of a secret, which is ``user:password`` or a token."""
    user, colon, password = secret.strip().partition(":")
    return (user, password) if colon else (_USER, user)


def authorization(secret: str) -> str:
    """The value of the header ``Authorization`` for a secret."""
    return "Basic " + base64.b64encode(":".join(split_credentials(secret)).encode()).decode()


def find_commit(outgoing: Outgoing, url: str, ref: str | None, secret: str | None) -> str:
    """The commit that ``ref`` means now.

    Args:
        url: of the repository, without credentials.
        ref: a branch, a tag or a whole commit id, which is taken as it is; None: HEAD.
        secret: ``user:password`` or a token.

    Raises:
        RepositoryError: the repository can't be read, or has no such ref.
    """
    try:
        if ref and COMMIT.fullmatch(ref):
            outgoing.check(url)  # learners are to call it
            return ref
        headers = {"User-Agent": "git/2.0 (weft)", "Accept": "*/*"}
        if secret:
            headers["Authorization"] = authorization(secret)
        with outgoing.get(f"{url.rstrip('/')}/info/refs?service={_SERVICE}", headers) as answer:
            _check(answer)
            return _search(answer, ref)
    except NotAllowed as error:
        raise RepositoryError(str(error), error.detail) from None
    except NoAnswer as error:
        raise RepositoryError("it does not answer as a git repository", str(error)) from None


def _check(answer: Answer) -> None:
    if answer.status in (401, 403, 404, 410):
        message = "it does not exist or is private (`repo.secret` names a secret with `user:password` or a token)"
        raise RepositoryError(message, f"status {answer.status}")
    if 300 <= answer.status < 400:
        message = "its server points to another address, which is not followed: write the final one, often with .git"
        raise RepositoryError(message, f"status {answer.status}")
    if answer.status != 200 or answer.content_type != f"application/x-{_SERVICE}-advertisement":
        raise NoAnswer(f"status {answer.status}, {answer.content_type[:100]!r}")


def _search(answer: Answer, ref: str | None) -> str:
    wanted = [f"refs/heads/{ref}", f"refs/tags/{ref}", f"refs/tags/{ref}^{{}}"] if ref and ref != "HEAD" else ["HEAD"]
    if ref and ref.startswith("refs/"):
        wanted = [ref, f"{ref}^{{}}"]
    found: dict[str, str] = {}
    for commit, name in _refs(answer):
        if name in wanted:
            found[name] = commit
        if name == wanted[0] and not name.startswith("refs/tags/"):
            break  # a branch: what comes after it does not matter
    if wanted[0] in found and not wanted[0].startswith("refs/tags/"):
        return found[wanted[0]]
    # An annotated tag is followed by its commit.
    for name in reversed(wanted):
        if name in found:
            return found[name]
    whole = "; a commit id must be whole, 40 digits" if ref and re.fullmatch(r"[0-9a-f]{4,64}", ref) else ""
    raise RepositoryError(f"it has no branch or tag {ref!r}{whole}" if ref else "it has no commit yet", of_ref=True)


def _refs(answer: Answer) -> Iterator[tuple[str, str]]:
    """The commit and the name of every ref, in the server's order. Raises: NoAnswer."""
    if _line(answer) != f"# service={_SERVICE}" or _line(answer) is not None:
        raise NoAnswer("not the beginning of git's answer")
    while (line := _line(answer)) is not None:
        commit, _, name = line.partition("\0")[0].partition(" ")
        if not COMMIT.fullmatch(commit):
            raise NoAnswer(f"not a ref: {line[:100]!r}")
        yield commit, name


def _line(answer: Answer) -> str | None:
    """A line with its length in front of it (pkt-line); None: the end of a list."""
    try:
        length = int(answer.read(4), 16)
    except ValueError:
        raise NoAnswer("not git's form of a line") from None
    if length == 0:
        return None
    if length < 4:
        raise NoAnswer(f"a line of length {length}")
    return answer.read(length - 4).decode(errors="replace").rstrip("\n")
