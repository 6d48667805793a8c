"""What a federation proves itself with: a certificate authority, a server certificate, a key pair a node."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from widthwise.core.errors import InputError

T = TypeVar("T")

LOCAL = ("localhost", "127.0.0.1", "::1")
"""Names under which processes of the server's own machine reach it: in every server certificate."""

AUTHORITY_LIFE = timedelta(days=3650)
SERVER_LIFE = timedelta(days=825)
"""Apple's devices refuse server certificates that live longer."""

SLACK = timedelta(days=1)
"""Certificates are valid from the day before: clocks of devices are not exact."""

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def make_keys(folder: Path, nodes: Iterable[int], hosts: Sequence[str] = ()) -> list[Path]:
    """Write what is missing of a federation's keys, and return the files written.

    ``ca.crt`` and ``ca.key`` are the federation's own certificate authority; ``server.crt`` and
    ``server.key`` what the SuperLink shows under the names of ``hosts`` and `LOCAL`; ``node-I`` and
    ``node-I.pub`` the P-384 key pair by which Flower knows a SuperNode, in the format of OpenSSH. Files are
    readable by their owner alone, and what is there is never overwritten: the same call makes the keys of
    further nodes.

    Args:
        folder: Where the keys lie; made, for its owner alone, where missing.
        nodes: Numbers of the nodes.
        hosts: Further names and addresses of the server.

    Raises:
        InputError: if a host is neither a name nor an address, if the certificate that is there was made
            without it, if one file of a pair is gone or damaged, or if the folder cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     [path.name for path in make_keys(Path(place), nodes=[0])]
        ['ca.key', 'ca.crt', 'server.key', 'server.crt', 'node-0', 'node-0.pub']
    """
    names = [_general_name(host) for host in (*LOCAL, *hosts)]
    new: dict[str, bytes] = {}
    if _is_there(folder, "server.key", "server.crt"):
        _check_names(folder / "server.crt", names)
    else:
        if _is_there(folder, "ca.key", "ca.crt"):
            authority, root = _read_key(folder / "ca.key"), _read_certificate(folder / "ca.crt")
        else:
            authority = ec.generate_private_key(ec.SECP384R1())
            root = _authority(authority)
            new |= {"ca.key": _pem(authority), "ca.crt": _pem(root)}
        key = ec.generate_private_key(ec.SECP384R1())
        new |= {"server.key": _pem(key), "server.crt": _pem(_server(key, names, authority, root))}
    for node in nodes:
        if not _is_there(folder, f"node-{node}", f"node-{node}.pub"):
            pair = ec.generate_private_key(ec.SECP384R1())
            new |= {f"node-{node}": _openssh(pair), f"node-{node}.pub": _openssh(pair.public_key())}
    _write(folder, new)
    return [folder / name for name in new]


def _is_there(folder: Path, private: str, public: str) -> bool:
    """Say whether a pair is there; half a pair is an error, and two files that are none, as after a crash."""
    found = [(folder / name).exists() for name in (private, public)]
    if found[0] != found[1]:
        here, gone = (private, public) if found[0] else (public, private)
        raise InputError(
            f"{str(folder / here)!r} is there, but {gone} is not, and the two belong together. "
            f"Put {gone} back, or remove {here} to have both made anew."
        )
    if all(found) and _read_key(folder / private).public_key() != _read_public(folder / public):
        raise InputError(
            f"{public} in {str(folder)!r} is not the public half of {private}, but the two belong together. "
            "Put back what was made, or remove both to have them made anew."
        )
    return all(found)


def _general_name(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ip_address(host))
    if not _HOST.fullmatch(host):
        raise InputError(
            f"host is {host!r}, but it is neither a name nor an address. Write it like server.example.org or "
            "192.0.2.7, without a port."
        )
    return x509.DNSName(host)


def _check_names(file: Path, names: list[x509.GeneralName]) -> None:
    known = _read_certificate(file).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    for name in names:
        if name not in known:
            raise InputError(
                f"host is {str(name.value)!r}, but {str(file)!r} was made without it and is never "
                "overwritten. Remove server.crt and server.key, and give all hosts again; nodes keep theirs."
            )


def _read_key(file: Path) -> ec.EllipticCurvePrivateKey:
    """Return a private key, of PEM or, without a suffix as ``ssh-keygen`` names them, of OpenSSH."""
    load = serialization.load_pem_private_key if file.suffix else serialization.load_ssh_private_key
    key = _read(file, lambda content: load(content, None))
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _is_none(file, "key")
    return key


def _read_public(file: Path) -> object:
    """Return the public key of a certificate, or of a line of OpenSSH."""
    if file.suffix == ".crt":
        return _read_certificate(file).public_key()
    return _read(file, serialization.load_ssh_public_key)


def _read_certificate(file: Path) -> x509.Certificate:
    certificate = _read(file, x509.load_pem_x509_certificate)
    if certificate is None:
        raise _is_none(file, "certificate")
    return certificate


def _read(file: Path, load: Callable[[bytes], T]) -> T | None:
    """Return what a file holds, None where it does not."""
    try:
        return load(file.read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _is_none(file: Path, what: str) -> InputError:
    return InputError(
        f"{file.name} is {str(file)!r}, but that holds no {what}. "
        "Put back what was made, or remove both files of the pair to have them made anew."
    )


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """Return the certificate that a new authority gives itself; it signs servers and nothing below them."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "widthwise federation")])
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    )
    return (
        _valid(x509.CertificateBuilder().subject_name(name).issuer_name(name), key, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
                **usage,
            ),
            critical=True,
        )
        .sign(key, hashes.SHA384())
    )


def _server(
    key: ec.EllipticCurvePrivateKey,
    names: list[x509.GeneralName],
    authority: ec.EllipticCurvePrivateKey,
    root: x509.Certificate,
) -> x509.Certificate:
    """Return a certificate for a server under ``names``, signed by ``authority``."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "widthwise SuperLink")])
    identifier = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _valid(x509.CertificateBuilder().subject_name(subject).issuer_name(root.subject), key, SERVER_LIFE)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .sign(authority, hashes.SHA384())
    )


def _valid(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, life: timedelta
) -> x509.CertificateBuilder:
    """Return a builder with the key's public half, a serial number and a period of validity."""
    now = datetime.now(UTC)
    return (
        builder.public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now - SLACK + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _pem(thing: ec.EllipticCurvePrivateKey | x509.Certificate) -> bytes:
    if isinstance(thing, x509.Certificate):
        return thing.public_bytes(serialization.Encoding.PEM)
    return thing.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _openssh(key: ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey) -> bytes:
    if isinstance(key, ec.EllipticCurvePublicKey):
        line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return line + b"\n"
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def _write(folder: Path, new: dict[str, bytes]) -> None:
    """Write files that are not there yet, all or none."""
    written: list[Path] = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in new.items():
            with open(folder / name, "xb", opener=_private) as file:
                written.append(folder / name)
                file.write(content)
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(
                f"keys cannot be written to {str(folder)!r} ({error.strerror}), but they must be. "
                "Choose a folder that can be written."
            ) from error
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # so from its first byte on
