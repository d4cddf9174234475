#!/usr/bin/env python3
"""Draws the cold times of queries with and without forebay, from what queries.py wrote, as SVG.

  plot.py results/2026-11-22-vm/sqlite.json docs/sqlite-cold.svg

The results are one object: by name, what `queries.py --json` wrote; those whose names end in -cold are drawn. A bar is the
median of the rounds, a line through its end the range of them; beside it stands the mean of the rounds' ratios. The picture follows the reader's light or dark scheme.
"""

import json
import statistics
import sys
from xml.sax.saxutils import escape

# In this order; where it does not help comes last.
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
WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 760, 246, 650, 70, 40, 13
STYLE = """.paper{fill:#fbfbf9}.sheet{fill:#fff;stroke:#dde1e1}text{fill:#1c2429;font-size:12px}.soft{fill:#566168}.grid{stroke:#dde1e1}
.name{font-weight:650;font-size:14px}.stock{fill:#a2adb4}.forebay{fill:#0067a8}.range{stroke:#1c2429}
@media (prefers-color-scheme:dark){.paper{fill:#14181c}.sheet{fill:#1a2026;stroke:#303941}text{fill:#e4e8ea}.soft{fill:#a2adb4}
.grid{stroke:#303941}.stock{fill:#6b777f}.forebay{fill:#5db8f0}.range{stroke:#e4e8ea}}"""


def rows(results):
    found = []
    for name, label in LABELS.items():
        runs = results.get(name + "-cold", {}).get("runs", {})
        if "stock" in runs and "forebay" in runs:
            found.append((label, {who: [run["seconds"] for run in runs[who]] for who in ("stock", "forebay")}))
    return found


def step(most):
    """Between two lines of the grid, in seconds: about five of them."""
    return next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if step * 6 >= most)


def draw(results):
    found = rows(results)
    if not found:
        sys.exit("no results of names that end in -cold, with both stock and forebay")
    most = max(max(times["stock"] + times["forebay"]) for _, times in found)
    x = lambda seconds: LEFT + (RIGHT - LEFT) * seconds / (most * 1.02)
    bottom = TOP + ROW * len(found)
    out = []
    for tick in range(int(most * 1.02 / step(most)) + 1):
        seconds = tick * step(most)
        out.append(f'<path class="grid" d="M{x(seconds):.1f} {TOP}V{bottom}"/>')
        out.append(f'<text class="soft" x="{x(seconds):.1f}" y="{bottom + 18}" text-anchor="middle">{seconds:g}</text>')
    said = []
    for at, (label, times) in enumerate(found):
        top = TOP + ROW * at + (ROW - 2 * BAR) / 2
        medians = {who: statistics.median(times[who]) for who in times}
        ratio = statistics.geometric_mean(one / two for one, two in zip(times["stock"], times["forebay"]))
        said.append(f"{label} {medians['stock']:.3g} s and {medians['forebay']:.3g} s")
        out.append(f'<text x="{LEFT - 10}" y="{top + BAR + 4}" text-anchor="end">{escape(label)}</text>')
        for line, who in enumerate(("stock", "forebay")):
            y = top + line * BAR
            title = f"{label}, {who}: median {medians[who]:.4g} s, {min(times[who]):.4g} to {max(times[who]):.4g}"
            out.append(
                f'<g><title>{escape(title)}</title><rect class="{who}" x="{LEFT}" y="{y}" width="{x(medians[who]) - LEFT:.1f}" height="{BAR - 1}"/>'
                f'<path class="range" d="M{x(min(times[who])):.1f} {y + BAR / 2 - .5}H{x(max(times[who])):.1f}"/></g>'
            )
        out.append(f'<text x="{RIGHT + 12}" y="{top + BAR + 4}">{ratio:.1f} times</text>')
    height = bottom + 30
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-labelledby="title desc" font-family="system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif">
<title id="title">Queries on a cold SQLite database, with and without forebay</title>
<desc id="desc">Seconds without and with forebay: {escape("; ".join(said))}.</desc>
<style>{STYLE}</style>
<rect class="paper" width="{WIDTH}" height="{height}"/>
<text class="name" x="16" y="26">Queries on a cold SQLite database, in seconds</text>
<rect class="stock" x="16" y="40" width="12" height="12"/><text x="34" y="50">SQLite</text>
<rect class="forebay" x="96" y="40" width="12" height="12"/><text x="114" y="50">with forebay</text>
<text class="soft" x="214" y="50">bars are medians, lines the range of all rounds</text>
<rect class="sheet" x="{LEFT}" y="{TOP}" width="{RIGHT - LEFT}" height="{bottom - TOP}"/>
{chr(10).join(out)}
</svg>
"""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        drawn = draw(json.load(file))
    with open(sys.argv[2], "w") as file:
        file.write(drawn)


if __name__ == "__main__":
    main()
