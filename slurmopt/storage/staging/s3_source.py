"""A prefix of a bucket, or a single object, as a source. The objects below the prefix become files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from slurmopt.errors import StagingError, StorageError, StorageRefused, one_line
from slurmopt.storage.s3.parallel import CONNECTIONS
from slurmopt.storage.s3.store import S3Store
from slurmopt.storage.s3.transport import operation
from slurmopt.storage.staging import listing
from slurmopt.storage.staging.listing import File, Listing, SourceChanged

_MD5 = re.compile(r'"[0-9a-f]{32}"')
"""The ETag of an object that was put in one piece, in most cases."""


class S3Source:
    """`place`: s3://BUCKET/PREFIX, or the URL of one object. `options` are those of S3Store."""

    threads = CONNECTIONS

    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self.place = place.rstrip("/")
        self.identity = f"{options.get('endpoint') or ''} {self.place}"
        with s3_errors(self.place):
            self._whole = S3Store(self.place, **options)
            parent, _, self._name = self.place.rpartition("/")
            # Its keys begin with the name of the prefix, so that an object of that very name is found as well.
            self._parent = self._whole if parent == "s3:/" else S3Store(parent, **options)
        self._is_bucket = self._parent is self._whole
        self._is_object = False
        self._is_aws = options.get("endpoint") is None and not os.environ.get("AWS_ENDPOINT_URL_S3")

    def holds(self, path: str) -> bool:
        return False

    def listing(self) -> Listing:
        with s3_errors(self.place):
            prefix = "" if self._is_bucket else f"{self._name}/"
            objects = self._objects(self._parent, prefix)
            if not objects and not self._is_bucket:
                objects = [each for each in self._objects(self._parent, self._name) if each["Key"] == self._name]
                self._is_object = bool(objects)
        if not objects:
            raise StagingError(one_line(f"{self.place}: there is no object of this name or below it"), "user")
        if self._is_object:
            return Listing(self._name, (_file("", objects[0]),), is_folder=False)
        files = [_file(each["Key"][len(prefix) :], each) for each in objects if not each["Key"].endswith("/")]
        for file in files:
            self._refuse(file.path)
        folders = _folders(files)
        for both in sorted(folders & {file.path for file in files}):
            text = f"{self.place}/{both} is an object, and others are below it: no file can be a folder too"
            raise StagingError(one_line(text), "user")
        return Listing(self._name, tuple(sorted(files, key=lambda file: file.path)), tuple(sorted(folders)))

    def _objects(self, store: S3Store, prefix: str) -> list[dict[str, Any]]:
        """The objects whose keys begin with `prefix`; their keys are relative to the store."""
        found: list[dict[str, Any]] = []
        continuation: dict[str, str] = {}
        with operation(store.deadline):
            while True:
                request = {"Bucket": store.bucket, "Prefix": store.key(prefix), **continuation, **store.payer}
                answer = store.attempt(lambda: store.client.list_objects_v2(**request), prefix)  # noqa: B023
                skipped = len(store.key(""))
                found += [{**each, "Key": each["Key"][skipped:]} for each in answer.get("Contents", [])]
                if not answer.get("IsTruncated"):
                    return found
                continuation = {"ContinuationToken": answer["NextContinuationToken"]}

    def _refuse(self, path: str) -> None:
        parts = path.split("/")
        if {"", ".", ".."} & set(parts) or "\0" in path or max(map(len, parts)) > 255:
            raise StagingError(one_line(f"{self.place}/{path} is a name that no file can have"), "user")

    @contextlib.contextmanager
    def open(self, file: File) -> Iterator[_ObjectReader]:
        key = self._name if self._is_object else file.path if self._is_bucket else f"{self._name}/{file.path}"
        reader = _ObjectReader(self._parent, key, file, self._is_aws)
        with s3_errors(self.place), operation(self._parent.deadline), contextlib.closing(reader):
            yield reader
            reader.check()


class _ObjectReader:
    """Reads a chunk of an object in order, by one request; after an outage another one goes on."""

    def __init__(self, store: S3Store, key: str, file: File, is_aws: bool) -> None:
        self._store, self._key, self._file, self._is_aws = store, key, file, is_aws
        self._body: Any = None
        self._at = 0
        has_md5 = file.chunks == 1 and _MD5.fullmatch(file.stamp) is not None
        self._md5 = hashlib.md5(usedforsecurity=False) if has_md5 else None

    def read_into(self, offset: int, buffer: memoryview) -> int:
        done = 0

        def fetch() -> None:
            nonlocal done
            try:
                self._ask_from(offset + done)
                while done < len(buffer) and (block := self._body.read(len(buffer) - done)):
                    buffer[done : done + len(block)] = block
                    done += len(block)
                    self._at += len(block)
                if done < len(buffer):
                    raise StorageError(f"{self._store.url(self._key)} ended too early")
            except BaseException:
                self.close()
                raise

        try:
            self._store.attempt(fetch, self._key)
        except (FileExistsError, FileNotFoundError):  # another ETag, or removed
            raise SourceChanged(self._store.url(self._key)) from None
        if self._md5 is not None:
            self._md5.update(buffer)
        return done

    def _ask_from(self, offset: int) -> None:
        if self._body is not None and self._at == offset:
            return
        self.close()
        wanted = f"bytes={offset}-{self._file.range(offset // listing.CHUNK)[1] - 1}"
        answer = self._store.request("get_object", self._key, Range=wanted, IfMatch=self._file.stamp)
        self._body, self._at = answer["Body"], offset
        if (how := answer.get("ServerSideEncryption")) is not None and not (self._is_aws and how == "AES256"):
            self._md5 = None  # the ETag is not the MD5 then

    def check(self) -> None:
        """Raises StagingError if the whole object was read, and is not what its ETag says."""
        if self._md5 is not None and self._file.size and f'"{self._md5.hexdigest()}"' != self._file.stamp:
            raise StagingError(f"{self._store.url(self._key)} has arrived with another MD5 than its ETag", "source")

    def close(self) -> None:
        """Ends the request, if one is open."""
        if self._body is not None:
            self._body.close()
            self._body = None

    def next_data(self, offset: int, end: int) -> tuple[int, int]:
        return offset, end


def _file(path: str, found: dict[str, Any]) -> File:
    modified = int(found["LastModified"].timestamp() * 1e9)
    return File(path, int(found["Size"]), str(found["ETag"]), modified)


def _folders(files: list[File]) -> set[str]:
    parents = {str(parent) for file in files for parent in PurePosixPath(file.path).parents}
    return parents - {"."}


@contextlib.contextmanager
def s3_errors(place: str) -> Iterator[None]:
    """Turns a StorageError into a StagingError that says who is at fault."""
    try:
        yield
    except StagingError:
        raise
    except StorageError as error:
        fault = "user" if isinstance(error, StorageRefused) else "source"
        text = str(error)
        raise StagingError(text if place in text else f"{place}: {text}", fault) from error


def open_source(place: str, options: dict[str, Any]) -> S3Source:
    """The source at an s3:// URL."""
    return S3Source(place, options)
