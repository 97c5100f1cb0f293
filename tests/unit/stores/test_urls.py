"""What a URL of locks, or of marks, may say: a mistake is named before there is any request, and no secret of it is repeated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl import fence
from lockctl.errors import ConfigError
from lockctl.fence import Mark
from lockctl.registry import open_backend
from lockctl.stores.file.address import read_url
from lockctl.stores.file.lock import FileBackend
from lockctl.stores.redis.address import from_url
from lockctl.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable

POSTGRESQL = "postgresql://ops@db.example/locks"
REFUSED = [
    ("redis://u:%+0@h/", "backend URL"),
    ("redis://h%ff/", "backend URL"),
    ("redis://h\udcff/", "backend URL"),
    ("redis://:%ff@h/", "backend URL"),
    ("redis://a..b/", "backend URL"),
    (f"redis://{'x' * 64}/", "backend URL"),
    (f"redis://{'x.' * 128}/", "backend URL"),
    ("redlock://h,[/", "backend URL"),
    ("redis+sentinel://a b/x", "backend URL"),
    ("redis+sentinel://%ff:1/x", "backend URL"),
    ("redis://%2Ftmp%2Fr.sock/0", "not a path"),
    ("redis://tmp%2Fr.sock/0", "must be a name"),
    ("redis+sentinel://h,%2Ftmp%2Fr.sock/x", "not a path"),
    ("redlock://h1,h2,%2Ftmp%2Fr.sock/0", "not a path"),
    ("etcd://%2Ftmp%2Fe.sock", "not a path"),
    ("consul://%2Ftmp%2Fc.sock", "not a path"),
    ("zookeeper://%2Ftmp%2Fz.sock", "not a path"),
    ("nats://%2Ftmp%2Fn.sock/locks", "not a path"),
    ("s3://stocks/locks?endpoint=http://%252Ftmp%252Fs.sock", "not a path"),
    ("zookeeper://[", "backend URL"),
    ("zookeeper://]:1", "backend URL"),
    ("zookeeper://h/%ff", "backend URL"),
    ("etcd://[", "backend URL"),
    ("etcd://h/%41\udcff", "backend URL"),
    ("consul://h%ff", "backend URL"),
    ("consul://h/?dc=%ff", "backend URL"),
    ("postgresql://h%ff/d", "backend URL"),
    ("azblob:///locks?account=stocks", "azblob://CONTAINER/PREFIX"),
    ("azblob://a,b/locks?account=stocks", "azblob://CONTAINER/PREFIX"),
    ("azblob://me:it@locks/locks?account=stocks", "there are no users"),
    ("azblob://locks/a%5cb?account=stocks", "no backslash"),
    ("azblob://locks/locks?account=stocks&no=1", "no parameter 'no'"),
    ("azblob://locks/locks?account=stocks.example", "letters and digits alone"),
    ("azblob://locks/locks?account=stocks&endpoint=stocks.example", "endpoint is the URL of an account"),
    ("azblob://locks/locks?account=stocks&endpoint=https://stocks.example/?x", "endpoint is the URL of an account"),
    ("azblob://locks/locks?endpoint=http://h:1/stocks&ca=/ca.pem", "azblob: ca is for TLS"),
    ("azblob://:not-base64@locks/locks?account=stocks", "neither the key of an account (base64) nor a SAS token"),
    ("azblob://:sig=a%20b@locks/locks?account=stocks", "has characters that none has"),
    ("azblob://:a2V5@locks/locks?endpoint=https://stocks.example", "of which account is the key?"),
    ("azblob://:a2V5@locks/locks", "which account?"),
    (f"azblob://:a2V5@locks/{'x' * 401}?account=stocks", "has at most 400 bytes"),
    ("consul://", "one host"),
    ("consul://a,b", "one host"),
    ("consul://s3cret@host", "no users"),
    ("consul://user:s3cret@host", "no users"),
    ("consul://host/locks", "prefix="),
    ("consul://host/?prefix=a//b/", "prefix"),
    ("consul://host/?prefix=../b/", "prefix"),
    ("consul://host/?prefix=a%0a/", "prefix"),
    ("consul://host/?wait=5", "no parameter 'wait'"),
    ("consul://host/?lock_delay=soon", "lock_delay"),
    ("consul://host/?lock_delay=61s", "at most 60s"),
    ("consul://host:0", "port"),
    ("consul://host/?ca=/ca.pem", "use consuls://"),
    ("consul://host/?insecure=yes", "use consuls://"),
    ("consuls://host/?insecure=maybe", "yes or no"),
    ("consuls://host/?key=k.pem", "needs cert"),
    ("consul://:s3cret%0d@host", "characters that no token has"),
    ("dynamodb:///x", "names a table"),
    ("dynamodb://a,b/x", "names a table"),
    ("dynamodb://lo", "names a table"),
    ("dynamodb://locks?no=1", "no parameter"),
    ("dynamodb://locks?key=", "partition key"),
    ("dynamodb://me@locks", "both or none"),
    ("dynamodb://me:it@locks?profile=me", "profile contradicts"),
    ("dynamodb://locks?endpoint=db.example:9000", "endpoint is the URL"),
    ("dynamodb://locks?endpoint=http://h:1&ca=/ca.pem", "dynamodb: ca is for TLS"),
    ("dynamodb://locks/%23x", "does not begin with"),
    (f"dynamodb://locks/{'x' * 301}", "at most"),
    ("dynamodb://locks?region=a/b", "dynamodb: region 'a/b' must be such as eu-central-1"),
    ("etcd:///?prefix=x", "members"),
    ("etcd://h/locks/", "no path"),
    ("etcd://h:0/", "port"),
    ("etcd://h:x/", "port"),
    ("etcd://::1/", "brackets"),
    ("etcd://ann@h/", "belong together"),
    ("etcd://:s3cret@h/", "belong together"),
    ("etcd://h/?ca=/ca.pem", "etcds://"),
    ("etcd://h/?insecure=yes", "etcds://"),
    ("etcds://h/?insecure=maybe", "insecure"),
    ("etcds://h/?key=/key.pem", "cert"),
    ("etcd://h/?prefix=a%00b", "NUL"),
    ("etcd://h/?namespace=x", "namespace"),
    ("gcs:///locks", "gcs://BUCKET/PREFIX"),
    ("gcs://a,b/locks", "gcs://BUCKET/PREFIX"),
    ("gcs://me:it@stocks/locks", "gcs://BUCKET/PREFIX"),
    ("gcs://stocks/locks?no=1", "no parameter 'no'"),
    ("gcs://stocks/locks?anonymous=perhaps", "anonymous is yes or no"),
    ("gcs://stocks/locks?endpoint=stocks.example", "endpoint is the URL of a server"),
    ("gcs://stocks/locks?endpoint=http://h:1&ca=/ca.pem", "gcs: ca is for TLS"),
    ("gcs://stocks/locks?anonymous=yes&credentials=/key.json", "anonymous=yes contradicts credentials"),
    (f"gcs://stocks/{'x' * 401}", "has at most 400 bytes"),
    ("kubernetes:///x", "names a namespace"),
    ("kubernetes://a,b/x", "names a namespace"),
    ("kubernetes://a.b/x", "names a namespace"),
    ("kubernetes://me:it@locks/x", "names a namespace"),
    ("kubernetes://locks?no=1", "no parameter"),
    (f"kubernetes://locks/{'x' * 121}", "at most"),
    ("mysql://host", "one host and a database"),
    ("mysql://a,b/db", "one host and a database"),
    ("mysql://host/db?no=1", "no parameter 'no'"),
    (f"mysql://h/d?prefix={'x' * 301}", "has at most 300 bytes"),
    ("nats://host", "names servers and a bucket"),
    ("nats:///locks", "names servers and a bucket"),
    ("nats://host/a.b", "names servers and a bucket"),
    ("nats://host/locks?no=1", "no parameter"),
    ("nats://host/locks?tls=no", "tls is yes"),
    ("nats://me@host/locks", "no password"),
    ("nats://me:it@host/locks?creds=/x", "contradict"),
    ("nats://host/locks?creds=/x&nkey=/y", "contradict"),
    (f"nats://host/locks/{'x' * 301}", "at most"),
    ("postgresql:///locks", "needs a host"),
    (POSTGRESQL + "?key=12x", "key needs cert"),
    (POSTGRESQL + "?key=9223372036854775808", "no advisory key"),
    (POSTGRESQL + "?key=1,2,3", "no advisory key"),
    (POSTGRESQL + "?key=1,2147483648", "no advisory key"),
    (POSTGRESQL + "?scope=statement", "scope is session or transaction"),
    (POSTGRESQL + "?tls=maybe", "tls is yes or no"),
    (POSTGRESQL + "?tls=no&ca=/x", "contradicts"),
    (POSTGRESQL + "?insecure=1", "insecure is yes or no"),
    (POSTGRESQL + "?sslmode=disable", "no parameter 'sslmode'"),
    (POSTGRESQL + "?prefix=" + "x" * 1001, "longer than"),
    (POSTGRESQL + "?prefix=%ff", "not UTF-8"),
    (POSTGRESQL + "?schema=a%00b", "NUL"),
    ("postgresql://h:0/db", "port"),
    ("postgresql://::1/db", "brackets"),
    ("redis://", "names no host"),
    ("redis://h1,h2/0", "redlock://"),
    ("redis://h/zero", "database is a number"),
    ("redis://h/99999999999", "database is a number"),
    ("redis://h:0/0", "port"),
    ("redis://ops@h/0", "password_file"),
    ("redis://h/0?prefix=a{b", "braces"),
    ("redis://h/0?prefix=a%0Ab", "printable"),
    ("redis://h/0?ca=/x", "rediss://"),
    ("redis://h/0?db=1", "no parameter 'db'"),
    ("rediss://h/0?insecure=maybe", "insecure is yes or no"),
    ("rediss://h/0?key=/x", "key needs cert"),
    ("redis+unix://", "redis+unix:///PATH"),
    ("redis+unix://h/x", "redis+unix:///PATH"),
    ("redis+unix:///tmp/" + "x" * 103, "at most 107 bytes"),
    ("mysql://u:p@%2Ftmp%2F" + "x" * 103 + "/db", "at most 107 bytes"),
    ("postgresql://u@%2Ftmp%2F" + "x" * 90 + "/db", "at most 107 bytes"),
    ("redis+unix:///x?ca=/y", "no parameter 'ca'"),
    ("redis+sentinel://h:26379", "NAME-OF-THE-PRIMARY"),
    ("redis+sentinel:///main", "NAME-OF-THE-PRIMARY"),
    ("redis+sentinel://h/main?ca=/x", "without tls=yes"),
    ("redis+sentinel://h/main?tls=1", "tls is yes or no"),
    ("redis+sentinel://h/main?sentinel_user=x", "without sentinel_password_file"),
    ("redis+sentinel://h/main?sentinel_password_file=/nowhere", "No such file"),
    ("rediss://h/0?ca=/a&ca=/b", "rediss: the parameter 'ca' is given more than once"),
    ("redis://h/0?prefix=a&%70refix=b", "redis: the parameter 'prefix' is given more than once"),
    (POSTGRESQL + "?cert=/c&key=/k&key=4711", "postgresql: the parameter 'key' is given more than once"),
    (
        "etcd://u@h/?password_file=/s3cret&password_file=/s3cret",
        "the parameter 'password_file' is given more than once",
    ),
    ("etcd://h/?%0a&%0a", "is given more than once"),
    ("redlock://", "names no host"),
    ("redlock://h1/0", "at least 3 independent servers"),
    ("redlock://h1,h2/0", "at least 3 independent servers"),
    ("redlock://h1,h2,H1:6379/0", "a node twice"),
    ("redlock://h1,h2,h3/x", "database is a number"),
    ("redlock://h1,h2,h3/0?ca=/x", "redlocks://"),
    ("redlock://h1,h2,h3/0?tls=yes", "no parameter 'tls'"),
    ("s3:///locks", "s3://BUCKET/KEY"),
    ("s3://a,b/locks", "s3://BUCKET/KEY"),
    ("s3://me@stocks/locks", "both or none"),
    ("s3://stocks/locks?no=1", "no parameter 'no'"),
    ("s3://stocks/locks?endpoint=stocks.example", "endpoint is the URL of a server"),
    ("s3://stocks/locks?endpoint=http://h:1&ca=/ca.pem", "s3: ca is for TLS"),
    ("s3://me:it@stocks/locks?profile=me", "profile contradicts the access key"),
    ("s3://stocks/locks?region=../x", "s3: region '../x' must be such as eu-central-1"),
    ("s3://stocks/locks?region=a%20b&endpoint=http://h", "s3: region 'a b' must be such as eu-central-1"),
    (f"s3://stocks/{'x' * 401}?endpoint=http://h", "has at most 400 bytes"),
    ("sqlite://host/x.db", "three slashes and an absolute path"),
    ("sqlite:///", "three slashes and an absolute path"),
    ("sqlite:///x.db?table=a-b", "not a name for a table"),
    ("sqlite:///x.db?table=", "not a name for a table"),
    ("sqlite:///x.db?no=1", "no parameter 'no'"),
    ("zookeeper:///lockctl", "at least one server"),
    ("zookeeper://h?prefix=x", "no parameter 'prefix'"),
    ("zookeeper://h?layout=etcd", "layout is kazoo, curator or curator-rw"),
    ("zookeeper://h:0", "port"),
    ("zookeeper://h/a//b", "path of the URL"),
    ("zookeeper://h/a/../b", "path of the URL"),
    ("zookeeper://h/./b", "path of the URL"),
    ("zookeeper://h/zookeeper/quota", "path of the URL"),
    ("zookeeper://h/a\U0001f600b", "path of the URL"),
    ("zookeeper://h/a\ufffdb", "path of the URL"),
    ("zookeeper://h/a%00b", "NUL"),
    ("zookeeper://h/a%1bb", "path of the URL"),
    ("zookeeper://h/a%ffb", "not UTF-8 text"),
    ("zookeeper://ops@h/", "digest"),
    ("zookeeper://:s3cret@h/", "digest"),
    ("zookeeper://a%3ab:s3cret@h/", "digest"),
    ("zookeeper://h?ca=/etc/ca.pem", "zookeepers://"),
    ("zookeepers://h?insecure=maybe", "insecure"),
    ("zookeepers://h?key=/k", "cert"),
]


@pytest.mark.parametrize(("url", "said"), REFUSED)
def test_a_mistake_is_named_without_a_request_and_without_a_secret(
    url: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_STORAGE_")]:
        monkeypatch.delenv(name)
    refused(lambda: open_backend(parse_url(url)), said)


WITH_TLS = [
    "rediss://h/0?",
    "redis+sentinel://h/main?tls=yes&",
    "redlocks://h1,h2,h3/0?",
    "etcds://h/?",
    "consuls://h/?",
    "zookeepers://h/?",
    "nats://h/locks?",
    "mysql://h/db?",
    POSTGRESQL + "?",
]


@pytest.mark.parametrize(
    "name", [".x", "a..b", "x" * 64, "x." * 128 + "x", "%C3%A4..b", "%C3%A4." * 40, "[::1]", "a%20b"]
)
@pytest.mark.parametrize("url", WITH_TLS)
def test_a_name_to_verify_is_one_that_a_host_can_have(url: str, name: str) -> None:
    refused(lambda: open_backend(parse_url(f"{url}tls_name={name}")), "tls_name must be the name of a host")


@pytest.mark.parametrize("url", WITH_TLS)
def test_nobody_verifies_by_an_authority_and_not_at_all(url: str) -> None:
    """Who adds a ca must not believe that it is looked at."""
    refused(lambda: open_backend(parse_url(f"{url}ca=/etc/ca.pem&insecure=yes")), "insecure=yes contradicts ca")


@pytest.mark.parametrize("name", ["db.example", "db.example.", "%C3%A4.example", "192.0.2.1", "2001:db8::1"])
@pytest.mark.parametrize("url", WITH_TLS)
def test_a_name_to_verify_may_be_of_any_alphabet_or_an_address(url: str, name: str) -> None:
    open_backend(parse_url(f"{url}tls_name={name}")).close()


@pytest.mark.parametrize("spelled", ["//run//lock", "/./run/lock", "/run/lock/", "/run/./lock/."])
def test_a_path_is_one_place_and_one_domain_of_tokens_however_it_is_spelled(spelled: str) -> None:
    assert read_url(parse_url(f"file://{spelled}"), FileBackend.parameters)[0] == "/run/lock"
    address = from_url(parse_url(f"redis+unix://{spelled}"))
    assert (address.place.where, address.domain) == ("redis at /run/lock", "redis:/run/lock/0")


def refused(step: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError) as told:
        step()
    assert said in str(told.value)
    assert "s3cret" not in str(told.value)
    assert str(told.value).isprintable()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("azblob:///stock", "azblob://CONTAINER/"),
        ("azblob://me@stocks/stock", "there are no users"),
        ("azblob://stocks/stock?insecure=yes", "no parameter 'insecure'"),
        ("azblob://:a2V5@stocks/directory/?account=a", "must end with a name"),
        ("gcs:///stock", "gcs://BUCKET/"),
        ("gcs://me@stocks/stock", "without a user"),
        ("gcs://stocks/stock?insecure=yes", "no parameter 'insecure'"),
        ("gcs://stocks/directory/?anonymous=yes", "must end with a name"),
        ("http:///stock", "one host"),
        ("http://a,b/stock", "one host"),
        ("http://a/stock?version=2", "no parameter 'version'"),
        ("http://a/stock?ca=/ca.pem", "use https://"),
        ("http://a:b@c/stock?insecure=yes", "use https://"),
        ("http://a%3Ab@c/stock", "cannot have a colon"),
        ("https://:two%20words@c/stock", "no bearer token"),
        ("https://c/directory/", "must end with a name"),
        ("https://c/stock?ca=/ca.pem&insecure=yes", "https: insecure=yes contradicts ca"),
        ("https://c/stock?tls_name=.x", "https: tls_name must be the name of a host"),
        ("etcds://c/?tls_name=.x", "etcds: tls_name must be the name of a host"),
        ("https://c/a/../stock", "must end with a name"),
        ("mysql://h/", "one host and a database"),
        ("mysql:///db", "one host and a database"),
        ("mysql://a,b/db", "one host and a database"),
        ("mysql://h/db?tls=maybe", "tls is yes or no"),
        ("mysql://h/db?tls=no&ca=/x", "tls=no contradicts ca"),
        ("mysql://h/db?key=/x", "key needs cert"),
        ("mysql://h/db?port=1", "no parameter 'port'"),
        ("s3:///stock", "s3://BUCKET/KEY"),
        ("s3://a,b/stock", "s3://BUCKET/KEY"),
        ("s3://me@stocks/stock", "both or none"),
        ("s3://me:it@stocks/stock?profile=me", "profile contradicts"),
        ("s3://stocks/stock?endpoint=db.example:9000", "endpoint is the URL"),
        ("s3://stocks/stock?insecure=yes", "no parameter 'insecure'"),
        ("s3://stocks/directory/", "must end with a name"),
        ("sqlite://host/a.db", "three slashes and an absolute path"),
        ("sqlite:///", "three slashes and an absolute path"),
        ("sqlite://u:s3cret@/a.db", "three slashes and an absolute path"),
        ("sqlite:///a.db?x=1", "no parameter 'x'"),
    ],
)
def test_a_mistake_is_named_where_marks_are_too(url: str, said: str) -> None:
    refused(lambda: fence.advance(url, Mark("domain", 33), timeout=3.0), said)


@pytest.mark.parametrize("url", ["s3://stocks/locks", "dynamodb://locks"])
def test_a_region_that_is_none_is_named_wherever_it_comes_from(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    for name, text in (("ACCESS_KEY_ID", "me"), ("SECRET_ACCESS_KEY", "s3cret"), ("DEFAULT_REGION", "../x")):
        monkeypatch.setenv(f"AWS_{name}", text)
    refused(lambda: open_backend(parse_url(url)).inspect("nightly", timeout=1.0), "the region of variables and files")
