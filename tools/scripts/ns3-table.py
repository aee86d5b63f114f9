#!/usr/bin/env python3
"""Compares rocesim with a table of FCT slowdowns of conweave-ns3, flow by flow the same list.

The table is Markdown. Its head has the cells "load balancing, mode", "all", "small", "large". Each row has a name such as
"ecmp PFC 50" (load balancing, PFC or IRN, load in %), and average/p99 of all flows, then average/p50/p99 of small and of
large ones. Text around the table has no effect. The flow list is that of conweave-ns3: the number of flows, then
lines "src dst priority bytes start_s". It may be compressed by xz.

Each row runs with each seed. Cells of rocesim are the mean over seeds and their range. Ratios are rocesim's mean to ns-3's
value; those that are more than 15 % away from 1 have a star.
"""

import argparse
import csv
import hashlib
import json
import lzma
import pathlib
import re
import subprocess
import sys
import tempfile

HEAD = ["load balancing, mode", "all", "small", "large"]
COLUMNS = [("all", ["mean", "p99"]), ("small", ["mean", "p50", "p99"]), ("large", ["mean", "p50", "p99"])]
# In conweave-ns3, out-of-order arrivals cause CNPs, and senders of IRN go back to the first packet without acknowledgement.
CNP = ["transport.cnp_with_nak=true"]
IRN = ["transport.profile=irn", "transport.reorder={name: irn, bdp_packets: 104}",
       "transport.recovery={name: irn, bdp_packets: 104, rto_doublings: 0, rewind: 1}", "switch.pfc=null", "switches.0.pfc=null"]
MODES = {"PFC": CNP, "IRN": CNP + IRN}
BALANCE = {"ecmp": "{name: ecmp}", "drill": "{name: drill, samples: 2, per_host: true}", "letflow": "{name: letflow, gap: 100us}",
           "conweave": "{name: conweave, reply: 8us, busy: 16us, extra: 16us, wait: 200us, inactive: 300us}"}


class Refused(Exception):
    """An error that the user can mend."""


def cells(line):
    return [c.strip() for c in line.strip().strip("|").split("|")]


def read_row(where, line):
    c = cells(line)
    if len(c) != len(HEAD):
        raise Refused(f"{where}: {len(c)} cells, want {len(HEAD)}: {', '.join(HEAD)}")
    name = c[0].split()
    if len(name) != 3 or name[0] not in BALANCE or name[1] not in MODES or not re.fullmatch(r"\d{1,3}", name[2]):
        raise Refused(f"{where}: row {c[0]!r}: want one of {', '.join(BALANCE)}, then PFC or IRN, then the load in %")
    values = {}
    for (group, statistics), cell in zip(COLUMNS, c[1:]):
        numbers = cell.split("/")
        if len(numbers) != len(statistics) or not all(re.fullmatch(r"\d+(\.\d+)?", n) and float(n) >= 1 for n in numbers):
            raise Refused(f"{where}: {group} {cell!r}: want {'/'.join(statistics)}, slowdowns from 1 on")
        values.update({(group, s): float(n) for s, n in zip(statistics, numbers)})
    return name, values


def read_table(path):
    """Returns pairs of a row's name and its values by group and statistic."""
    lines = path.read_text(encoding="utf-8").splitlines()
    heads = [i for i, l in enumerate(lines) if l.lstrip().startswith("|") and cells(l) == HEAD]
    if len(heads) != 1:
        raise Refused(f"{path}: {len(heads)} tables with the head | {' | '.join(HEAD)} |, want one")
    at = heads[0] + 1
    if at == len(lines) or not re.fullmatch(r"[|:\-\s]+", lines[at]):
        raise Refused(f"{path}:{at + 1}: want a line | --- | --- | --- | --- | below the head")
    rows = []
    for i in range(at + 1, len(lines)):
        if not lines[i].lstrip().startswith("|"):
            break
        rows.append(read_row(f"{path}:{i + 1}", lines[i]))
    if not rows:
        raise Refused(f"{path}:{at + 1}: the table has no rows")
    names = [tuple(n) for n, _ in rows]
    for n in names:
        if names.count(n) > 1:
            raise Refused(f"{path}: row {' '.join(n)!r} twice")
    return rows


def read_flows(path):
    """Returns the text of a flow list."""
    data = path.read_bytes()
    try:
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode("ascii")
    except (lzma.LZMAError, UnicodeDecodeError) as e:
        raise Refused(f"{path}: no flow list: {e}") from None
    lines = text.splitlines()
    if not lines or not re.fullmatch(r"\s*\d+\s*", lines[0]):
        raise Refused(f"{path}:1: want the number of flows")
    flows = [(i, l) for i, l in enumerate(lines[1:], 2) if l.strip()]
    for i, l in flows:
        if not re.fullmatch(r"\s*\d+ +\d+ +\d+ +[1-9]\d* +\d+(\.\d+)?\s*", l):
            raise Refused(f"{path}:{i}: {l[:60]!r}: want src dst priority bytes start_s")
    if len(flows) != int(lines[0]) or not flows:
        raise Refused(f"{path}: {len(flows)} flows, but the first line says {lines[0].strip()}")
    return text


def percentile(ordered, percent):
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]


