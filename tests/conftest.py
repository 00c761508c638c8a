"""Hypothesis profiles: `default` for each run, `soak` for `make soak`."""

import os
import signal
import sys

from hypothesis import HealthCheck, settings

# Times on shared machines are noisy: no deadline, and a slow draw is no fault of the code under test.
COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", parent=COMMON, max_examples=60, derandomize=True)
settings.register_profile("soak", parent=COMMON, max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Where it is set, each process of a test would compile all of bench, and all of vLLM, again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell that starts the tests with `&`, and nohup, leave these ignored: every process of a test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
