"""One browser for all tests of the pages."""

import pytest

from tests.helpers.chromium import chromium


@pytest.fixture(scope="session")
def browser():
    with chromium() as driver:
        yield driver