def statistics(rows, after, bdp):
    """Returns the values by group and statistic of lines of flows.csv, and the number of small and large flows."""
    groups = {"all": [], "small": [], "large": []}
    for r in rows:
        if int(r["start_ps"]) > after * 1e12:
            s = max(float(r["slowdown"]), 1)
            groups["all"].append(s)
            groups["small" if int(r["bytes"]) < bdp else "large"].append(s)
    out = {}
    for g, names in COLUMNS:
        v = sorted(groups[g])
        if not v:
            raise Refused(f"no {g} flow that starts after {after} s has finished; see --after and --bdp")
        values = {"mean": sum(v) / len(v), "p50": percentile(v, 50), "p99": percentile(v, 99)}
        out.update({(g, n): values[n] for n in names})
    return out, len(groups["small"]), len(groups["large"])


def simulate(o, name, seed, flows, folder):
    """Returns the folder with the result of a row and a seed."""
    changes = MODES[name[1]] + [f"{k}.balance={BALANCE[name[0]]}" for k in ("switch", "switches.0")] + o.set
    changes.append(f"workload=[{{kind: flows, file: {json.dumps(str(flows))}}}]")
    command = [o.rocesim, "run", str(o.scenario), "-q", "--seeds", str(seed)]
    key = hashlib.sha256(json.dumps(command[1:] + changes[:-1]).encode())
    for f in (o.rocesim, o.scenario, flows):
        key.update(pathlib.Path(f).read_bytes())
    out = folder / f"{'-'.join(name)}-{seed}"
    done = out / "key"
    if not done.exists() or done.read_text() != key.hexdigest():
        done.unlink(missing_ok=True)
        for c in changes:
            command += ["--set", c]
        p = subprocess.run(command + ["--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # A run with messages that never end fails, and has a result.
        if p.returncode != 0 and not ("never ended" in p.stderr and (out / "flows.csv").exists()):
            raise Refused(f"{' '.join(name)}, seed {seed}: {p.stderr.strip() or p.returncode}")
        done.write_text(key.hexdigest())
    return out


def compare(o, folder):
    table, text = read_table(o.table), read_flows(o.flows)
    loads = sorted({n[2] for n, _ in table})
    if o.load is None and len(loads) > 1:
        raise Refused(f"{o.table}: rows of {', '.join(loads)} % load; choose those of the flow list by --load")
    if o.load not in (None, *loads):
        raise Refused(f"{o.table}: no row has a load of {o.load} %, only {', '.join(loads)}")
    flows = folder / "flows.txt"
    flows.write_text(text)
    print("| row | flows | value | ns-3 | rocesim | ratio |\n|---|---|---|--:|--:|--:|")
    unfinished = []
    for name, theirs in table:
        if o.load not in (None, name[2]):
            continue
        ours, lost = [], []
        for seed in o.seeds:
            out = simulate(o, name, seed, flows, folder)
            with open(out / "flows.csv", newline="", encoding="ascii") as f:
                values, small, large = statistics(csv.DictReader(f), o.after, o.bdp)
            ours.append(values)
            s = json.loads((out / "summary.json").read_text())
            lost.append(s["unfinished"] + s["failed"])
        for (group, what), their in theirs.items():
            v = [x[group, what] for x in ours]
            mean = sum(v) / len(v)
            ratio = mean / their
            star = "" if 1 / 1.15 <= ratio <= 1.15 else " *"
            print(f"| {' '.join(name)} | {group} | {what} | {their:g} | {mean:.2f} ({min(v):.2f} to {max(v):.2f}) "
                  f"| {ratio:.2f}{star} |")
        unfinished.append(f"{' '.join(name)}: {', '.join(map(str, lost))}")
        print(f"{' '.join(name)}: done", file=sys.stderr)
    print(f"\nCounted flows: {small} small, {large} large. Seeds: {len(o.seeds)}. A table of this form does not tell how many flows ns-3 left "
          f"unfinished.\nUnfinished or failed in rocesim, by seed: {'; '.join(unfinished)}.")


def seeds(text):
    m = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if not m or int(m[2] or m[1]) < int(m[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: want a seed or a range such as 1..5")
    return range(int(m[1]), int(m[2] or m[1]) + 1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("scenario", type=pathlib.Path, help="topology and switches: configs/sim/ns3-conweave.yaml, or another one "
                   "with one entry in switches")
    p.add_argument("flows", type=pathlib.Path, help="flow list of conweave-ns3, also .xz")
    p.add_argument("table", type=pathlib.Path, help="Markdown file with the table")
    p.add_argument("--rocesim", default="bin/rocesim", help="program (default: %(default)s)")
    p.add_argument("--seeds", type=seeds, default=seeds("1..3"), help="seed or range (default: 1..3)")
    p.add_argument("--load", help="only rows with this load in %%")
    p.add_argument("--after", type=float, default=2.001, help="count flows that start after these seconds (default: %(default)s)")
    p.add_argument("--bdp", type=int, default=104000, help="smallest large flow in bytes (default: %(default)s)")
    p.add_argument("--set", action="append", default=[], help="another change of the scenario, as in rocesim run")
    p.add_argument("--out", type=pathlib.Path, help="keep results in this folder; those of an earlier call are not repeated")
    o = p.parse_args()
    try:
        if o.out:
            o.out.mkdir(parents=True, exist_ok=True)
            compare(o, o.out)
        else:
            with tempfile.TemporaryDirectory() as d:
                compare(o, pathlib.Path(d))
    except (Refused, OSError, UnicodeDecodeError) as e:
        sys.exit(f"ns3-table: {e}")


if __name__ == "__main__":
    main()
