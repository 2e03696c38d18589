"""Ranks meet at a store, and know who is missing."""

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from time import monotonic, sleep

import pytest
from torch.distributed import HashStore

from clock import within
from penstock.errors import RunError, ShapeError
from penstock.run.launch.start import LocalRanks
from penstock.run.process.environment import RankPlace
from penstock.run.process.store import assemble, clone, host, of_attempt, own_part, peek, store_of
from penstock.run.watchdog import first_cause

pytestmark = pytest.mark.torch


def test_ranks_that_have_all_come_go_on() -> None:
    store = HashStore()
    with ThreadPoolExecutor(3) as pool:
        came = [pool.submit(assemble, store, RankPlace(rank, 3), 20.0) for rank in range(3)]
    assert [each.result() for each in came] == [None] * 3


def test_ranks_that_do_not_come_are_named() -> None:
    with pytest.raises(RunError, match=r"rank 0, 2 of 3 has not connected within 0\.1 s"):
        assemble(HashStore(), RankPlace(1, 3), 0.1)


def test_what_an_earlier_attempt_stored_is_not_seen() -> None:
    store = HashStore()
    first, second = (of_attempt(store, RankPlace(attempt=attempt)) for attempt in range(2))
    first.set("cause", "old")
    assert peek(first, "cause") == "old"
    assert peek(second, "cause") == ""


def test_a_clone_and_another_rank_see_what_is_stored() -> None:
    server = host()
    first, second = (
        store_of(RankPlace(rank, 2, rank, 2, port=server.port, hosted=True)) for rank in range(2)
    )
    first.set("key", "value")
    assert first.get("key") == b"value"  # answered, so it is stored: `set` waits for no answer
    assert peek(clone(first), "key") == peek(second, "key") == "value"


def reachable(address: str, port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex((address, port)) == 0


def test_the_store_of_a_run_on_this_machine_listens_on_loopback_alone() -> None:
    server = host()
    assert reachable("127.0.0.1", server.port)
    assert not reachable("127.0.0.2", server.port)  # as any other address of this machine


def test_rank_0_hosts_the_store_at_the_address_that_it_was_given() -> None:
    port = host().port  # free again
    place = RankPlace(0, 2, address="127.0.0.2", port=port)
    store = store_of(place)
    assert reachable("127.0.0.2", port)
    assert not reachable("127.0.0.1", port)
    assert peek(store, "key") == ""


def test_an_address_of_another_machine_cannot_be_hosted() -> None:
    with pytest.raises(ShapeError, match=r"cannot host the store at 192\.0\.2\.1:29500"):
        store_of(RankPlace(0, 2, address="192.0.2.1", port=29500))


def test_a_port_that_is_taken_cannot_be_hosted() -> None:
    server = host()
    with pytest.raises(ShapeError, match="Address already in use"):
        store_of(RankPlace(0, 2, port=server.port))


def test_who_does_not_know_the_secret_does_not_end_the_run() -> None:
    """A cause that a stranger claims is not among the keys of the run."""
    places = LocalRanks(1)
    assert len(places.place(0).secret) == 32
    stranger = store_of(replace(places.place(0), secret=""))
    assert first_cause.claim(own_part(stranger), 0, "nothing")
    assert first_cause.first(places.store) is None
    assert first_cause.claim(own_part(store_of(places.place(0))), 0, "something")
    assert first_cause.first(places.store) == first_cause.Cause(0, "something")


def test_a_store_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    port = host().port  # nobody listens there once the store is gone
    monkeypatch.setattr("penstock.run.process.store.MEETING", timedelta(seconds=1))
    monkeypatch.setattr("penstock.run.process.listener.NOTICE_AFTER", 0.5)
    with (
        within(5, monotonic),
        pytest.raises(RunError, match=f"rank 1 cannot reach the store at 127.0.0.1:{port}") as no,
    ):
        store_of(RankPlace(1, 2, port=port, hosted=True))
    assert no.value.message.endswith("within 1 s: Connection refused")
    waits = f"rank 1 waits for the store at 127.0.0.1:{port} (Connection refused), up to 1 s"
    assert capfd.readouterr().err.splitlines()[0] == waits


def test_a_name_that_nobody_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("penstock.run.process.listener.socket.getaddrinfo", unknown)
    monkeypatch.setattr("penstock.run.process.store.MEETING", timedelta(seconds=0.2))
    message = r"store at no\.such:29500 within 0\.2 s: Name or service not known"
    with pytest.raises(RunError, match=message):
        store_of(RankPlace(1, 2, 1, 2, address="no.such", port=29500))


def test_a_store_that_comes_late_is_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = int(chosen.getsockname()[1])
    with ThreadPoolExecutor(1) as other:
        late = other.submit(store_of, RankPlace(1, 2, 1, 2, port=port))
        sleep(0.5)
        server = host(port=port)
        late.result().set("key", "value")
    # `set` waits for no answer, so that the other end waits for the key.
    assert of_attempt(server, RankPlace(0, 2, port=port)).get("key") == b"value"
    assert capfd.readouterr() == ("", "")
