"""TLS and logins: what is right works, what is wrong is refused by the name of its cause, and no secret is shown."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.registry import SCHEMES, load, open_backend
from lockctl.url import parse_url
from tests.fence.contract import LIMIT, mark
from tests.fence.lock_servers import store_at
from tests.jobs import eventually
from tests.promises.attempts import attempt
from tests.promises.secured import SECURED, WRONG, Secured
from tests.servers.fixtures import private_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates

MISCONFIGURED = 78
NOT_ACCEPTED = "certificate is not accepted|certificate verify failed|no certificate authorities"
RIGHT = "ca={ca}"
MARKS = {  # what a URL needs so that its user may keep them
    "rediss": "",
    "etcds": "prefix=lockctl/fence/",
    "consuls": "prefix=lockctl/fence/",
    "zookeepers": "",
}
# stores with a login that are not among SECURED -> where its password is exchanged
READ_AGAIN = {
    "azblob": "tests/stores/azblob/test_credentials.py",
    "dynamodb": "tests/stores/dynamodb/test_requests.py",
    "s3": "tests/stores/s3/test_rights.py",
}
TRUSTED = (RIGHT, "ca={ca}&tls_name=localhost", "insecure=yes")
REFUSED = {
    "ca={other_ca}": NOT_ACCEPTED,
    "": NOT_ACCEPTED,
    "ca={ca}&tls_name=elsewhere.example": "elsewhere.example|not accepted|match",
    "ca=/nowhere.pem": "/nowhere.pem",
    "ca={client_key}": "client.key: no certificate|root certificate file",
    "ca={ca}&cert=/nowhere.pem&key=/nowhere.pem": "/nowhere.pem",
    "ca={ca}&cert={client_cert}&key={other_key}": "client certificate|key values mismatch",
}
LOCKED = "ca={ca}&cert={client_cert}&key={locked_key}"
INPUT = "what the job is to read\n"


@pytest.fixture
def backend_url() -> str:
    """Each run names its place."""
    return "file:///nonexistent"


@pytest.fixture(scope="module", params=SECURED)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Secured]:
    """A server that speaks TLS only and wants a login."""
    with private_servers(tmp_path_factory) as start:
        yield SECURED[request.param](start, certificates)


def refusal(url: str) -> str:
    """What is said to who is refused there; nothing if a lock is granted."""
    error = attempt(url)
    assert error is None or isinstance(error, ConfigError)
    assert WRONG not in str(error)
    return str(error or "")


def run(lockctl: Lockctl, url: str, **env: str) -> tuple[int, str]:
    """Status and message of a run whose job reads what is meant for it; nobody is asked for the pass phrase of a key."""
    done = lockctl("run", "-b", url, "-l", "nightly", "--", "cat", env=env, input=INPUT)
    assert len(done.stderr.splitlines()) <= 1, done.stderr
    assert "pass phrase" not in done.stderr.lower()
    assert done.stdout == ("" if done.returncode else INPUT)
    return done.returncode, done.stderr


def test_a_server_is_verified_by_its_authority_and_its_name(
    lockctl: Lockctl, secured: Secured, certificates: Certificates
) -> None:
    known = vars(certificates)
    for parameters in TRUSTED:
        assert refusal(secured.place(parameters.format_map(known))) == "", parameters
    for parameters, said in REFUSED.items():
        place = secured.place((parameters or secured.of_the_system).format_map(known))
        assert re.search(said, refusal(place)), parameters
    status, message = run(lockctl, secured.place(LOCKED.format_map(known)))
    assert (status, bool(re.search("client certificate|private key", message))) == (MISCONFIGURED, True), message


def test_a_login_is_right_or_refused_and_can_come_from_elsewhere(
    lockctl: Lockctl,
    secured: Secured,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    login, parameters = secured.login, RIGHT.format_map(vars(certificates))
    if login is None:
        # everybody is let in, and the nodes that somebody makes are nobody else's
        assert refusal(secured.place(parameters, f"ops:{WRONG}@").replace("/security", "/another")) == ""
        return
    monkeypatch.setenv("PGPASSFILE", "/nonexistent")
    file = tmp_path / "secret"
    for login_part, said in ((login.without, login.told_without), (login.wrong, login.told_wrong)):
        if said:
            message = refusal(secured.place(parameters, login_part))
            assert said in message
            assert login.secret not in message
    file.write_text(f"{login.secret}\n")
    by_file = secured.place(f"{parameters}&{login.word}_file={file}", login.without)
    for place in (by_file, by_file.replace("_file=", "_command=cat%20")):
        assert refusal(place) == "", place
    assert run(lockctl, secured.place(parameters, login.without), LOCKCTL_PASSWORD=login.secret) == (0, "")
    file.write_text(f"{WRONG}\n")
    status, message = run(lockctl, by_file)
    assert (status, login.told_wrong in message, WRONG in message) == (MISCONFIGURED, True, False), message


def test_a_password_is_read_again_for_each_later_connection(
    secured: Secured, certificates: Certificates, tmp_path: Path
) -> None:
    """By one process, for locks and for marks: a job outlives the change of its password."""
    login, file = secured.login, tmp_path / "secret"
    if login is None:
        return
    place = secured.place(f"{RIGHT.format_map(vars(certificates))}&{login.word}_file={file}", login.without)

    def look(*, refused: bool) -> None:
        for step in steps:
            with pytest.raises(ConfigError, match=re.escape(login.told_wrong)) if refused else contextlib.nullcontext():
                step()

    with contextlib.ExitStack() as ends:
        file.write_text(f"{WRONG}\n")
        client = open_backend(parse_url(place))
        ends.callback(client.close)
        steps: list[Callable[[], object]] = [lambda: client.inspect("nightly", timeout=LIMIT)]
        prefix = MARKS.get(place.partition(":")[0])
        if prefix is not None:
            store = ends.enter_context(store_at(f"{place}&{prefix}".rstrip("&")))
            steps.append(lambda: store.current("stock", timeout=LIMIT))
        look(refused=True)
        file.write_text(f"{login.secret}\n")
        look(refused=False)


@pytest.mark.parametrize("scheme", sorted({load(scheme).capabilities.scheme for scheme in SCHEMES}))
def test_a_store_that_takes_a_password_is_known_to_read_it_again(scheme: str) -> None:
    if load(scheme).takes_password(parse_url(f"{scheme}://ops@host/place")):
        assert scheme in (*SECURED, *READ_AGAIN), "name it in READ_AGAIN, with the test that has its password changed"


def test_a_client_without_tls_is_told_that_it_is_wanted(secured: Secured) -> None:
    if secured.url.startswith("nats:"):
        return  # where the server says at first that it wants TLS, and gets it
    plain = secured.url.replace("s://", "://", 1).replace("LOGIN", "").replace("PARAMETERS", "")
    if plain.startswith(("postgresql", "mysql")):
        plain = secured.place("tls=no")
    plain = plain.replace("tls=yes&", "")  # of sentinels
    client = open_backend(parse_url(plain))
    said = r"want TLS\?|add tls=yes|use etcds://|use consuls://|zookeepers://|no encryption|SSL off|Access denied"

    def told() -> str:
        with pytest.raises((BackendUnavailable, ConfigError)) as refused:
            client.inspect("nightly", timeout=1.0)  # ZooKeeper is asked again all the time: it says nothing itself
        return str(refused.value)

    eventually(lambda: re.search(said, told()), limit=LIMIT)
    client.close()


def test_marks_are_as_safe_as_locks(secured: Secured, certificates: Certificates) -> None:
    """In databases, see ``tests/fence``."""
    scheme = secured.url.partition(":")[0]
    if scheme not in MARKS:
        return
    trusted = f"{MARKS[scheme]}&{RIGHT.format_map(vars(certificates))}".lstrip("&")
    with store_at(secured.place(trusted)) as store:
        assert store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
    with store_at(secured.place(MARKS[scheme])) as store, pytest.raises(ConfigError, match=NOT_ACCEPTED):
        store.advance("stock", mark(34), timeout=LIMIT)
