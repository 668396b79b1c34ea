"""Who has no certificate of the farm's own authority, or an expired one, gets nothing from its scheduler."""

import stat

import pytest

from nearpeak.errors import MeasureError, SpecError
from nearpeak.farm.certificates import files_in, make, own_folder

hosts = pytest.importorskip("nearpeak.farm.dask_hosts")
pytest.importorskip("distributed", reason="Dask is not installed (extra farm)")
pytest.importorskip("cryptography", reason="cryptography is not installed (extra farm)")


def folder_for(tmp_path, name, *, days=365, authority=None):
    """A folder as a host has it: authority, certificate and key, without the authority's own key."""
    whole = authority or tmp_path / f"{name}-authority"
    if not (whole / "ca.pem").exists():
        make(whole, [])
    make(whole, [name], days)
    mine = tmp_path / name
    mine.mkdir()
    for file in ("ca.pem", f"{name}.pem", f"{name}-key.pem"):
        (mine / file).write_bytes((whole / file).read_bytes())
        (mine / file).chmod(0o600)
    return mine, whole


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("tls")
    mine, whole = folder_for(tmp_path, "node")
    with hosts.scheduler("127.0.0.1:0", hosts.security_of(mine, "127.0.0.1:0")) as scheduler:
        yield scheduler.address, mine, whole, tmp_path


def connects(address, folder, monkeypatch):
    from nearpeak.farm.executors import dask

    monkeypatch.setattr(dask, "CONNECT_S", 3.0)
    try:
        dask.Dask(address, folder).close()
    except MeasureError:
        return False
    return True


def test_a_certificate_of_the_authority_is_let_in(farm, monkeypatch):
    address, mine, _, _ = farm
    assert address.startswith("tls://")
    assert connects(address, mine, monkeypatch)


def test_a_plain_client_is_refused(farm, monkeypatch):
    import distributed

    with pytest.raises(OSError, match=r"Timed out|Unexpected|closed|reset"):
        distributed.Client(farm[0].replace("tls://", "tcp://"), timeout=3, set_as_default=False)
    with pytest.raises(SpecError, match="is without encryption"):
        connects(farm[0].replace("tls://", "tcp://"), None, monkeypatch)


def test_a_certificate_of_another_authority_is_refused(farm, monkeypatch):
    foreign, _ = folder_for(farm[3], "stranger")
    assert not connects(farm[0], foreign, monkeypatch)
    (foreign / "ca.pem").write_bytes((farm[1] / "ca.pem").read_bytes())  # it trusts the farm, but not the other way
    assert not connects(farm[0], foreign, monkeypatch)


def test_an_expired_certificate_is_refused(farm, monkeypatch):
    expired, _ = folder_for(farm[3], "late", days=-1, authority=farm[2])
    assert not connects(farm[0], expired, monkeypatch)


def test_without_certificates_nothing_listens_but_on_loopback(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(SpecError, match="whoever reaches it can run code"):
        hosts.security_of(None, "10.0.0.1:8786")
    assert hosts.security_of(None, "127.0.0.1:8786").require_encryption


def test_on_loopback_the_users_own_certificate_is_made_once_and_signs_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = own_folder()
    files = {path.name: (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()}
    assert sorted(files) == ["ca.pem", "localhost-key.pem", "localhost.pem"]
    assert files["localhost-key.pem"][1] == 0o600
    assert own_folder() == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name: text for name, (text, _) in files.items()
    }


def test_certificates_that_others_could_replace_are_refused(tmp_path):
    made = make(tmp_path / "tls", ["a"])
    for path, mode in ((tmp_path / "tls", 0o777), (made[0], 0o666), (made[2], 0o660)):
        before = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode)
        with pytest.raises(SpecError, match="other users may write to it; chmod go-w"):
            files_in(tmp_path / "tls")
        path.chmod(before)
    assert files_in(tmp_path / "tls")


def test_keys_are_for_their_owner_alone_and_nothing_is_made_twice(tmp_path):
    made = make(tmp_path / "tls", ["a", "10.0.0.1"])
    assert sorted(one.name for one in made) == [
        "10.0.0.1-key.pem", "10.0.0.1.pem", "a-key.pem", "a.pem", "ca-key.pem", "ca.pem"
    ]  # fmt: skip
    keys = [one for one in made if one.name.endswith("-key.pem")]
    assert {stat.S_IMODE(one.stat().st_mode) for one in keys} == {0o600}
    with pytest.raises(SpecError, match="is there already"):
        make(tmp_path / "tls", ["a"])
    with pytest.raises(SpecError, match="is neither a name nor an address"):
        make(tmp_path / "tls", ["../b"])


def test_a_folder_that_does_not_say_who_this_host_is_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"holds no ca\.pem"):
        files_in(tmp_path)
    make(tmp_path / "tls", ["a", "b"])
    with pytest.raises(SpecError, match="there are: a, b"):
        files_in(tmp_path / "tls")
    (tmp_path / "tls" / "b-key.pem").unlink()
    assert files_in(tmp_path / "tls")[1].name == "a.pem"
    (tmp_path / "tls" / "a-key.pem").chmod(0o644)
    with pytest.raises(SpecError, match="others may read it"):
        files_in(tmp_path / "tls")


def test_a_port_that_is_taken_is_named_as_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    safe, refused = hosts.security_of(None, "127.0.0.1:0"), pytest.raises(MeasureError, match=r"already in use")
    with hosts.scheduler("127.0.0.1:0", safe) as first, refused:
        hosts.scheduler(first.address.rpartition("//")[2], safe)
