#!/usr/bin/env python3
"""Draws the cold times of queries with and without forebay as SVG (apt-get install python3-matplotlib), from what the
bench/queries.py of each integration wrote:

  plot.py results/2026-11-22-vm/postgresql-extension.json results/2026-11-22-vm/sqlite.json docs/cold.svg

A bar is the median of the rounds, a line through its end the range of them; next to it stands how many times as fast
the query is: the mean of the rounds' ratios, or of the medians if the rounds were not made in pairs.
"""

import json
import statistics
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "forebay"  # the same figures give the same file
matplotlib.rcParams["svg.fonttype"] = "none"
from matplotlib import pyplot

# In this order, from the top; where it does not help comes last.
POSTGRESQL = {
    "index-cold-15": "56,000 rows through an index (15)",
    "index-cold-18": "the same (18)",
    "join-cold-15": "nested loop, 50,000 rows (15)",
    "join-cold-18": "the same nested loop (18)",
    "bitmap-cold-15": "bitmap scan, stock at its best (15)",
}
SQLITE = {
    "index": "40,000 rows through an index",
    "index-desc": "the same, descending",
    "join": "40,000 rows joined by rowid",
    "join-index": "40,000 rows joined through an index",
    "join-three": "three tables joined",
    "join-without-rowid": "rows of a table without rowids",
    "fragmented": "a fragmented table, scanned",
    "overflow": "rows of 5 to 200 KiB through an index",
    "overflow-fragmented": "the same, in a fragmented table",
    "overflow-scan": "that table, scanned",
    "scan": "a table in order, scanned",
    "covering": "an index in order, scanned",
    "limit": "10 rows (LIMIT)",
}
COLOURS = ("#a2adb4", "#0067a8")
BAR = 0.36


def postgresql(results):
    """By label, the seconds of each round without forebay and with it."""
    drawn = {}
    for name, label in POSTGRESQL.items():
        figures = results["runs"][name]["figures"]
        stock = min((runs for arm, runs in figures.items() if arm.startswith("off")), key=lambda runs: median_ms(runs))
        drawn[label] = [[run["ms"] / 1000 for run in runs] for runs in (stock, figures["on"])]
    return drawn


def median_ms(runs):
    return statistics.median(run["ms"] for run in runs)


def sqlite(results):
    """The same."""
    runs = {label: results[name + "-cold"]["runs"] for name, label in SQLITE.items() if name + "-cold" in results}
    return {label: [[run["seconds"] for run in each[who]] for who in ("stock", "forebay")] for label, each in runs.items()}


def panel(axes, title, drawn):
    most = max(max(times) for pair in drawn.values() for times in pair)
    for place, (legend, colour) in enumerate(zip(("without", "with forebay"), COLOURS)):
        times = [pair[place] for pair in drawn.values()]
        medians = [statistics.median(each) for each in times]
        ranges = [[m - min(each) for m, each in zip(medians, times)], [max(each) - m for m, each in zip(medians, times)]]
        at = [row + (place - 0.5) * BAR for row in range(len(drawn))]
        axes.barh(at, medians, BAR, xerr=ranges, color=colour, label=legend, error_kw={"elinewidth": 0.8, "ecolor": "#1c2429"})
    for row, (stock, forebay) in enumerate(drawn.values()):
        ratio = statistics.geometric_mean(one / two for one, two in zip(stock, forebay))
        axes.text(most * 1.03, row, f"{ratio:.1f} times", va="center")
    axes.set_yticks(range(len(drawn)), drawn)
    axes.invert_yaxis()
    axes.set_xlim(0, most * 1.16)
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with open(sys.argv[1]) as one, open(sys.argv[2]) as two:
        panels = {"PostgreSQL, cold": postgresql(json.load(one)), "SQLite, cold": sqlite(json.load(two))}
    rows = [len(drawn) for drawn in panels.values()]
    figure, axes = pyplot.subplots(len(panels), figsize=(9, 0.36 * sum(rows) + 1.8), height_ratios=rows)
    for each, (title, drawn) in zip(axes, panels.items()):
        panel(each, title, drawn)
    axes[-1].legend(loc="lower right", bbox_to_anchor=(0.86, 0.05), frameon=False)
    axes[-1].set_xlabel("seconds, median; the line is the range of all rounds")
    figure.tight_layout()
    figure.savefig(sys.argv[3], metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
