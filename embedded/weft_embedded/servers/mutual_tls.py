"""Keys for mutual TLS between the parts of one server: each shows the same certificate, and nobody else has its key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from weft_embedded import ports
from weft_embedded.files import write_private

CA, CERTIFICATE, KEY = "tls-ca.pem", "tls.pem", "tls-key.pem"
_LIFE = timedelta(days=36_500)  # they protect nothing beyond this machine, and live as long as the folder


def make_keys(folder: Path) -> None:
    """Write an authority, a certificate of it for 127.0.0.1, and the certificate's key. The authority's own key is not
    kept, so there is never another certificate."""
    # Only here: the first start needs them, and they take a while to load.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def certificate(subject: str, key: ec.EllipticCurvePrivateKey, is_ca: bool) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("weft-ca"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))  # clocks are set back
            .not_valid_after(now + _LIFE)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )

    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    ca = certificate("weft-ca", authority, True).sign(authority, hashes.SHA256())
    signed = (
        certificate("weft", own, False)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(ports.HOST))]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(authority, hashes.SHA256())
    )
    secret = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(folder / KEY, secret.decode())
    write_private(folder / CERTIFICATE, signed.public_bytes(serialization.Encoding.PEM).decode())
    write_private(folder / CA, ca.public_bytes(serialization.Encoding.PEM).decode())
