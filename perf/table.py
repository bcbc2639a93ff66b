#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Markdown tables from the JSON files of the perf programs: table.py DIRECTORY_OR_FILE..."""

import json
import math
import os
import re
import sys


def json_files(arguments):
    for argument in arguments:
        if os.path.isdir(argument):
            names = [os.path.join(argument, name) for name in os.listdir(argument)]
        else:
            names = [argument]
        for name in sorted(names):
            if re.search(r"\.json(\.\d+)?$", name) and os.path.getsize(name) > 0:
                yield name


def size_text(size):
    # Parts are rounded to 16 bytes, so a size may be a little under the round one.
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size > 0.99 * unit:
            return f"{round(size / unit)} {name}"
    return f"{size} B"


def time_text(us):
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"


def mean(values):
    """Geometric mean."""
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else 0.0


def read(arguments):
    """{(program, type): {label: {size: result}}}, and the peers in the order of their first appearance."""
    tables, peers = {}, []
    for name in json_files(arguments):
        with open(name, encoding="utf-8") as file:
            report = json.load(file)
        label = re.sub(r"\.json(\.\d+)?$", "", os.path.basename(name))
        for result in report["results"]:
            block = "in_place" if report["program"].startswith("all_gather") else "out_of_place"
            result["block"] = result[block]
            key = (report["program"].removesuffix("_perf"), result["type"])
            tables.setdefault(key, {}).setdefault(label, {})[result["size"]] = result
            peers += [peer for peer in result["peers"] if peer not in peers]
    return tables, peers


def label_order(label):
    """2 before 8 before 16 ranks."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", label)]


def print_table(title, rows_by_label, peers):
    print(f"\n### {title}\n")
    print("| run | total | vcoll us |" + "".join(f" {peer} |" for peer in peers) + " limit |")
    print("|---|---:|---:|" + "---:|" * (len(peers) + 1))
    for label in sorted(rows_by_label, key=label_order):
        results = rows_by_label[label]
        for size, result in sorted(results.items()):
            wrong = result["block"]["nwrong"]
            mark = "" if wrong in (0, "N/A") else f" ({wrong} WRONG)"
            time = result["block"].get("time", result["block"].get("cpu_time"))
            cells = [label, size_text(size), time_text(time) + mark]
            for peer in peers:
                entry = result["peers"].get(peer)
                cells.append(f"{entry['ratio']:.2f}x" if entry else "–")
            cells.append(f"{100 * result['limit_fraction']:.0f}%")
            print("| " + " | ".join(cells) + " |")
        cells = [label, "geometric mean", ""]
        for peer in peers:
            ratios = [r["peers"][peer]["ratio"] for r in results.values() if r["peers"].get(peer, {}).get("ratio", 0) > 0]
            cells.append(f"**{mean(ratios):.2f}x**" if ratios else "–")
        print("| " + " | ".join(cells) + " | |")


def main(arguments):
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    tables, peers = read(arguments)
    if not tables:
        print(f"table.py: no results in {' '.join(arguments)}", file=sys.stderr)
        return 1
    print("Medians; a peer's column is its time over vcoll's; limit is the bare memory copies' time over vcoll's.")
    for program, kind in sorted(tables):
        print_table(f"{program}, {kind}", tables[(program, kind)], peers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
