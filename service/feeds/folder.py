"""Reads documents of feeds from a folder, a file or a zip: with the manifest of `feeds fetch`, or one by one.

A machine without internet gets its prices in this way. The parsers and checks are the same as after a fetch.
"""

import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath

from service.db.feeds.documents import Origin, name_of_part
from service.domain.errors import Unusable
from service.feeds.fetch import FetchedDocument
from service.feeds.importing import Documents
from service.feeds.listing import DocumentRefused
from service.feeds.reading import GZIP_MAGIC, plain
from service.feeds.registry import SOURCES, FeedSource

MANIFEST = "manifest.json"
MARKED_WITHIN = 8192
VERSION_FILE = "version"
SHAPES_FILE = "shapes.json"


class FolderUnusable(Unusable):
    """A folder, file or zip cannot be imported; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """A fetched document: its address, when it was fetched, and the file with its content."""

    feed: str
    part: str
    url: str
    fetched_at: str
    etag: str | None
    last_modified: str | None
    sha256: str
    bytes: int
    file: str


@dataclass(frozen=True, slots=True)
class FolderPart:
    """The documents of a part, or a sentence that says why a file is no document of a feed."""

    name: str
    source: FeedSource | None
    documents: Documents | None
    problem: str | None


def documents_in(path: Path, observed_at: datetime, feed: str | None = None) -> Iterator[FolderPart]:
    """Yields the documents under a path, by the manifest if there is one, else by the names of files.

    Files without a manifest count as fetched at `observed_at`, each a second after the one before. `feed` is the feed
    of files that cannot be recognised. Raises `FolderUnusable`.
    """
    files = _files(path)
    if MANIFEST in files:
        yield from _of_manifest(files)
        return
    names = [name for name in sorted(files) if PurePosixPath(name).name not in (VERSION_FILE, SHAPES_FILE)]
    for index, name in enumerate(names):
        yield _recognised(name, files, observed_at + timedelta(seconds=index), feed)


def write_manifest(folder: Path, entries: Sequence[ManifestEntry]) -> None:
    """Writes the manifest of a folder of fetched documents."""
    text = json.dumps([asdict(entry) for entry in entries], indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _files(path: Path) -> dict[str, bytes]:
    try:
        if path.is_dir():
            files = (file for file in sorted(path.rglob("*")) if file.is_file())
            return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if MANIFEST in archive.namelist() or len(archive.namelist()) > 1:
                    return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
        return {path.as_posix().lstrip("/"): path.read_bytes()}
    except (OSError, zipfile.BadZipFile) as error:
        raise FolderUnusable(f"{path} cannot be read: {error}.") from None


def _of_manifest(files: Mapping[str, bytes]) -> Iterator[FolderPart]:
    try:
        entries = [ManifestEntry(**entry) for entry in json.loads(files[MANIFEST])]
    except (ValueError, TypeError) as error:
        raise FolderUnusable(f"{MANIFEST} is not a manifest: {error}.") from None
    parts: dict[tuple[str, str], list[ManifestEntry]] = {}
    for entry in entries:
        parts.setdefault((entry.feed, entry.part), []).append(entry)
    for (feed, part), documents in parts.items():
        name, problem = name_of_part(feed, part), _problem_of(documents, files)
        if problem or feed not in SOURCES:
            yield FolderPart(name, SOURCES.get(feed), None, problem or f"No feed is called {feed!r}.")
            continue
        yield FolderPart(name, SOURCES[feed], _documents(documents, files), None)


def _problem_of(entries: Sequence[ManifestEntry], files: Mapping[str, bytes]) -> str | None:
    for entry in entries:
        if entry.file not in files:
            return f"{entry.file} is in the manifest but not in the folder."
        if hashlib.sha256(files[entry.file]).hexdigest() != entry.sha256:
            return f"{entry.file} is not the file that was fetched: its SHA-256 differs from the manifest."
    return None


def _documents(entries: Sequence[ManifestEntry], files: Mapping[str, bytes]) -> Documents:
    last = entries[-1]
    moment = datetime.fromisoformat(last.fetched_at)
    origin = Origin(url=last.url, fetched_at=moment, etag=last.etag, last_modified=last.last_modified)
    bodies = [files[entry.file] for entry in entries]
    return Documents(part=last.part, origin=origin, bodies=bodies, shown_when_fetched=True)


def _recognised(name: str, files: Mapping[str, bytes], at: datetime, feed: str | None) -> FolderPart:
    try:
        body = files[name]
        source = SOURCES[feed] if feed else _source_of(name, body)
    except DocumentRefused as refused:
        return FolderPart(name, None, None, str(refused))
    if source is None:
        return FolderPart(name, None, None, "The file is not a document of any known feed.")
    companions = _companions(name, source, files)
    documents = Documents(
        part=_part_of(name, source),
        origin=Origin(url=f"file:{name}", fetched_at=at),
        bodies=[*companions, body],
        complete=not source.in_pages,
    )
    return FolderPart(name, source, documents, None)


def _source_of(name: str, body: bytes) -> FeedSource | None:
    if body[:2] == b"PK":
        return SOURCES["gpuhunt"]
    head = plain(body)[:MARKED_WITHIN] if body.startswith(GZIP_MAGIC) else body[:MARKED_WITHIN]
    marked = [source for source in SOURCES.values() if any(mark in head for mark in source.marks)]
    if marked:
        return marked[0]
    folders = PurePosixPath(name).parts
    return next((SOURCES[folder] for folder in folders if folder in SOURCES), None)


def _part_of(name: str, source: FeedSource) -> str:
    """Returns the part of the feed that a file belongs to, such as `aws` for `v8/aws/vms.csv`, else its own name."""
    if source.parts == ("",):
        return ""
    path = PurePosixPath(name)
    by_length = sorted(source.parts, key=len, reverse=True)
    words = [*reversed(path.parts[:-1]), path.stem.replace("_", "-")]
    named = (part for word in words for part in by_length if f"-{part}-" in f"-{word}-")
    return next(named, path.stem)


def _companions(name: str, source: FeedSource, files: Mapping[str, bytes]) -> list[bytes]:
    """Returns the documents that a document needs: the version of a gpuhunt archive, the shapes of Oracle Cloud."""
    folder = PurePosixPath(name).parent
    wanted = {"gpuhunt": folder.parent / VERSION_FILE, "oci": folder / SHAPES_FILE}.get(source.id)
    body = files.get(str(wanted)) if wanted else None
    return [body] if body else []


def manifest_entry(feed: str, part: str, document: FetchedDocument, file: str) -> ManifestEntry:
    """Returns the entry of a document that was fetched into a file."""
    return ManifestEntry(
        feed=feed,
        part=part,
        **{**asdict(document.origin), "fetched_at": document.origin.fetched_at.isoformat()},
        sha256=hashlib.sha256(document.body).hexdigest(),
        bytes=len(document.body),
        file=file,
    )
