"""Ray: trials on its workers, what nodes have, jobs on a cluster's head."""
