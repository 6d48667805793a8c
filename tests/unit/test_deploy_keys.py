"""Certificates and keys: what TLS and Flower make of them, and that nothing is ever overwritten."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from widthwise.core.errors import InputError
from widthwise.deploy.keys import make_keys

HOST = "server.example.org"


def handshake(server: Path, authority: Path, name: str) -> None:
    """Shake hands in memory: a client that trusts ``authority`` calls ``server`` by ``name``."""
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(server / "server.crt", server / "server.key")
    here = ssl.create_default_context(cafile=str(authority / "ca.crt"))
    here.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of later versions of Python
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = here.wrap_bio(down, up, server_hostname=name)
    answering = there.wrap_bio(up, down, server_side=True)
    for side in (client, answering, client, answering):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "keys"
    make_keys(folder, range(2), [HOST, "192.0.2.7"])
    return folder


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", HOST, "192.0.2.7"])
def test_server_is_trusted_under_each_of_its_names(keys: Path, name: str) -> None:
    handshake(keys, keys, name)


def test_server_is_refused_under_another_name(keys: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="other\\.example\\.org"):
        handshake(keys, keys, "other.example.org")


def test_server_of_another_federation_is_refused(keys: Path, tmp_path: Path) -> None:
    make_keys(tmp_path, [])
    with pytest.raises(ssl.SSLCertVerificationError, match=r"certificate verify failed"):
        handshake(tmp_path, keys, "localhost")


def test_nodes_have_pairs_of_the_curve_and_in_the_format_that_flower_wants(keys: Path) -> None:
    seen = set()
    for number in range(2):
        private = load_ssh_private_key((keys / f"node-{number}").read_bytes(), None)
        public = load_ssh_public_key((keys / f"node-{number}.pub").read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert isinstance(public, ec.EllipticCurvePublicKey)
        assert isinstance(private.curve, ec.SECP384R1)
        assert private.public_key().public_numbers() == public.public_numbers()
        seen.add(public.public_numbers().x)
    assert len(seen) == 2


def test_files_are_for_their_owner_alone(keys: Path) -> None:
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()}
    assert modes == dict.fromkeys(modes, 0o600)


def test_a_second_call_makes_what_is_missing_and_touches_nothing_else(tmp_path: Path) -> None:
    make_keys(tmp_path, range(2), [HOST])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    new = make_keys(tmp_path, range(3))
    assert [path.name for path in new] == ["node-2", "node-2.pub"]
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_a_new_server_certificate_is_of_the_same_authority(tmp_path: Path) -> None:
    make_keys(tmp_path, [0])
    with pytest.raises(InputError, match=rf"host is '{HOST}', but .* Remove server.crt and server.key"):
        make_keys(tmp_path, [0], [HOST])
    for name in ("server.crt", "server.key"):
        (tmp_path / name).unlink()
    assert [path.name for path in make_keys(tmp_path, [0], [HOST])] == ["server.key", "server.crt"]
    handshake(tmp_path, tmp_path, HOST)


@pytest.mark.parametrize("host", ["", "a b", "https://server", "server:8000", "-x", "x..y"])
def test_a_host_that_is_none_is_refused_and_nothing_is_written(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="is neither a name nor an address"):
        make_keys(tmp_path / "keys", [0], [host])
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize(
    ("gone", "here"), [("ca.key", "ca.crt"), ("server.crt", "server.key"), ("node-0", "node-0.pub")]
)
def test_half_a_pair_is_refused_and_nothing_is_written(tmp_path: Path, gone: str, here: str) -> None:
    make_keys(tmp_path, [0])
    (tmp_path / gone).unlink()
    if gone == "ca.key":  # needed for a new server certificate alone
        (tmp_path / "server.key").unlink()
        (tmp_path / "server.crt").unlink()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=rf"{here}' is there, but {gone} is not"):
        make_keys(tmp_path, [0, 1])
    assert sorted(tmp_path.iterdir()) == before


def test_a_damaged_authority_is_named(tmp_path: Path) -> None:
    make_keys(tmp_path, [])
    (tmp_path / "ca.key").write_bytes(b"not a key")
    (tmp_path / "server.key").unlink()
    (tmp_path / "server.crt").unlink()
    with pytest.raises(InputError, match=r"ca\.key', but that holds no key"):
        make_keys(tmp_path, [])


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter(range(3))
    really = os.open

    def full(path: str, flags: int, mode: int) -> int:
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        return really(path, flags, mode)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(InputError, match=r"keys cannot be written .*No space left"):
        make_keys(tmp_path / "keys", [0])
    assert list((tmp_path / "keys").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("node-0", b"", r"node-0', but that holds no key"),
        ("node-0.pub", b"", r"node-0.pub in .* is not the public half of node-0"),
        ("server.key", b"-----BEGIN PRIVATE KEY-----\nMIG2", r"server\.key', but that holds no key"),
        ("server.crt", b"", r"server\.crt', but that holds no certificate"),
    ],
)
def test_half_written_files_are_named_and_nothing_is_written(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    make_keys(tmp_path, [0])
    (tmp_path / name).write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=rf"{message}.* remove both"):
        make_keys(tmp_path, [0, 1])
    assert sorted(tmp_path.iterdir()) == before


def test_halves_of_two_pairs_are_refused(tmp_path: Path) -> None:
    make_keys(tmp_path, range(2))
    (tmp_path / "node-1.pub").write_bytes((tmp_path / "node-0.pub").read_bytes())
    with pytest.raises(InputError, match=r"node-1\.pub in .* is not the public half of node-1, but"):
        make_keys(tmp_path, range(2))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    make_keys(tmp_path, [0])
    (tmp_path / "node-0").unlink()
    (tmp_path / "node-0").mkdir()
    with pytest.raises(InputError, match=r"node-0', but that holds no key"):
        make_keys(tmp_path, [0])


def test_a_pair_of_ssh_keygen_is_one(tmp_path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(tmp_path / "node-0")]
    if shutil.which(command[0]) is None:
        pytest.skip("ssh-keygen is not installed")
    subprocess.run(command, check=True)
    assert "node-0" not in [path.name for path in make_keys(tmp_path, [0])]
