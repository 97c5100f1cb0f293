"""What a URL says about S3: a bucket, a path in it, who we are there, and whose server it is."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.url import Url, incomplete_login, take_params
from lockctl.value import Value
from lockctl.wire.aws import Keys, usable_region
from lockctl.wire.http import server_of

PARAMETERS = {"endpoint": "", "region": "", "profile": "", "ca": ""}
USUAL_REGION = "us-east-1"  # of other servers, which have none
CHINA = "cn-"


class Address(Value):
    """One bucket. What is empty is found as Amazon's tools find it."""

    bucket: str
    path: str
    server: str
    region: str
    profile: str
    ca: str
    keys: Keys | None

    def __str__(self) -> str:
        """As messages name it."""
        return f"s3://{self.bucket}"


def from_url(url: Url, parameters: dict[str, str]) -> Address:
    """Read *url*, which may have these parameters; raises ``ConfigError``."""
    params = take_params(url, parameters)
    if len(url.hosts) != 1 or not url.hosts[0].replace("-", "a").replace(".", "a").isalnum():
        raise ConfigError("s3: a URL is s3://BUCKET/KEY")
    if bool(url.user) != bool(url.password):
        raise incomplete_login(
            url, "the access key is the user and the secret key the password of the URL: both or none"
        )
    for text in (url.user or "", url.password or "", params["region"]):
        if not (text.isascii() and text.isprintable()):
            raise ConfigError("s3: a key or a region has characters that none has")
    if params["profile"] and url.user:
        raise ConfigError("s3: profile contradicts the access key in the URL")
    if params["endpoint"]:
        server_of("s3", params["endpoint"], params["ca"])
    return Address(
        bucket=url.hosts[0],
        path=url.path,
        server=params["endpoint"],
        region=usable_region(params["region"], "s3: region"),
        profile=params["profile"],
        ca=params["ca"],
        keys=Keys(url.user, url.password) if url.user and url.password else None,
    )


def amazon(region: str, bucket: str) -> tuple[str, str]:
    """The server of Amazon's for a bucket, and how paths begin there.

    No certificate is for the name of a bucket that has a point.
    """
    site = f"s3.{region}.amazonaws.com" + (".cn" if region.startswith(CHINA) else "")
    return (f"https://{site}", f"/{bucket}") if "." in bucket else (f"https://{bucket}.{site}", "")
