"""A user's S3 store: the requests that a learner needs, signed here, over connections that are kept alive."""

from __future__ import annotations

import builtins
import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus, urlsplit

from weft_trainer.errors import DataError
from weft_trainer.http import Answer, Http, Take, Unreachable
from weft_trainer.spec import S3Location
from weft_trainer.stores.retry import Temporary
from weft_trainer.stores.s3_errors import EXPIRED, Refusal, explain, reachable, read_refusal
from weft_trainer.stores.sigv4 import EMPTY, UNSIGNED, Signer, quoted_path, quoted_query
from weft_trainer.stores.store import Multipart, Stored
from weft_trainer.stores.temporary_keys import KeyFile

if TYPE_CHECKING:
    from xml.etree import ElementTree

READ_TIMEOUT = 30.0
"""Seconds without a byte after which a request is tried again."""
_HOSTED = (".amazonaws.com", ".amazonaws.com.cn", ".aliyuncs.com", ".myqcloud.com")
"""Stores that require the bucket in the host's name. All others get the path style."""


class S3Store:
    """The objects under a location's prefix, by keys relative to it. Thread-safe. Raises: DataError."""

    def __init__(self, location: S3Location) -> None:
        self.location = location
        self._base = location.prefix + "/" if location.prefix else ""
        self._scheme, self._host, self._path = _place(location)
        self._key_file = KeyFile(location.key_file) if location.key_file else None
        self._signer = Signer(
            location.access_key, location.secret_key, location.session_token, location.region or "us-east-1"
        )
        self._http = Http(location.ca)

    def _newest_signer(self) -> Signer:
        """With the newest keys, where these are temporary. Raises: DataError."""
        if self._key_file is None:
            return self._signer
        try:
            keys = self._key_file.current()
        except (OSError, ValueError, TypeError) as error:
            raise Temporary(f"the keys of {self.location.endpoint} can't be read: {error}") from error
        signer = self._signer
        if signer.session_token != keys.session_token:
            self._signer = signer = Signer(
                keys.access_key, keys.secret_key, keys.session_token, signer.region, signer.skew
            )
        return signer

    def resolve(self) -> None:
        """Look the store's name up. Raises: DataError."""
        try:
            self._http.resolve(f"{self._scheme}://{self._host}")
        except Unreachable as error:
            raise reachable(error, self.location, f"'{self.location.container}' is out of reach") from error

    # --- reading ---

    def list(self, prefix: str = "") -> builtins.list[Stored]:
        return [stored for page in self.pages(prefix) for stored in page]

    def pages(self, prefix: str = "", ask: Ask = lambda request: request()) -> Iterator[builtins.list[Stored]]:
        """All objects in order of key, a thousand at a time. While the caller works on a page, the next page is on its
        way. ``ask`` makes a page's request, and may make it again."""

        def page(token: str) -> bytes:
            query = {"list-type": "2", "prefix": self._base + prefix, "encoding-type": "url"}
            if token:
                query["continuation-token"] = token
            return self._request("listed", "GET", None, query).body

        with ThreadPoolExecutor(1, "page") as ahead:
            coming: Future[bytes] | None = ahead.submit(ask, partial(page, ""))
            while coming is not None:
                body = coming.result()
                try:
                    token = next_page(body)
                    coming = ahead.submit(ask, partial(page, token)) if token else None
                    found = _listing(body, len(self._base))
                except (SyntaxError, ValueError, TypeError, KeyError, AttributeError) as error:
                    raise DataError(f"{self.location.endpoint} answers a listing with no listing: {error}") from None
                yield found

    def head(self, key: str) -> Stored | None:
        answer = self._request("looked at", "HEAD", key, missing_ok=True)
        if answer.status == 404:
            return None
        headers = answer.headers
        modified = headers.get("last-modified")
        return Stored(
            key,
            int(headers.get("content-length", 0)),
            headers.get("etag", "").strip('"'),
            parsedate_to_datetime(modified).timestamp() if modified else None,
        )

    def read(self, key: str) -> bytes | None:
        answer = self._request("read", "GET", key, missing_ok=True)
        return None if answer.status == 404 else answer.body

    def fetch(self, key: str, path: Path) -> None:
        with path.open("wb") as file:
            self._request("downloaded", "GET", key, take=file.write)

    def fetch_range(self, stored: Stored, start: int, end: int, take: Take) -> None:
        """The bytes from ``start`` to before ``end`` of the very object that was listed. Bytes that came before a
        failure were taken, so the next call may begin after them.

        Raises:
            DataError: among others if it is not that object any more.
        """
        headers = {"If-Match": f'"{stored.etag}"'} if stored.etag else {}
        whole = start == 0 and end == stored.size
        if not whole:
            headers["Range"] = f"bytes={start}-{end - 1}"
        answer = self._request("downloaded", "GET", stored.key, headers=headers, take=take)
        # Not every store heeds If-Match, or Range.
        etag = answer.headers.get("etag", "").strip('"')
        if stored.etag and etag and etag != stored.etag:
            raise DataError(f"{self._where(stored.key)} can't be downloaded: {_REPLACED}")
        length = int(answer.headers.get("content-length", end - start))
        if length != end - start or (not whole and answer.status != 206):
            raise DataError(
                f"{self._where(stored.key)} can't be downloaded: asked for {end - start:,} bytes, {length:,} came"
            )

    def presigned(self, key: str, seconds: int) -> str:
        """A URL by which anybody may read the object for so long."""
        url, path = self._url(key)
        return f"{url}?{self._newest_signer().presigned(self._host, path, seconds)}"

    def unsigned(self, key: str) -> str:
        """The object's URL without a signature."""
        return self._url(key)[0]

    def _url(self, key: str) -> tuple[str, str]:
        """The object's URL, and its quoted path."""
        path = self._path + quoted_path("/" + self._base + key)
        return f"{self._scheme}://{self._host}{path}", path

    # --- writing ---

    def announce(self, keys: Sequence[str]) -> None:
        """Nothing to prepare: requests are signed here."""

    def put_file(self, key: str, path: Path) -> None:
        self.put_bytes(key, path.read_bytes())

    def put_bytes(self, key: str, data: bytes) -> None:
        self._request("stored", "PUT", key, body=data)

    def begin_multipart(self, key: str) -> Multipart:
        answer = self._request("stored", "POST", key, {"uploads": ""})
        return Multipart(key, _text(answer, "UploadId"))

    def put_part(self, upload: Multipart, number: int, data: bytes) -> str:
        query = {"partNumber": str(number), "uploadId": upload.id}
        return self._request("stored", "PUT", upload.key, query, body=data).headers.get("etag", "")

    def complete_multipart(self, upload: Multipart, etags: Sequence[str]) -> None:
        body = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>" for number, etag in enumerate(etags, 1)
        )
        document = f'<CompleteMultipartUpload xmlns="{_NAMESPACE}">{body}</CompleteMultipartUpload>'.encode()
        answer = self._request("stored", "POST", upload.key, {"uploadId": upload.id}, body=document)
        if b"<Error" in answer.body[:1000]:  # S3 may say 200 first and fail then
            raise Temporary(f"{self._where(upload.key)} can't be stored: {read_refusal(answer).code}")

    def abort_multipart(self, upload: Multipart) -> None:
        self._request("stored", "DELETE", upload.key, {"uploadId": upload.id}, missing_ok=True)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:  # DeleteObjects wants a checksum header that not every store takes
            self._request("deleted", "DELETE", key, missing_ok=True)

    # --- one request ---

    def _request(
        self,
        done: str,
        method: str,
        key: str | None,
        query: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        take: Take | None = None,
        missing_ok: bool = False,
    ) -> Answer:
        """``done`` is the verb of an error: 'can't be read'. Raises: DataError."""
        what = f"{self._where(key or '')} can't be {done}"
        path = self._path + quoted_path("/" + self._base + key if key is not None else "/")
        asked = quoted_query(query or {})
        payload = EMPTY if body is None else hashlib.sha256(body).hexdigest() if self._scheme == "http" else UNSIGNED
        url = f"{self._scheme}://{self._host}{path}" + ("?" + asked if asked else "")
        for attempt in range(3):
            sent = self._newest_signer().headers(method, self._host, path, asked, payload) | dict(headers or {})
            if body is None and method in ("PUT", "POST"):
                sent["Content-Length"] = "0"
            try:
                answer = self._http.request(method, url, body=body, headers=sent, timeout=READ_TIMEOUT, take=take)
            except Unreachable as error:
                raise reachable(error, self.location, what) from error
            if answer.status < 300 or (missing_ok and answer.status == 404 and _only_key(answer, method)):
                return answer
            refusal = read_refusal(answer)
            if attempt == 2 or not self._adapted(refusal, answer):
                raise explain(refusal, self.location, what)
        raise AssertionError("the last round returns or raises")

    def _adapted(self, refusal: Refusal, answer: Answer) -> bool:
        """Whether the store has said by which region or clock it would take the same request."""
        signer = self._signer
        if refusal.region and refusal.region != signer.region and self.location.region is None:
            self._signer = Signer(signer.access_key, signer.secret_key, signer.session_token, refusal.region)
            return True
        if refusal.code in EXPIRED and self._key_file is not None:
            # The agent will have renewed the keys in a moment; the caller comes again.
            raise Temporary(f"{self.location.endpoint} says that the keys have expired")
        if refusal.code == "RequestTimeTooSkewed" and (date := answer.headers.get("date")):
            theirs, ours = parsedate_to_datetime(date).timestamp(), time.time()
            self._signer = Signer(
                signer.access_key, signer.secret_key, signer.session_token, signer.region, theirs - ours
            )
            return True
        return False

    def _where(self, key: str) -> str:
        return f"{self.location.container}/{self._base}{key}"


