"""Servers that speak TLS only and want a login, and what is said there to who has the wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.servers.consul import Consul
from tests.servers.etcd import Etcd
from tests.servers.mariadb import MariaDb
from tests.servers.nats import Nats
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis, RedisSentinel
from tests.servers.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.certificates import Certificates

    Start = Callable[..., Any]

SECRET = "s3cret-horse"  # for servers that have none of their own
WRONG = "22222222-2222-2222-2222-222222222222"  # in the form of a token
NODES = 3  # of Redlock


class Login(NamedTuple):
    """Who is let in, and what another is told."""

    user: str
    secret: str
    told_without: str
    told_wrong: str
    word: str = "password"  # as in ``password_file``

    @property
    def right(self) -> str:
        """The part of a URL before the address."""
        return f"{self.user}:{self.secret}@"

    @property
    def wrong(self) -> str:
        """The same with another secret."""
        return f"{self.user}:{WRONG}@"

    @property
    def without(self) -> str:
        """The same without a secret, as it stands where that comes from elsewhere."""
        return f"{self.user}@" if self.user else ""


class Secured(NamedTuple):
    """A server, or several."""

    url: str  # with the places of the LOGIN and of the PARAMETERS
    login: Login | None  # ZooKeeper lets everybody in: what counts there is who may use a node
    always: str = ""  # parameters without which there is no connection
    of_the_system: str = ""  # what says that the authorities of the system count

    def place(self, parameters: str, login: str | None = None) -> str:
        """The URL with these parameters, and with the right login unless another is given."""
        right = self.login.right if self.login else ""
        more = "" if "cert=" in parameters else self.always
        written = "&".join(filter(None, (parameters, more)))
        return self.url.replace("LOGIN", right if login is None else login).replace("PARAMETERS", written).rstrip("&")


REDIS = Login("", SECRET, "the server wants a password", "does not accept the user name or the password")


def redis(start: Start, certificates: Certificates) -> Secured:
    server = start(Redis, password=SECRET, tls=certificates)
    return Secured(f"rediss://LOGIN{server.address}/0?PARAMETERS", REDIS)


def redlock(start: Start, certificates: Certificates) -> Secured:
    addresses = ",".join(start(Redis, password=SECRET, tls=certificates).address for _ in range(NODES))
    return Secured(f"redlocks://LOGIN{addresses}/0?PARAMETERS", REDIS)


def sentinels(start: Start, certificates: Certificates) -> Secured:
    group = start(RedisSentinel, password=SECRET, tls=certificates)
    return Secured(f"redis+sentinel://LOGIN{','.join(group.sentinel_addresses)}/main?tls=yes&PARAMETERS", REDIS)


def etcd(start: Start, certificates: Certificates) -> Secured:
    server = start(Etcd, tls=certificates, auth=True)
    login = Login(server.user, server.password, "", "invalid user ID or password")
    return Secured(f"etcds://LOGIN{server.address}/?PARAMETERS", login)


def consul(start: Start, certificates: Certificates) -> Secured:
    server = start(Consul, acl=True, tls=certificates, client_certificates=True)
    told = ("a token is needed (token_file=FILE)", "the token is not known there")
    own = f"cert={certificates.client_cert}&key={certificates.client_key}"
    return Secured(f"consuls://LOGIN{server.address}/?PARAMETERS", Login("", server.token, *told, "token"), own)


def zookeeper(start: Start, certificates: Certificates) -> Secured:
    server = start(ZooKeeper, tls=certificates)
    return Secured(f"zookeepers://LOGIN127.0.0.1:{server.tls_port}/security?PARAMETERS", None)


def postgresql(start: Start, certificates: Certificates) -> Secured:
    server = start(Postgres, auth="scram-sha-256", tls=certificates, tls_only=True)
    login = Login(server.user, server.password, "no password supplied", "password authentication failed")
    url = f"postgresql://LOGIN{server.address}/{server.database}?PARAMETERS"
    return Secured(url, login, of_the_system="tls=yes")


def mysql(start: Start, certificates: Certificates) -> Secured:
    server = start(MariaDb, tls=certificates, extra=["require-secure-transport=on"])
    login = Login(server.user, server.password, "Access denied", "Access denied")
    return Secured(f"mysql://LOGIN{server.address}/{server.database}?PARAMETERS", login, of_the_system="tls=yes")


def nats(start: Start, certificates: Certificates) -> Secured:
    user = f'{{ user: ops, password: "{SECRET}" }}'
    let_in = {"login": f"ops:{SECRET}@", "query": f"ca={certificates.ca}"}
    server = start(Nats, tls=certificates, settings=f"authorization {{ users: [{user}] }}", **let_in)
    login = Login("ops", SECRET, "the user has no password", "does not accept the login")
    return Secured(f"nats://LOGIN{server.address}/locks?PARAMETERS", login)


SECURED = {
    made.__name__: made for made in (redis, redlock, sentinels, etcd, consul, zookeeper, postgresql, mysql, nats)
}
