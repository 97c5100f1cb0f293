"""What a URL of etcd means."""

from lockctl.registry import open_backend
from lockctl.stores.etcd.lock import EtcdBackend
from lockctl.url import parse_url


def test_nothing_of_a_url_is_needed_but_a_host() -> None:
    made = open_backend(parse_url("etcd://localhost"))
    assert isinstance(made, EtcdBackend)
    assert made.layout.lock("nightly") == "lockctl/nightly"
