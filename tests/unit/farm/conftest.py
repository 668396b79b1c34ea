"""Stores with devices, on SQLite and on a PostgreSQL server of the tests, and batches of small programs."""

import sys
import uuid

import pytest
from tests.unit.store.conftest import make_place, place, postgresql, store  # noqa: F401

from nearpeak.farm.device_registry import register
from nearpeak.farm.job_queue import submit, waiting
from nearpeak.farm.jobs import BatchRequest, Device, JobRequest


@pytest.fixture
def names():
    """Two devices that no other test, and no measurement on this machine, has."""
    return [f"fake-{uuid.uuid4().hex[:8]}-{number}" for number in range(2)]


@pytest.fixture
def farm(store, names):  # noqa: F811
    register(store, [Device(name=name) for name in names])
    return store


def program(code, key="", *, limit_s=20.0, **options):
    """A batch of one program of Python."""
    payload = {"words": [sys.executable, "-c", code], "limit_s": limit_s}
    job = JobRequest(kind="command", payload=payload, key=key)
    return BatchRequest(jobs=(job,), pool="device", **options)


def queued(store, *requests):  # noqa: F811
    """Identities of new batches within the store, in order."""
    assert not submit(store, requests).refused
    known = {one.uid: one.id for one in waiting(store)}
    return [known[one.uid] for one in requests]


def errand(store, names, batch, **more):  # noqa: F811
    """What an execution is told."""
    return {
        "batch": batch,
        "pool": "device",
        "devices": list(names),
        "ttl_s": 5.0,
        "wait_s": 0.0,
        "grace_s": 0.5,
        **more,
    }
