"""What every test shares: one thread, no network, repeatable examples."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

# Before torch and transformers are imported, here and in every process that a test starts.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from spanwright.encoder import Encoder

settings.register_profile(
    "spanwright", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("thorough", parent=settings.get_profile("spanwright"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "spanwright"))

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of the test data: some twenty sentences of each corpus."""
    return ROOT / "tests" / "data"


@pytest.fixture
def tiny() -> Encoder:
    """The encoder for tests: small, the same weights every time."""
    # Imported here, so that tests without torch start at once.
    from spanwright.encoder import tiny_encoder

    return tiny_encoder()
