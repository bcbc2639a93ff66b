#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses of train_gpt's CSV logs side by side, and how far each is from the first log's.
With -o FILE also a drawing (matplotlib; Debian: python3-matplotlib)."""
import argparse
import csv
import math
import os
import sys


def read(path):
    try:
        with open(path, newline="") as file:
            rows = {int(row["step"]): row for row in csv.DictReader(file)}
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"plot.py: {path}: {error}")
    if not rows:
        sys.exit(f"plot.py: {path}: no steps")
    return rows


def table(names, logs, every):
    width = max(26, *(len(name) + 2 for name in names))
    print("  step" + "".join(name.rjust(width) for name in names))
    steps = sorted(set().union(*logs))
    worst = [0.0] * len(logs)
    for step in steps:
        cells = []
        for i, log in enumerate(logs):
            if step not in log:
                cells.append("-")
                continue
            loss = float(log[step]["loss"])
            cells.append(f"{loss:.6f}")
            if i > 0 and step in logs[0]:
                apart = abs(loss / float(logs[0][step]["loss"]) - 1)
                worst[i] = max(worst[i], math.inf if math.isnan(apart) else apart)
                cells[-1] += " (equal)" if apart == 0 else f" ({apart:.1e})"
        if step % every == 0 or step == steps[-1]:
            print(f"{step:6d}" + "".join(cell.rjust(width) for cell in cells))
    for name, apart in list(zip(names, worst))[1:]:
        print(f"largest relative difference of {name} from {names[0]}: {apart:.3g}")


def draw(names, logs, path):
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py: -o needs matplotlib (Debian: python3-matplotlib)")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, log in zip(names, logs):
        steps = sorted(log)
        line, = axes.plot(steps, [float(log[s]["loss"]) for s in steps], label=name, linewidth=1)
        held = [s for s in steps if log[s]["held_out_loss"]]
        axes.plot(held, [float(log[s]["held_out_loss"]) for s in held], "o", color=line.get_color(), markersize=3)
    axes.set_xlabel("step")
    axes.set_ylabel("loss in nats per byte (dots: held-out text)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", metavar="LOG.csv")
    parser.add_argument("-o", metavar="FILE", help="draw into this file (png, svg, pdf)")
    parser.add_argument("--every", type=int, default=10, help="steps between lines of the table [10]")
    args = parser.parse_args()
    names = [os.path.splitext(os.path.basename(path))[0] for path in args.logs]
    logs = [read(path) for path in args.logs]
    table(names, logs, max(1, args.every))
    if args.o:
        draw(names, logs, args.o)


if __name__ == "__main__":
    main()
