"""Fetches documents of a feed from the EC2 API with an operator's credentials; needs the extra `aws`."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from service.db.feeds.documents import Origin
from service.feeds.fetch import AGENT, FetchedDocument, FetchFailed
from service.feeds.fetching import utc_now

DEFAULT_PROFILE = "default"


@dataclass(slots=True)
class AwsAccount:
    """Calls the operation of a path `/REGION/OPERATION`, and returns all pages as the JSON that `aws ec2` prints.

    `profile` is a name in the AWS configuration of this machine; `default` also uses environment variables and roles.
    """

    profile: str = field(repr=False)
    endpoint_url: str | None = None
    answers: list[FetchedDocument] = field(default_factory=list)

    def __call__(self, path: str, *, server: str | None = None, body: Any = None, conditional: bool = False) -> bytes:
        """Returns the answer. Raises `FetchFailed` if packages or permissions are missing, or if AWS fails."""
        try:
            from botocore.exceptions import BotoCoreError, ClientError
            from botocore.parsers import ResponseParserError
        except ImportError:
            raise FetchFailed("This feed needs more packages: pip install 'instance-selector[aws]'.") from None
        _, region, operation = path.split("/")
        try:
            answer = self._call(region, operation, body or {})
        except (BotoCoreError, ClientError) as error:
            raise FetchFailed(f"{operation} in {region}: {str(error).rstrip('.')}.") from None
        except ResponseParserError:
            raise FetchFailed(f"The answer to {operation} in {region} is not XML.") from None
        text = json.dumps(answer, default=datetime.isoformat).encode()
        origin = Origin(url=f"https://ec2.{region}.amazonaws.com/{operation}", fetched_at=utc_now())
        self.answers.append(FetchedDocument(origin, text))
        return text

    def _call(self, region: str, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        import boto3
        from botocore.config import Config

        session = boto3.Session(profile_name=None if self.profile == DEFAULT_PROFILE else self.profile)
        config = Config(connect_timeout=10, read_timeout=60, retries={"total_max_attempts": 2}, user_agent_extra=AGENT)
        client = session.client("ec2", region_name=region, endpoint_url=self.endpoint_url, config=config)
        pages = client.get_paginator(operation).paginate(**parameters)
        answer: dict[str, Any] = pages.build_full_result()
        return answer
