"""S3Store on a real S3 server."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from s3_server import BUCKET, S3Server
from storage.proxy import proxy

from slurmopt.errors import ConfigError, StorageError

pytest.importorskip("boto3")

from slurmopt.storage.s3 import parts
from slurmopt.storage.s3.store import S3Store

MIB = 1 << 20
PATIENT = 300.0
"""A deadline that no loaded machine passes."""


@pytest.fixture
def server(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    return use(s3_server, monkeypatch)


def use(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def prefix() -> str:
    """A place of one's own in the shared bucket."""
    return f"test/{uuid.uuid4().hex}"


@pytest.fixture
def store(server: S3Server, prefix: str) -> S3Store:
    return S3Store(f"s3://{BUCKET}/{prefix}", deadline=PATIENT)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", MIB)


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def read(store: S3Store, key: str, offset: int, size: int) -> bytes:
    buffer = bytearray(size)
    store.read_into(key, offset, memoryview(buffer))
    return bytes(buffer)


def there(server: S3Server, prefix: str) -> dict[str, Any]:
    """Objects and unfinished uploads below a prefix, by another client than ours."""
    client = server.client()
    objects = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    uploads = client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", [])
    return {"objects": [entry["Key"] for entry in objects], "uploads": [entry["Key"] for entry in uploads]}


def test_a_large_object_comes_back_as_it_was(store: S3Store) -> None:
    data = noise(70 * MIB + 13)
    pieces = [memoryview(data)[start : start + 3 * MIB] for start in range(0, len(data), 3 * MIB)]
    store.write("large", pieces)
    assert store.size("large") == len(data)
    assert read(store, "large", 0, len(data)) == data
    assert read(store, "large", 40 * MIB - 7, 15) == data[40 * MIB - 7 : 40 * MIB + 8]
    assert read(store, "large", len(data) - 1, 1) == data[-1:]


@pytest.mark.parametrize("sizes", [[], [0], [1], [MIB], [MIB, 1], [MIB - 1, 2, MIB - 1], [5 * MIB, 0, 3]])
def test_pieces_of_any_size_become_one_object(store: S3Store, small_parts: None, sizes: list[int]) -> None:
    pieces = [noise(size, seed) for seed, size in enumerate(sizes)]
    store.write("object", [memoryview(piece) for piece in pieces])
    assert store.get("object") == b"".join(pieces)


def test_pieces_of_numbers_are_bytes_too(store: S3Store) -> None:
    numbers = memoryview(noise(800)).cast("d")
    store.write("object", [numbers])
    back = bytearray(800)
    store.read_into("object", 0, memoryview(back).cast("d"))
    assert bytes(back) == numbers.tobytes()


def test_pieces_are_taken_only_when_there_is_room(store: S3Store, server: S3Server, small_parts: None) -> None:
    """A source that makes its pieces on the way never has all of them in memory."""
    alive: list[int] = []

    class Piece(bytearray):
        def __del__(self) -> None:
            alive.remove(id(self))

    def pieces() -> Iterator[memoryview]:
        for _ in range(100):
            piece = Piece(MIB)
            alive.append(id(piece))
            most.append(len(alive))
            yield memoryview(piece)

    most: list[int] = []
    store.write("object", pieces())
    assert store.size("object") == 100 * MIB
    assert max(most) < 40


def test_part_numbers_stay_below_the_limit_of_s3() -> None:
    sizes = [parts.part_size(number) for number in range(1, 10_001)]
    assert sum(sizes) > 5 * 2**40  # S3's largest object
    assert sizes[:1000] == [parts.PART] * 1000
    reached = next(number for number in range(10_000) if sum(sizes[:number]) > 5 * 2**40)
    assert max(sizes[:reached]) <= 5 * 2**30  # S3's largest part


def test_what_is_not_there(store: S3Store) -> None:
    for ask in (store.get, store.size, lambda key: read(store, key, 0, 1)):
        with pytest.raises(FileNotFoundError, match="no such object"):
            ask("missing")
    store.delete(["missing"])
    assert store.list("") == []


