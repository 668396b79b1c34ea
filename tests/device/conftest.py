"""Time for all tests of a device together: what there is none left for is skipped, and says so."""

import time

import pytest

BEGUN_S = time.monotonic()


@pytest.fixture(scope="session")
def device_seconds(request):
    """Return the time after which no test is begun."""
    return request.config.getoption("--device-seconds")


@pytest.fixture(autouse=True)
def _in_time(device_seconds):
    if time.monotonic() - BEGUN_S > device_seconds:
        pytest.skip(f"the {device_seconds:g} s for tests of a device are over; `make test-device SECONDS=…` gives more")
