"""A model of its own for each test, so that tests of one broker do not meet."""

import pytest

from schemas import ids, subjects


@pytest.fixture
def model_key() -> str:
    return subjects.model_key(ids.new_generation_id())
