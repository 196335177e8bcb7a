"""Ray: trials on its workers, what nodes have, jobs on a cluster's head.

Importing anything of this package sets the variables below, before Ray can be imported by it."""

import os

# Read by Ray when it is imported. Its own loggers, snapshots and progress tables cost time per
# trial and show nothing that the ledger does not have.
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1000000000")
os.environ.setdefault("TUNE_WARN_THRESHOLD_S", "1000")
# The searcher decides how many trials may wait for resources.
os.environ.setdefault("TUNE_MAX_PENDING_TRIALS_PG", "10000")
# A trial that failed reports its reason instead of a metric.
os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
