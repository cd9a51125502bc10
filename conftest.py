"""What every machine needs: one thread a test process, and no verdict from a clock."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Two test processes that each start a thread a core wait for one another most of the time.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# A busy machine draws its examples slowly, and that is no failure.
settings.register_profile("every machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("every machine")
