"""Commands that answer a question from the configured database, or through a running service."""

import asyncio
import json
from typing import Any, BinaryIO

import click
import httpx2

from service.app import create_app
from service.ci.job_file import JobFileWrong, read_job, with_limits
from service.ci.report import FORMATS, UNANSWERED, exit_code
from service.domain.errors import Unusable
from service.settings import read_settings

PATIENCE_SECONDS = 120


class ServiceSilent(Unusable):
    """A running service does not answer at its URL."""


@click.command()
@click.argument("file", type=click.File("rb"))
def recommend(file: BinaryIO) -> int:
    """Answer the question in FILE.

    FILE holds the body of POST /recommend; - is standard input.
    """
    return _ask("POST", "/recommend", content=file.read(), headers={"Content-Type": "application/json"})


@click.command()
@click.argument("filters", nargs=-1, metavar="[FILTER]...")
def instances(filters: tuple[str, ...]) -> int:
    """List instance types.

    The filters are those of GET /instances, for example: precision=bf16 sort=usd_per_hour limit=10
    """
    return _ask("GET", "/instances", params=[text.partition("=")[::2] for text in filters])


def _ask(method: str, path: str, **request: Any) -> int:
    """Asks the service in this process, without a server, and prints the answer."""
    answer = asyncio.run(_answer_to(method, path, **request))
    print(json.dumps(answer.json(), indent=2))
    return 0 if answer.is_success else 1


async def _answer_to(method: str, path: str, **request: Any) -> httpx2.Response:
    # Anyone who can open the database can read it, and the name of the host is not that of a server.
    settings = read_settings(open_reads=True, allowed_hosts="")
    within = httpx2.ASGITransport(app=create_app(settings), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=within, base_url="http://in-process") as client:
        return await client.request(method, path, **request)


@click.command()
@click.option("--file", type=click.File("rb"), required=True, help="The body of POST /estimate as YAML or JSON.")
@click.option(
    "--url", help="URL of a running service, which may need SELECTOR_KEY; by default the configured database answers."
)
@click.option("--baseline", type=float, metavar="USD", help="The previous cost of the job.")
@click.option("--fail-above", type=float, metavar="PERCENT", help="The allowed increase over the baseline.")
@click.option("--budget", type=float, metavar="USD", help="The highest allowed cost.")
@click.option("--format", "shape", type=click.Choice(sorted(FORMATS)), default="table", show_default=True)
def estimate(
    file: BinaryIO, url: str | None, baseline: float | None, fail_above: float | None, budget: float | None, shape: str
) -> int:
    """Price a job, as a check in CI.

    The exit code is 0 if its cost is allowed, 1 if it is not, and 2 if it is unknown.
    """
    try:
        answer = _estimate_at(url, with_limits(read_job(file.read()), baseline, fail_above, budget))
    except (JobFileWrong, Unusable) as error:
        click.echo(error, err=True)
        return UNANSWERED
    if not answer.is_success:
        click.echo(_problem_of(answer), err=True)
        return UNANSWERED
    print(FORMATS[shape](answer.json()))
    return exit_code(answer.json())


def _estimate_at(url: str | None, body: dict[str, Any]) -> httpx2.Response:
    """Returns the answer of a running service, or of the service in this process. Raises `ServiceSilent`."""
    try:
        if url is None:
            return asyncio.run(_answer_to("POST", "/estimate", json=body))
        key = read_settings().key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx2.post(f"{url.rstrip('/')}/estimate", json=body, headers=headers, timeout=PATIENCE_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise ServiceSilent(f"{url or 'The service'} does not answer: {error}") from None


def _problem_of(answer: httpx2.Response) -> str:
    """Returns the detail of a problem, or a sentence with the status of another answer."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"The service answered with status {answer.status_code} and without a reason."
