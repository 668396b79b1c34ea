"""TLS certificates of the farm: a private certificate authority, and one key per host."""

import datetime
import ipaddress
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from nearpeak.base.folders import data_folder, why_shared
from nearpeak.errors import MissingExtraError, SpecError

DAYS = 365
"""How long a certificate is valid."""
CA, CA_KEY = "ca.pem", "ca-key.pem"
_OWN_DAYS = 3650
"""How long the certificate of a user on the own host is valid: its key never leaves the user's folder."""


def make(folder: Path, hosts: list[str], days: int = DAYS) -> tuple[Path, ...]:
    """Make the authority if it is not there, and a certificate with its key for each host; return the new files.

    The authority's key stays where it was made. Each host gets `ca.pem`, `HOST.pem` and `HOST-key.pem`, whose keys
    nobody else may read (mode 600). Every certificate of the authority is a full credential of the farm.

    Raises:
        SpecError: a host's name is no name or address, it has a certificate already, or others can change the folder.
    """
    try:
        from cryptography import x509
    except ImportError:
        raise MissingExtraError("farm tls: needs cryptography; pip install 'nearpeak[farm]'") from None
    for host in hosts:
        if not host or any(character in host for character in "/\\\0 ") or len(host) > 200 or host.startswith("."):
            raise SpecError(f"--host {host!r}: is neither a name nor an address")
        if (folder / f"{host}.pem").exists():
            raise SpecError(f"{folder / f'{host}.pem'}: is there already; remove it to make another")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if why := why_shared(folder):
        raise SpecError(f"{folder}: {why}")
    made = [] if (folder / CA).exists() else _authority(x509, folder, days)
    for host in hosts:
        made += _host(x509, folder, host, days)
    return tuple(made)


def own_folder() -> Path:
    """Return the folder of the certificate that the user's processes on this host show each other; makes it if absent.

    Its authority signed this one certificate, and its key was then thrown away.

    Raises:
        SpecError: the folder cannot be made.
    """
    folder = data_folder() / "farm-loopback"
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".nearpeak-") as place:
            part = Path(place) / "tls"
            make(part, ["localhost"], _OWN_DAYS)
            (part / CA_KEY).unlink()
            part.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # else another process was quicker
            raise SpecError(f"{folder}: cannot be made: {error.strerror}; name certificates by --tls") from None
    return folder


def files_in(folder: Path) -> tuple[Path, Path, Path]:
    """Return authority, certificate and key of this host in a folder.

    Raises:
        SpecError: the folder holds no authority, or not one certificate that is this host's, or others can change it.
    """
    if not (folder / CA).is_file():
        raise SpecError(f"--tls {folder}: holds no {CA}; 'nearpeak farm tls {folder} --host NAME' makes certificates")
    pairs = [p for p in sorted(folder.glob("*.pem")) if p.name != CA and (folder / f"{p.stem}-key.pem").is_file()]
    matches = [path for path in pairs if path.stem == platform.node()]
    chosen = matches or pairs
    if len(chosen) != 1:
        listed = ", ".join(path.stem for path in pairs) or "none"
        raise SpecError(
            f"--tls {folder}: it must hold one certificate, or one of {platform.node()}; there are: {listed}"
        )
    key = folder / f"{chosen[0].stem}-key.pem"
    if key.stat().st_mode & 0o077:
        raise SpecError(f"{key}: others may read it; chmod 600 {key}")
    for path in (folder, folder / CA, chosen[0], key):  # whoever puts another authority there is let in
        if why := why_shared(path):
            raise SpecError(f"{path}: {why}")
    return folder / CA, chosen[0], key


def _authority(x509: Any, folder: Path, days: int) -> list[Path]:
    key, name = _new_key(), _named(x509, "nearpeak farm authority")
    made = _begun(x509, name, name, key.public_key(), 10 * days)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = made.add_extension(_usage(x509, signs=True), critical=True)
    return _written(folder, "ca", key, _signed(made, key))


def _host(x509: Any, folder: Path, host: str, days: int) -> list[Path]:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if not (folder / CA_KEY).is_file():
        raise SpecError(f"{folder / CA_KEY}: the authority's key is not here; certificates are made where it is")
    authority = x509.load_pem_x509_certificate((folder / CA).read_bytes())
    signer = load_pem_private_key((folder / CA_KEY).read_bytes(), password=None)
    key = _new_key()
    made = _begun(x509, authority.subject, _named(x509, host), key.public_key(), days)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    made = made.add_extension(_usage(x509, signs=False), critical=True)
    both = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH])
    made = made.add_extension(both, critical=False)
    made = made.add_extension(x509.SubjectAlternativeName([_alternative(x509, host)]), critical=False)
    return _written(folder, host, key, _signed(made, signer))


def _alternative(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _begun(x509: Any, issuer: Any, subject: Any, public_key: Any, days: int) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _named(x509: Any, name: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name[:64])])


def _usage(x509: Any, *, signs: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _signed(made: Any, key: Any) -> Any:
    from cryptography.hazmat.primitives import hashes

    return made.sign(key, hashes.SHA256())


def _written(folder: Path, stem: str, key: Any, certificate: Any) -> list[Path]:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    secret, public = folder / f"{stem}-key.pem", folder / f"{stem}.pem"
    file = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(text)
    public.write_bytes(certificate.public_bytes(Encoding.PEM))
    return [public, secret]
