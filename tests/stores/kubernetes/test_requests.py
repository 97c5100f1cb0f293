"""What only Kubernetes does to a lock: who we are there, rights, names of objects, watches."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockctl import clock
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.kubernetes import access, layout
from lockctl.stores.kubernetes.cell import KubernetesCells
from lockctl.stores.kubernetes.protocol import Leases
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from lockctl.wire.tls import context
from tests.contract.cells import assert_told_and_not_polling
from tests.contract.harness import LIMIT, claim, refused, take
from tests.jobs import alive, eventually
from tests.promises.rights import check_everything
from tests.servers.certificates import DAYS
from tests.servers.kubernetes import NAMESPACE, Kubernetes
from tests.stores.test_least_rights import recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates

    Open = Callable[[str], Any]

VERBS: list[str] = json.loads(recipe("Kubernetes")[-1].partition("verbs: ")[2])


def url(config: Path, prefix: str = "") -> str:
    return f"kubernetes://{NAMESPACE}/{prefix or os.urandom(6).hex()}?kubeconfig={config}"


def test_a_user_needs_the_rights_of_the_manual_and_no_others(
    start_server: Callable[..., Any], lockctl: Lockctl, opened: Open
) -> None:
    tokens = {"t-ops": "ops", **{f"t-{verb}": f"not-{verb}" for verb in VERBS}}
    verbs = {"ops": VERBS, **{f"not-{each}": [verb for verb in VERBS if verb != each] for each in VERBS}}
    server = start_server(Kubernetes, tokens=tokens, verbs=verbs, anonymous=False)
    check_everything(lockctl, url(server.config("ops.json", {"token": "t-ops"})))
    for verb in ("get", "create", "update"):
        lacking = opened(url(server.config(f"{verb}.json", {"token": f"t-{verb}"})))
        with pytest.raises(ConfigError, match=f"needed are .*cannot {verb} "):
            take(lacking, claim())
    for user in ({"token": "s3cret-wrong"}, {}):
        with pytest.raises(ConfigError, match="not, or no longer, valid") as told:
            opened(url(server.config("wrong.json", user))).try_acquire(claim(), timeout=LIMIT)
        assert "s3cret" not in str(told.value)


def test_tls_certificates_in_files_and_in_the_kubeconfig(
    start_server: Callable[..., Any], certificates: Certificates, opened: Open, lockctl: Lockctl
) -> None:
    server = start_server(Kubernetes, tls=certificates, anonymous=False)
    inline = {
        f"{name}-data": base64.b64encode(Path(path).read_bytes()).decode()
        for name, path in (("client-certificate", certificates.client_cert), ("client-key", certificates.client_key))
    }
    files = {"client-certificate": str(certificates.client_cert), "client-key": str(certificates.client_key)}
    ca = base64.b64encode(Path(certificates.ca).read_bytes()).decode()
    there = f"https://{server.address}"
    for user in (inline, files):
        take(opened(url(server.config("cert.json", user))), claim())
    data = server.config("data.json", inline, server=there, **{"certificate-authority-data": ca})
    take(opened(url(data)), claim())
    done = lockctl("run", "-b", url(data), "-l", "nightly", "--", "sh", "-c", "ls -l /proc/self/fd")
    assert done.returncode == 0, done.stderr
    assert "memfd" not in done.stdout
    strange = server.config("x.json", inline, server=there, **{"certificate-authority": str(certificates.other_ca)})
    backend = opened(url(strange))
    with pytest.raises(ConfigError, match="certificate is not accepted"):
        backend.try_acquire(claim(), timeout=LIMIT)


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ("%%%", {}, "certificate-authority-data of the kubeconfig is not base64"),
        ("eHh4", {}, "ca certificate-authority-data of the kubeconfig: no cert"),
        (
            "",
            {"client-certificate-data": "eHh4"},
            "client certificate client-certificate-data of the kubeconfig: there",
        ),
        (
            "",
            {"client-certificate-data": "eHh4", "client-key-data": "eHh4 "},
            "client-key-data of the kubeconfig is not",
        ),
    ],
)
def test_what_is_wrong_with_a_certificate_in_the_kubeconfig_names_its_key(
    cluster: str, user: dict[str, str], said: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    section = {"server": "https://127.0.0.1:1", "certificate-authority-data": cluster}
    config.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": section}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )

    def connect() -> None:
        found = access.find(str(config), "")
        settings = found.endpoint(found.credentials(Deadline(LIMIT))).tls
        assert settings is not None
        context(settings)

    with pytest.raises(ConfigError, match=said):
        connect()


PLUGIN = """
import json, os, sys
count = open(sys.argv[1], "a+")
count.write("x"); count.seek(0)
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert asked["spec"]["interactive"] is False and os.environ["ROLE"] == "it's ours"
status = {"token": f"issued-{len(count.read())}", "expirationTimestamp": sys.argv[2]}
print(json.dumps({"apiVersion": asked["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def test_a_plugin_is_asked_once_and_again_when_its_token_is_refused(
    start_server: Callable[..., Any], opened: Open, tmp_path: Path
) -> None:
    """The kubeconfig is in YAML, as most are."""
    server = start_server(Kubernetes, tokens={"issued-2": "ops"}, anonymous=False)
    script, count = tmp_path / "plugin.py", tmp_path / "count"
    script.write_text(PLUGIN)
    config = tmp_path / "config.yaml"
    config.write_text(f"""\
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://{server.address}"}}}}]
users:
- name: u
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: {sys.executable}
      args: [{script}, {count}, "2126-01-01T00:00:00Z"]
      env: [{{name: ROLE, value: "it's ours"}}]
      interactiveMode: IfAvailable
""")
    backend = opened(url(config))
    grant = take(backend, claim())
    backend.renew(grant, timeout=LIMIT)
    assert count.read_text() == "xx"
    script.write_text("raise SystemExit(3)")
    with pytest.raises(ConfigError, match=r"exec plugin of the kubeconfig.*status 3"):
        opened(url(config)).try_acquire(claim(), timeout=LIMIT)


HANGING = """
import os, sys, time
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(60)
"""


@pytest.fixture
def hanging(tmp_path: Path, start_server: Callable[..., Any]) -> tuple[str, Path]:
    """A URL with a plugin that never ends, and the file of its pid."""
    script, pid = tmp_path / "hanging.py", tmp_path / "pid"
    script.write_text(HANGING)
    server = start_server(Kubernetes, anonymous=False)
    user = {"exec": {"command": sys.executable, "args": [str(script), str(pid)]}}
    return url(server.config("hanging.json", user)), pid


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_plugin_that_hangs_ends_with_the_run_that_asks_it(
    lockctl: Lockctl, hanging: tuple[str, Path], signum: int
) -> None:
    place, file = hanging
    run = lockctl.start("run", "-b", place, "-l", "a", "--wait", "1h", "--", "true")
    eventually(file.exists)
    run.send_signal(signum)
    assert run.wait(timeout=LIMIT) == (-signum if signum == signal.SIGKILL else 128 + signum)
    pid = int(file.read_text())
    eventually(lambda: not alive(pid), limit=5.0)


def test_a_plugin_that_hangs_ends_with_the_request_that_needs_it(opened: Open, hanging: tuple[str, Path]) -> None:
    place, file = hanging
    with pytest.raises(BackendUnavailable, match=r"exec plugin of the kubeconfig: no answer within 3 s"):
        opened(place).try_acquire(claim(), timeout=3.0)
    pid = int(file.read_text())
    eventually(lambda: not alive(pid), limit=5.0)


ISSUER = """
import json, os, sys, time
ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + float(sys.argv[1])))
named = {"clientCertificateData": sys.argv[2], "clientKeyData": sys.argv[3]}
status = {name: open(path).read() for name, path in named.items()} | {"expirationTimestamp": ends}
print(json.dumps({"kind": "ExecCredential", "status": status}))
with open(sys.argv[4], "a") as count:
    count.write("x")
"""


class Issued:
    """A server with TLS, and a user whose plugin issues a certificate that lasts for so many seconds."""

    def __init__(
        self, start_server: Callable[..., Any], certificates: Certificates, directory: Path, seconds: float
    ) -> None:
        server = start_server(Kubernetes, tls=certificates, anonymous=False)
        self.count, script = directory / "count", directory / "issuer.py"
        script.write_text(ISSUER)
        files = (str(certificates.client_cert), str(certificates.client_key))
        words = [str(script), str(seconds), *files, str(self.count)]
        self.config = server.config("issued.json", {"exec": {"command": sys.executable, "args": words}})
        self.url = url(self.config)


def test_of_certificates_that_a_plugin_has_issued_the_last_is_kept(
    start_server: Callable[..., Any], certificates: Certificates, opened: Open, tmp_path: Path
) -> None:
    issued = Issued(start_server, certificates, tmp_path, -1.0)
    backend = opened(issued.url)
    grant = take(backend, claim())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        backend.renew(grant, timeout=LIMIT)
    assert issued.count.read_text().count("x") > 10
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_request_that_is_about_to_connect_has_its_certificate_although_others_were_issued(
    start_server: Callable[..., Any], certificates: Certificates, tmp_path: Path
) -> None:
    leases = Leases(parse_url(Issued(start_server, certificates, tmp_path, -1.0).url))
    clients, headers = leases._connect(Deadline(LIMIT))
    for _ in range(3):
        leases.version(Deadline(LIMIT))
    assert clients.request("GET", "/version", Deadline(LIMIT), headers=headers).status == 200
    clients.close()
    leases.close()


def test_a_certificate_that_lasts_for_seconds_is_used_for_half_of_its_time(
    start_server: Callable[..., Any],
    certificates: Certificates,
    opened: Open,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    issued = Issued(start_server, certificates, tmp_path, 10.0)
    backend = opened(issued.url)
    at = time.time()
    monkeypatch.setattr(clock, "wall", lambda: at)
    grant = take(backend, claim())
    assert issued.count.read_text() == "x"
    at += 6.0
    backend.renew(grant, timeout=LIMIT)
    assert issued.count.read_text().startswith("xx")


@pytest.mark.parametrize("exchanged", ["before its end", "after its end"])
def test_a_certificate_whose_file_is_exchanged_is_replaced_although_connections_are_kept(
    start_server: Callable[..., Any], certificates: Certificates, opened: Open, tmp_path: Path, exchanged: str
) -> None:
    server = start_server(Kubernetes, tls=certificates, anonymous=False)
    cert, key = tmp_path / "client.pem", tmp_path / "client.key"

    def write(new_cert: str, new_key: str) -> None:
        cert.write_bytes(Path(new_cert).read_bytes())
        key.write_bytes(Path(new_key).read_bytes())

    write(certificates.client_cert, certificates.client_key)
    files = {"client-certificate": str(cert), "client-key": str(key)}
    backend = opened(url(server.config("cert.json", files)))
    assert backend.inspect("nightly", timeout=LIMIT).state == "free"
    if exchanged == "before its end":
        write(certificates.next_cert, certificates.next_key)
    server.pass_time(DAYS * 86400 + 3600)
    if exchanged == "after its end":
        with pytest.raises(ConfigError, match="no longer, valid"):
            backend.inspect("nightly", timeout=LIMIT)
        write(certificates.next_cert, certificates.next_key)
    assert backend.inspect("nightly", timeout=LIMIT).state == "free"


@pytest.mark.parametrize(("mode", "owner", "said"), [(0o666, 0, "chmod go-w"), (0o644, 4321, "belongs to user 4321")])
def test_a_kubeconfig_that_another_user_can_write_runs_nothing(
    opened: Open, tmp_path: Path, mode: int, owner: int, said: str
) -> None:
    config = tmp_path / "config.json"
    plugin = {"exec": {"command": "touch", "args": [str(tmp_path / "ran")]}}
    named = {"current-context": "here", "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}]}
    cluster = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}
    config.write_text(json.dumps({**named, **cluster, "users": [{"name": "u", "user": plugin}]}))
    config.chmod(mode)
    os.chown(config, owner, 0)
    with pytest.raises(ConfigError, match=said):
        opened(url(config)).try_acquire(claim(), timeout=LIMIT)
    assert not (tmp_path / "ran").exists()


def test_a_service_account_whose_token_is_exchanged_is_let_in(
    start_server: Callable[..., Any], certificates: Certificates, opened: Open, tmp_path: Path, monkeypatch: Any
) -> None:
    server = start_server(Kubernetes, tls=certificates, tokens={"first": "pod", "next": "pod"}, anonymous=False)
    monkeypatch.setattr(access, "POD", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", server.host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (tmp_path / "ca.crt").write_bytes(Path(certificates.ca).read_bytes())
    (tmp_path / "token").write_text("first\n")
    backend = opened(f"kubernetes://{NAMESPACE}/{tmp_path.name}")
    grant = take(backend, claim())
    (tmp_path / "token").write_text("expired\n")
    with pytest.raises(BackendUnavailable, match="no longer, valid"):
        backend.renew(grant, timeout=LIMIT)
    (tmp_path / "token").write_text("next\n")
    backend.renew(grant, timeout=LIMIT)


def test_a_namespace_that_is_not_there_is_named(kubernetes_server: Kubernetes, opened: Open) -> None:
    place = kubernetes_server.place.replace(f"//{NAMESPACE}/", "//elsewhere/")
    with pytest.raises(ConfigError, match='namespaces "elsewhere" not found'):
        opened(place).try_acquire(claim(), timeout=LIMIT)


def test_a_waiter_is_told_and_does_not_poll(kubernetes_server: Kubernetes) -> None:
    cells, other = (KubernetesCells(Leases(parse_url(kubernetes_server.place))) for _ in range(2))
    assert_told_and_not_polling(cells, other, (cells._leases, "named"))


KEYS = ["lock:a", "lock:jobs/a", "lock:jobs.a", "lock:a_b", "lock:a-b", "lock:A", "lock:" + "x" * 64, "lock:\udcff"]
KEYS += [
    "lock:lockctl--past.a",
    "past:a",
    "past:jobs/a",
    "floor:",
    "floor:jobs/",
    "domain:",
    "mark:f/a",
    "lock:",
    "odd",
]
KEYS += ["lock:" + "y" * 255, "lock:" + "y" * 254 + "z", "lock:-a", "lock:a-", "lock:a//b", "lock:\N{SNOWMAN}"]


def test_the_name_of_an_object_is_legal_and_that_of_one_key_alone(kubernetes_server: Kubernetes) -> None:
    names = [layout.object_name(key) for key in KEYS]
    assert len(set(names)) == len(KEYS)
    cells = KubernetesCells(Leases(parse_url(kubernetes_server.place)))
    for key in KEYS:
        assert cells.write(key, cells.read(key, Deadline(LIMIT)), key.encode("utf-8", "replace"), Deadline(LIMIT)), key
        assert key in [found for found, _ in cells.scan(key, Deadline(LIMIT))]
        assert cells.write(key, cells.read(key, Deadline(LIMIT)), None, Deadline(LIMIT))
    cells.close()


def test_what_is_no_document_of_ours_is_another_programs(kubernetes_server: Kubernetes, opened: Open) -> None:
    word = os.urandom(6).hex()
    backend = opened(kubernetes_server.behind(kubernetes_server.address, word))
    take(backend, claim())
    place = f"{word}.nightly"
    _, found = kubernetes_server.ask("GET", place)
    for note in ("~\x7f", "=no", "", "~"):
        found["metadata"]["annotations"][layout.DATA] = note
        found["metadata"].pop("resourceVersion", None)
        assert kubernetes_server.ask("PUT", place, found)[0] == 200
        assert refused(backend, claim())