def test_a_range_beyond_the_end_is_an_error(store: S3Store) -> None:
    store.put_new("ten", b"0123456789")
    for offset, size in ((5, 6), (10, 1), (100, 1)):
        with pytest.raises(StorageError, match="too short"):
            read(store, "ten", offset, size)


def test_put_new_never_replaces(store: S3Store) -> None:
    assert store.put_new("record", b"first")
    assert not store.put_new("record", b"second")
    assert not store.put_new("record", b"first")
    assert store.get("record") == b"first"


def test_of_eight_racing_writers_one_wins(server: S3Server, prefix: str) -> None:
    stores = [S3Store(f"s3://{BUCKET}/{prefix}", deadline=PATIENT) for _ in range(8)]
    for race in range(5):
        barrier = threading.Barrier(len(stores))

        def put(number: int) -> bool:
            barrier.wait()  # noqa: B023 the pool ends within the turn
            return stores[number].put_new(f"record-{race}", str(number).encode())  # noqa: B023

        with ThreadPoolExecutor(len(stores)) as pool:
            won = list(pool.map(put, range(len(stores))))
        assert won.count(True) == 1
        assert stores[0].get(f"record-{race}") == str(won.index(True)).encode()


def test_a_put_whose_answer_is_lost_counts_as_ours(server: S3Server, prefix: str) -> None:
    """The first answer never comes: the second try finds an object, and it is the one that was put."""
    lost: list[int] = []

    with proxy(server.endpoint, lose_first_answer=lost) as endpoint:
        store = S3Store(f"s3://{BUCKET}/{prefix}", endpoint=endpoint, deadline=PATIENT)
        assert store.put_new("record", b"ours")
    assert lost
    assert store_of(server, prefix).get("record") == b"ours"


def store_of(server: S3Server, prefix: str, **options: Any) -> S3Store:
    return S3Store(f"s3://{BUCKET}/{prefix}", endpoint=server.endpoint, **{"deadline": PATIENT, **options})


def test_lists_and_deletes_over_many_pages(store: S3Store, server: S3Server, prefix: str) -> None:
    keys = [f"many/{number:04}" for number in range(130)]  # the server's pages have 100
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put_new(key, b"x"), [*keys, "other/key", "many-not/x"]))
    assert store.list("many/") == keys
    assert store.list("") == sorted([*keys, "other/key", "many-not/x"])
    assert store_of(server, f"{prefix}/many").list("") == [key.removeprefix("many/") for key in keys]
    store.delete(keys)
    assert store.list("") == ["many-not/x", "other/key"]


