"""Turns results into a Markdown table and a bar chart; ratios are to a C loop timed in turn with it."""

from __future__ import annotations

from pathlib import Path

_BAR, _LEFT, _WIDTH = 22, 260, 560


def table(results: dict[str, dict[str, float]]) -> str:
    """Return a table of medians, spread and ratios."""
    lines = ["| what | median ns | min | max | beside it ns | ratio |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for name, timing in results.items():
        cells = [f"{timing[key]:.0f}" if key in timing else "" for key in ("median", "least", "greatest", "floor")]
        ratio = f"{timing['ratio']:.2f}" if "ratio" in timing else ""
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


def plot(results: dict[str, dict[str, float]], path: Path) -> None:
    """Write horizontal bars of the axpy launches, ours and the peers', as SVG."""
    bars = [(n, t["median"]) for n, t in results.items() if "ratio" in t and not n.startswith("launch,")]
    bars.append(("C loop", results["C loop"]["median"]))
    bars.sort(key=lambda bar: bar[1])
    scale = _WIDTH / max(value for _, value in bars)
    height = _BAR * len(bars) + 40
    title = "host time of one axpy launch, two torch tensors and two scalars (ns)"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 120}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="4" y="16" font-weight="bold">{title}</text>',
    ]
    for index, (name, value) in enumerate(bars):
        y = 30 + index * _BAR
        colour = "#2b6cb0" if "launch" in name and "loop" not in name else "#a0aec0"
        out.append(f'<text x="{_LEFT - 6}" y="{y + 14}" text-anchor="end">{name}</text>')
        out.append(f'<rect x="{_LEFT}" y="{y}" width="{value * scale:.1f}" height="{_BAR - 5}" fill="{colour}"/>')
        out.append(f'<text x="{_LEFT + value * scale + 4:.1f}" y="{y + 14}">{value:.0f}</text>')
    path.write_text("\n".join([*out, "</svg>"]) + "\n")