Ask = Callable[[Callable[[], bytes]], bytes]
_TRUNCATED = re.compile(rb"<IsTruncated>(true|false)</IsTruncated>")
_TOKEN = re.compile(rb"<NextContinuationToken>([^<&]+)</NextContinuationToken>")
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_REPLACED = "it was replaced while it was being downloaded"


def _place(location: S3Location) -> tuple[str, str, str]:
    """Scheme, host and quoted path of the bucket. Raises: DataError."""
    try:
        parts = urlsplit(location.endpoint)
        host, _ = parts.hostname or "", parts.port  # reading the port checks it
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        raise DataError(f"'{location.endpoint}' is no S3 endpoint: expected http:// or https:// and a host")
    netloc = parts.netloc.rpartition("@")[2].lower()
    default = {"http": ":80", "https": ":443"}[parts.scheme]
    netloc = netloc.removesuffix(default)  # signed without it, so sent without it
    base = quoted_path(parts.path.rstrip("/"))
    bucket = location.bucket
    named = host.endswith(_HOSTED) and bucket.islower() and "_" not in bucket
    if named and not (parts.scheme == "https" and "." in bucket):  # no certificate has such a host
        return parts.scheme, netloc if host.startswith(bucket + ".") else f"{bucket}.{netloc}", base
    return parts.scheme, netloc, f"{base}/{quoted_path(bucket)}"


