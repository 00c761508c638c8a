"""Hypothesis profiles: `default` for each run, `soak` for `make soak`."""

import os

from hypothesis import HealthCheck, settings

# Times on shared machines are noisy: no deadline, and a slow draw is no fault of the code under test.
COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "derandomize": True}
settings.register_profile("default", max_examples=60, **COMMON)  # type: ignore[arg-type]
settings.register_profile("soak", max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
