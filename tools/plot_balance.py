#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the balance that `vmuon-plan --json` wrote: time and bytes of every rank, and of every column with several nodes."""
import argparse
import json
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot_balance.py: matplotlib is missing (Debian: python3-matplotlib)")
matplotlib.use("Agg")
from matplotlib import pyplot


def bars(axes, values, colours, ratio, what, unit):
    mean = sum(values) / len(values)
    axes.bar(range(len(values)), values, width=0.9, color=colours)
    axes.axhline(mean, color="black", linewidth=0.8, linestyle="--")
    axes.set_xlabel(what)
    axes.set_ylabel(unit)
    axes.set_title(f"busiest {ratio:.3f} x mean", fontsize="medium")
    axes.margins(x=0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", help="JSON file, or - for standard input")
    parser.add_argument("-o", "--output", required=True, help="picture; its name ends in .svg, .png or .pdf")
    arguments = parser.parse_args()
    with sys.stdin if arguments.plan == "-" else open(arguments.plan, encoding="utf-8") as file:
        plan = json.load(file)

    rows = [("rank", plan["ranks"], plan["time_ratio"], plan["byte_ratio"], lambda i: plan["ranks"][i]["column"])]
    if plan["nodes"] > 1:
        rows.append(("column", plan["columns"], plan["column_time_ratio"], plan["column_byte_ratio"], lambda i: i))
    palette = pyplot.get_cmap("tab20").colors
    figure, axes = pyplot.subplots(len(rows), 2, figsize=(11, 3.2 * len(rows) + 0.6), squeeze=False, layout="constrained")
    for (what, loads, time_ratio, byte_ratio, column), (left, right) in zip(rows, axes):
        colours = [palette[column(i) % len(palette)] for i in range(len(loads))]
        bars(left, [1e3 * load["seconds"] for load in loads], colours, time_ratio, what, "Newton-Schulz, ms")
        bars(right, [load["bytes"] / 2**20 for load in loads], colours, byte_ratio, what, "owned, MiB")
    figure.suptitle(f"{plan['model']}, {len(plan['ranks'])} ranks on {plan['nodes']} node(s), {plan['strategy']}")
    figure.savefig(arguments.output)


if __name__ == "__main__":
    main()
