"""Where public files of other tools lie: `NEARPEAK_SAMPLES`, else beside the checkout."""

import os
from pathlib import Path

import pytest

SAMPLES = Path(os.environ.get("NEARPEAK_SAMPLES") or Path(__file__).resolve().parents[2] / "shared" / "samples")
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no folder of public files (NEARPEAK_SAMPLES names it)")
"""Mark of tests that read them."""
