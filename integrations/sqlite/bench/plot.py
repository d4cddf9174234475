#!/usr/bin/env python3
"""Draws the cold times of queries with and without forebay, from what queries.py wrote, as SVG (apt-get install python3-matplotlib).

  plot.py results/2026-11-22-vm/sqlite.json docs/sqlite-cold.svg

The results are one object: by name, what `queries.py --json` wrote; those whose names end in -cold are drawn. A bar is the
median of the rounds, a line through its end the range of them; next to it stands the mean of the rounds' ratios.
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
LABELS = {
    "index": "rows through an index",
    "index-desc": "the same, descending",
    "join": "rows joined by rowid",
    "join-index": "rows joined through an index",
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
ENTRANTS = {"stock": ("SQLite", "#a2adb4"), "forebay": ("with forebay", "#0067a8")}
BAR = 0.36


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        results = json.load(file)
    drawn = {label: results[name + "-cold"]["runs"] for name, label in LABELS.items() if name + "-cold" in results}
    if not drawn:
        sys.exit("no results of names that end in -cold")
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(drawn) + 1))
    most = 0
    for place, (who, (legend, colour)) in enumerate(ENTRANTS.items()):
        times = [[run["seconds"] for run in runs[who]] for runs in drawn.values()]
        medians = [statistics.median(each) for each in times]
        ranges = [[m - min(each) for m, each in zip(medians, times)], [max(each) - m for m, each in zip(medians, times)]]
        at = [row + (place - 0.5) * BAR for row in range(len(drawn))]
        axes.barh(at, medians, BAR, xerr=ranges, color=colour, label=legend, error_kw={"elinewidth": 0.8, "ecolor": "#1c2429"})
        most = max(most, *(max(each) for each in times))
    for row, runs in enumerate(drawn.values()):
        ratios = [one["seconds"] / two["seconds"] for one, two in zip(runs["stock"], runs["forebay"])]
        axes.text(most * 1.03, row, f"{statistics.geometric_mean(ratios):.1f} times", va="center")
    axes.set_yticks(range(len(drawn)), drawn)
    axes.invert_yaxis()
    axes.set_xlim(0, most * 1.16)
    axes.set_xlabel("seconds, median; the line is the range of all rounds")
    axes.set_title("Queries on a cold SQLite database", loc="left")
    axes.legend(loc="lower right", bbox_to_anchor=(0.86, 0.05), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
