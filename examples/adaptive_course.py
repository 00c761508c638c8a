"""What `adaptive` takes and believes while the lengths of requests shift, and what v1 and EB give there."""

import pandas as pd

import schedbench as sb

runs = sb.run(
    gpu="rtxpro6000",
    policy="v1,eb:theta=0.05,adaptive",
    workload="drift:distribution",
    requests=1500,
    slots=128,
    concurrency=160,
    cost_model="linear",
    alone=True,
)
phases = runs[0].manifest["provenance"]["trace"]["phases"]
firsts, names = ([phase[key] for phase in phases] for key in ("first_row", "name"))
rows = runs.requests()
rows["phase"] = pd.cut(rows.row, [*firsts, len(rows)], right=False, labels=names)
ends = rows.groupby(["phase", "policy"], observed=True).last_token_s
pace = ends.agg(lambda end: 1e3 * (end.max() - end.min()) / (len(end) - 1))
print("ms from one finished request to the next")
print(pace.unstack().round(2))

# While somebody waits: what is left when all have come tells nothing.
steps = runs.where(policy="adaptive").steps().query("waiting > 0").copy()
steps["part"] = pd.cut(steps.t_s, 10).apply(lambda span: round(span.right))
course = steps.groupby("part", observed=True).agg(
    mode=("policy_mode", "last"),
    k=("policy_k", "last"),
    mixed_ms=("cost_mixed_s", "last"),
    exclusive_ms=("cost_exclusive_s", "last"),
    probes=("policy_probes", "last"),
    budget=("policy_budget", "last"),
)
print("what adaptive held to be true up to that second: its mode, and a request's cost with either kind of step")
print(course.assign(mixed_ms=1e3 * course.mixed_ms, exclusive_ms=1e3 * course.exclusive_ms).round(2))
