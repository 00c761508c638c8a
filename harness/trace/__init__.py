"""`bench trace`: workloads without a run."""
