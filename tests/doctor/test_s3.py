"""What `lockctl doctor` finds in a bucket that is not as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.servers.http_proxy import HttpProxy, without_conditions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis
    from tests.servers.http_proxy import Answer
    from tests.servers.moto import S3

    Diagnose = Callable[..., Diagnosis]


def test_a_bucket_that_is_dear_and_forgets_is_found(diagnose: Diagnose, s3_server: S3) -> None:
    peer = s3_server.client()
    peer.create_bucket(Bucket="dear")
    url = f"s3://test:s3cret@dear/locks?endpoint={s3_server.url}"
    assert diagnose(url).troubles("s3.", "backend.") == {}
    assert "Contents" not in peer.list_objects_v2(Bucket="dear"), "it leaves nothing"
    peer.put_bucket_versioning(Bucket="dear", VersioningConfiguration={"Status": "Enabled"})
    rule = {"ID": "all", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 30}}
    peer.put_bucket_lifecycle_configuration(Bucket="dear", LifecycleConfiguration={"Rules": [rule]})
    assert diagnose(url).troubles("s3.", "backend.") == {"s3.versioning": "warn", "s3.lifecycle": "warn"}
    elsewhere = {**rule, "Filter": {"Prefix": "logs/"}}
    peer.put_bucket_lifecycle_configuration(Bucket="dear", LifecycleConfiguration={"Rules": [elsewhere]})
    assert diagnose(url).troubles("s3.", "backend.") == {"s3.versioning": "warn"}
    peer.close()


def test_a_server_that_ignores_conditions_and_rights_that_are_missing_are_found(
    diagnose: Diagnose, s3_server: S3
) -> None:
    with HttpProxy(s3_server.address, without_conditions) as between:
        url = f"s3://test:s3cret@locks/doctor?endpoint={between.url}"
        assert diagnose(url).troubles("s3.", "backend.") == {"s3.conditions": "fail"}
        denied: Answer = (403, [], b"<Error><Code>AccessDenied</Code></Error>")
        between.look = lambda request: denied if request.method == "PUT" else None
        assert diagnose(url).troubles("s3.", "backend.") == {"s3.rights": "fail"}
        between.look = lambda _: denied
        assert diagnose(url).troubles("s3.", "backend.") == {"s3.rights": "fail"}
        between.look = lambda _: (404, [], b"<Error><Code>NoSuchBucket</Code></Error>")
        assert diagnose(url).troubles("s3.", "backend.") == {"backend.reachable": "fail"}