def test_keys_with_characters_that_urls_change(store: S3Store) -> None:
    for key in ("a b", "a+b", "a%2Fb", "ä=&?#", "step/UNIQUE~1.json"):
        store.put_new(key, key.encode())
        assert store.get(key) == key.encode()
        assert key in store.list("")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("AWS_SECRET_ACCESS_KEY", "guessed-secret", "wrong credentials"),
        ("AWS_ACCESS_KEY_ID", "nobody", "wrong credentials"),
    ],
)
def test_wrong_credentials_are_told_at_once(
    store: S3Store, server: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv(name, value)
    for ask in calls(store_of(server, prefix)):
        with pytest.raises(StorageError, match=told) as caught:
            ask()
        assert "\n" not in str(caught.value)
        assert value not in str(caught.value)


def calls(store: S3Store) -> list[Callable[[], object]]:
    """Everything a store does."""
    return [
        lambda: store.put_new("key", b"x"),
        lambda: store.get("key"),
        lambda: store.size("key"),
        lambda: store.list(""),
        lambda: store.delete(["key"]),
        lambda: store.write("key", [memoryview(b"x")]),
        lambda: store.read_into("key", 0, memoryview(bytearray(1))),
        lambda: store.abort_abandoned(""),
    ]


def test_no_credentials(server: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for ask in calls(store_of(server, prefix)):
        with pytest.raises(StorageError, match="no credentials; set AWS_ACCESS_KEY_ID"):
            ask()


def test_no_such_bucket(server: S3Server) -> None:
    for ask in calls(S3Store("s3://nowhere/run", deadline=PATIENT)):
        with pytest.raises(StorageError, match=f"there is no bucket nowhere at {server.endpoint}"):
            ask()


def test_nobody_listens(server: S3Server) -> None:
    # the client is made within the deadline too, which takes half a second of processor time
    asks = calls(S3Store("s3://nowhere/run", endpoint="http://127.0.0.1:1", deadline=6.0))
    with ThreadPoolExecutor(len(asks)) as pool:
        for answer in [pool.submit(ask) for ask in asks]:
            with pytest.raises(StorageError, match=r"not done within 6 s; last: nobody answers at http://127.0.0.1:1"):
                answer.result()


def test_a_host_that_does_not_exist(server: S3Server) -> None:
    store = S3Store("s3://nowhere/run", endpoint="http://no-such-host.invalid", deadline=5.0)  # a resolver may be slow
    with pytest.raises(StorageError, match=r"not done within 5 s; last: no such host: http://no-such-host.invalid"):
        store.get("key")


@pytest.mark.parametrize(
    "url", ["", "bucket/x", "http://bucket/x", "s3://", "s3://a", "s3://b_\n", "s3://bucket/a/../b"]
)
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        S3Store(url)
    assert caught.value.key == "checkpoint.s3.url"


def test_an_endpoint_that_is_none() -> None:
    for endpoint in ("localhost:9000", "ftp://host", "http://me:my-secret@host"):
        with pytest.raises(ConfigError) as caught:
            S3Store("s3://bucket", endpoint=endpoint)
        assert caught.value.key == "checkpoint.s3.endpoint"
        assert "my-secret" not in str(caught.value)


def test_an_upload_outlives_its_server(
    mortal_server: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch, small_parts: None
) -> None:
    store = store_of(use(mortal_server, monkeypatch), prefix)
    data = noise(40 * MIB)
    restarting = threading.Thread(target=mortal_server.restart)

    def pieces() -> Iterator[memoryview]:
        for start in range(0, len(data), MIB):
            if start == 20 * MIB:
                mortal_server.kill()
                restarting.start()
            yield memoryview(data)[start : start + MIB]

    store.write("object", pieces())
    restarting.join()
    assert read(store, "object", 0, len(data)) == data


def test_a_server_that_never_comes_back(
    mortal_server: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch, small_parts: None
) -> None:
    store = store_of(use(mortal_server, monkeypatch), prefix, deadline=5.0)
    data = noise(20 * MIB)

    def pieces() -> Iterator[memoryview]:
        for start in range(0, len(data), MIB):
            if start == 10 * MIB:
                mortal_server.kill()
            yield memoryview(data)[start : start + MIB]

    with pytest.raises(StorageError, match=r"not done within 5 s"):
        store.write("object", pieces())
    mortal_server.restart()
    assert there(mortal_server, prefix)["objects"] == []
    patient = store_of(mortal_server, prefix)
    assert patient.abort_abandoned("") == 1
    assert there(mortal_server, prefix)["uploads"] == []


def test_a_server_at_one_kibibyte_a_second(server: S3Server, store: S3Store, prefix: str, small_parts: None) -> None:
    data = noise(4 * MIB)
    store.write("object", [memoryview(data)])
    with proxy(server.endpoint, bytes_per_second=1024) as endpoint:
        slow = S3Store(f"s3://{BUCKET}/{prefix}", endpoint=endpoint, deadline=2.0)
        for ask in (
            lambda: slow.write("other", [memoryview(data)]),
            lambda: slow.put_new("other", data),
            lambda: read(slow, "object", 0, len(data)),
            lambda: slow.get("object"),
        ):
            assert ends_at_its_deadline(ask)
    assert store.list("") == ["object"]


def test_a_server_that_never_answers(server: S3Server, prefix: str) -> None:
    with proxy(server.endpoint, spoil=lambda data, _: b"") as endpoint:
        for ask in calls(S3Store(f"s3://{BUCKET}/{prefix}", endpoint=endpoint, deadline=1.0)):
            assert ends_at_its_deadline(ask)


def ends_at_its_deadline(ask: Callable[[], object]) -> bool:
    """Whether it fails for the deadline; the thread is one that may hang for ever."""
    seen: list[BaseException] = []

    def call() -> None:
        try:
            ask()
        except StorageError as error:
            seen.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(60)
    return bool(seen) and "not done within" in str(seen[0])


def test_a_part_that_changes_on_its_way_is_refused_and_sent_again(
    server: S3Server, store: S3Store, prefix: str
) -> None:
    flipped: list[int] = []

    def flip(data: bytes, position: int) -> bytes:
        if flipped or position < MIB:
            return data
        flipped.append(position)
        return bytes([data[0] ^ 1]) + data[1:]

    data = noise(34 * MIB)
    with proxy(server.endpoint, spoil=flip) as endpoint:
        S3Store(f"s3://{BUCKET}/{prefix}", endpoint=endpoint, deadline=PATIENT).write("object", [memoryview(data)])
    assert flipped
    assert read(store, "object", 0, len(data)) == data


def test_a_line_that_changes_every_part_is_told(server: S3Server, store: S3Store, prefix: str) -> None:
    def flip(data: bytes, position: int) -> bytes:
        return (
            data[:-1] + bytes([data[-1] ^ 1]) if len(data) > 8192 else data
        )  # so much is never a request's head alone

    data = noise(MIB)
    with proxy(server.endpoint, spoil=flip) as endpoint:
        spoiled = S3Store(f"s3://{BUCKET}/{prefix}", endpoint=endpoint, deadline=3.0)
        with pytest.raises(StorageError, match=r"not done within 3 s; last: S3 refuses PutObject: BadDigest"):
            spoiled.write("object", [memoryview(data)])
    assert store.list("") == []


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_an_upload_that_fails_leaves_nothing(
    server: S3Server, store: S3Store, prefix: str, small_parts: None, failure: type[BaseException]
) -> None:
    def pieces() -> Iterator[memoryview]:
        for number in range(10):
            if number == 5:
                raise failure
            yield memoryview(bytes(MIB))

    with pytest.raises(failure):
        store.write("object", pieces())
    assert there(server, prefix) == {"objects": [], "uploads": []}
    assert threading.active_count() == len([one for one in threading.enumerate() if not one.name.startswith("s3")])


def test_abandoned_uploads_are_aborted_below_their_prefix_only(server: S3Server, store: S3Store, prefix: str) -> None:
    client = server.client()
    for key in ("dead/a", "dead/b", "alive/a"):
        upload = client.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}/{key}")
        client.upload_part(
            Bucket=BUCKET, Key=f"{prefix}/{key}", UploadId=upload["UploadId"], PartNumber=1, Body=b"x" * 2048
        )
    assert store.abort_abandoned("dead/") == 2
    assert there(server, prefix)["uploads"] == [f"{prefix}/alive/a"]
    assert store.abort_abandoned("dead/") == 0


def test_one_store_serves_many_threads(store: S3Store, small_parts: None) -> None:
    def turn(number: int) -> bool:
        data = noise(3 * MIB, number)
        store.write(f"object-{number}", [memoryview(data)])
        return read(store, f"object-{number}", 0, len(data)) == data

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(turn, range(12)))


def test_place_is_what_a_person_would_name(server: S3Server) -> None:
    assert S3Store("s3://checkpoints/run/one/").place == "s3://checkpoints/run/one"
    assert S3Store("s3://checkpoints").place == "s3://checkpoints"


def test_two_servers_side_by_side_and_after_a_kill(
    server: S3Server, mortal_server: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = store_of(server, prefix), store_of(mortal_server, prefix)
    second.put_new("kept", b"over the kill")
    assert first.list("") == []
    mortal_server.kill()
    mortal_server.restart()
    assert second.get("kept") == b"over the kill"
