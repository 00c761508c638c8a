"""Two policies on the same requests, and a chart of them: the ten lines of a notebook."""

import plotly.express as px

import schedbench as sb

runs = sb.run(gpu="l40s", policy="v1,ebplus", workload="sharegpt", requests=2000, concurrency=512, repeat=3)
print(runs.summary[["policy", "repeat", "output_throughput_tok_per_s", "ttft_p99_s", "tpot_mean_s", "verdict"]])
print(sb.compare(runs))
requests = runs.requests().assign(ttft_s=lambda frame: frame.first_token_s - frame.sent_s)
figure = px.ecdf(requests, x="ttft_s", color="policy", title="Time to first token, all repeats")
figure.write_html("ttft.html", include_plotlyjs=True)
print("the chart is ttft.html")