def _only_key(answer: Answer, method: str) -> bool:
    """Whether a 404 is about the object, or the upload, and not about the bucket."""
    return method == "HEAD" or read_refusal(answer).code in ("NoSuchKey", "NoSuchUpload", "NotFound", "404", "")


def next_page(body: bytes) -> str | None:
    """The token that asks for the next page, found without parsing the whole page. Raises: as :func:`_listing`."""
    truncated, token = _TRUNCATED.search(body), _TOKEN.search(body)
    if truncated and (truncated[1] == b"false" or token):
        return token[1].decode() if token and truncated[1] == b"true" else None
    root, space = _document(body)  # another spelling of the same document
    return (
        root.findtext(space + "NextContinuationToken") if root.findtext(space + "IsTruncated") == "true" else None
    ) or None


def _document(body: bytes) -> tuple[ElementTree.Element, str]:
    """A listing, and the name space of its elements. Raises: SyntaxError: the body is no XML; ValueError."""
    from xml.etree import ElementTree  # 4 ms; most learners list nothing

    root = ElementTree.fromstring(body)  # noqa: S314 - expat itself bounds what entities may grow to
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    if root.tag != space + "ListBucketResult":
        raise ValueError(f"a document <{root.tag.removeprefix(space)}>")
    return root, space


def _listing(body: bytes, cut: int) -> list[Stored]:
    root, space = _document(body)
    encoded = root.findtext(space + "EncodingType") == "url"
    found = []
    for element in root.iterfind(space + "Contents"):
        field = {child.tag: child.text for child in element}
        key = field[space + "Key"] or ""
        found.append(
            Stored(
                (unquote_plus(key) if encoded else key)[cut:],
                int(field[space + "Size"] or 0),
                (field.get(space + "ETag") or "").strip('"'),
                _moment(field[space + "LastModified"] or ""),
            )
        )
    return found


def _moment(text: str) -> float:
    """``2026-01-31T08:00:00.000Z`` in whole seconds, as HEAD gives them, too."""
    return datetime.fromisoformat(text[:19] + "+00:00").timestamp()


def _text(answer: Answer, wanted: str) -> str:
    from xml.etree import ElementTree  # as in _document

    try:
        for element in ElementTree.fromstring(answer.body).iter():  # noqa: S314
            if _name(element) == wanted and element.text:
                return element.text
    except ElementTree.ParseError:
        pass
    raise Temporary(f"the store's answer has no {wanted}")


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
