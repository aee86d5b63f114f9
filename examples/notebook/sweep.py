#!/usr/bin/env python3
"""Sweeps congestion control and load of a scenario, reads the tables with pandas, and draws them with matplotlib.

usage: sweep.py SCENARIO [FOLDER]

It needs rocesim in the PATH, or its name in ROCESIM, and the packages python3-pandas and python3-matplotlib of Debian or Ubuntu.
The cells (# %%) also run one by one in Jupyter or an editor. A second run with the same folder continues the sweep, or only draws.
"""

# %% Run the sweep
import os
import pathlib
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")  # no display; remove it in Jupyter
import matplotlib.pyplot as plt
import pandas as pd

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
scenario = sys.argv[1]
folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "out-sweep")

CONTROL = "transport.congestion"
LOAD = "workload.0.load"
subprocess.run(
    [
        os.environ.get("ROCESIM", "rocesim"), "sweep", scenario, "--out", str(folder), "--format", "csv", "--seeds", "1..3",
        "--vary", CONTROL + "=[{name: dctcp}, {name: hpcc}, {name: swift}]", "--vary", LOAD + "=0.3,0.6",
    ],
    check=True,
    stdout=subprocess.DEVNULL,  # the table is below
)

# %% A table: a row for each run, means and standard errors over the seeds
runs = pd.read_csv(folder / "runs.csv")
runs["control"] = runs[CONTROL].str.extract(r"name: ([a-z-]+)", expand=False)
table = runs.groupby([LOAD, "control"])[["slowdown_mean", "slowdown_p99", "goodput_bps", "peak_queue_bytes"]].agg(["mean", "sem"])
print(table.round(2).to_string())

# %% Messages of all runs, with the values of their run
flows = pd.read_csv(folder / "flows.csv").merge(runs[["run", "control", LOAD, "seed"]], on="run")
sizes = [0, 1e4, 1e5, 1e6, float("inf")]
names = ["to 10 KB", "to 100 KB", "to 1 MB", "above"]
flows["size"] = pd.cut(flows["bytes"], sizes, labels=names)
tail = flows.groupby([LOAD, "size", "control"], observed=True)["slowdown"].quantile(0.99).unstack("control")
print(tail.round(2).to_string())

# %% A picture: the 99th percentile by size, one panel for each load
loads = sorted(runs[LOAD].unique())
figure, panels = plt.subplots(1, len(loads), figsize=(5 * len(loads), 4), sharey=True, squeeze=False)
for panel, load in zip(panels[0], loads):
    tail.loc[load].plot.bar(ax=panel, rot=0, title="load %g" % load)
    panel.set(yscale="log", xlabel="message size", ylabel="99 % slowdown")
figure.tight_layout()
figure.savefig(folder / "slowdown.png", dpi=120)
print("drawn:", folder / "slowdown.png")
