"""What a URL of etcd may say."""

from __future__ import annotations

import re

import pytest

from lockctl.errors import ConfigError
from lockctl.registry import open_backend
from lockctl.stores.etcd.lock import EtcdBackend
from lockctl.url import parse_url


class TestUrl:
    """What a URL may say."""

    @pytest.mark.parametrize(
        ("url", "cause"),
        [
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
        ],
    )
    def test_a_mistake_is_named_without_any_request(self, url: str, cause: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(cause)) as wrong:
            open_backend(parse_url(url))
        assert "s3cret" not in str(wrong.value)
        assert "\n" not in str(wrong.value)

    def test_nothing_of_a_url_is_needed_but_a_host(self) -> None:
        made = open_backend(parse_url("etcd://localhost"))
        assert isinstance(made, EtcdBackend)
        assert made.layout.lock("nightly") == "lockctl/nightly"
