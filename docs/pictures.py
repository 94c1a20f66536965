"""Draws pictures of the reports from docs/data: ``python docs/pictures.py`` writes them into docs/images."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from foretail.models.scoring.figure_style import BLUE, GREEN, GREY, ORANGE, VERMILION

DOCS = Path(__file__).parent
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}

TRAININGS = {
    "labels_4x4": ("trees 4 x 4, LQD's labels", ORANGE),
    "sent_4x4": ("trees 4 x 4, packets sent", BLUE),
    "sent_8x6": ("trees 8 x 6, packets sent", GREEN),
    "rule_of_the_workload": ("rule of the workload", GREY),
}
CELLS = {
    "ports": "{:g} ports",
    "buffer_per_port": "{:g} packets per port",
    "burst_fraction": "bursts of {:g} buffers",
    "fan_in": "{:g} senders at once",
    "background_load": "background {:.0%}",
    "load": "load {:.0%}",
    "mean_on_slots": "on for {:g} slots",
    "exponent": "ports skewed, exponent {:g}",
    "least_bytes": "packets of {:g} or 1,500 bytes",
}
RECORDED = {
    "web_80": "web search at 80 %",
    "large_queries": "large queries",
    "more_queries": "more queries",
    "elephants": "long flows",
}
LEFT = {
    "dt_fixed": ("DT, one alpha for all", VERMILION, "o"),
    "dt_tuned": ("DT, own alpha", ORANGE, "s"),
    "predictor": ("predictor", BLUE, "D"),
    "cs": ("Complete Sharing", GREY, "^"),
}

_THREE = ("default", "tuned", "hindsight")
POLICIES = {
    "lqd": ("LQD", ("default",)),
    "lqd_head": ("LQD, from the head", ("default",)),
    "cs": ("Complete Sharing", ("default",)),
    "followlqd": ("FollowLQD", ("default",)),
    "dt": ("DT", _THREE),
    "abm": ("ABM", _THREE),
    "reverie": ("Reverie", _THREE),
    "occamy": ("Occamy", _THREE),
}
FAMILIES = {"cubic_beside_dctcp": "Cubic next to DCTCP", "on_off_elephants": "on-off elephants"}
DARK = 60
"""The regret from which a cell is so dark that its number is white."""


def draw_promise() -> None:
    """Gains over tuned DT on the same runs, one dot a workload."""
    frame = pd.read_csv(DOCS / "data" / "promise_workloads.csv")
    figure, panels = plt.subplots(1, 2, figsize=(7.6, 2.8), sharey=True, layout="constrained")
    groups = (("14 workloads that trained, new seeds", "yes"), ("18 workloads that did not train", "no"))
    for panel, (title, trained) in zip(panels, groups, strict=True):
        rows = frame[frame["trained"] == trained]
        for place, (name, (label, color)) in enumerate(reversed(TRAININGS.items())):
            gain = 100 * (rows[name] / rows["dt_alpha_8"] - 1)
            spread = np.linspace(-0.25, 0.25, len(gain))
            panel.scatter(gain, place + spread, s=14, color=color, alpha=0.8, label=label)
            panel.plot([gain.mean()] * 2, [place - 0.38, place + 0.38], color="black", linewidth=1.5)
        panel.axvline(0, color="black", linewidth=1)
        panel.set_xscale("symlog", linthresh=1)
        panel.set_xticks([-10, -3, -1, 0, 1, 3], ["-10", "-3", "-1", "0", "1", "3"])
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("packets sent over those of DT, alpha 8, %")
    panels[0].set_yticks(range(len(TRAININGS)), [label for label, _ in reversed(TRAININGS.values())])
    save(figure, "promise.png")


def cell_name(row: pd.Series) -> str:
    """A cell of the map in words."""
    if row["base"] == "recorded":
        return RECORDED[row["axis"]]
    name = CELLS[row["axis"]].format(row["value"]) if isinstance(row["axis"], str) else "base cell"
    return name.replace("%", " %")


def draw_map() -> None:
    """Packets of LQD that policies do not send, by cell, in four panels."""
    frame = pd.read_csv(DOCS / "data" / "prediction_map.csv")
    titles = {
        "incast": "incast of 5 over 60 %",
        "bursts": "bursts of a buffer, 40 %",
        "on_off": "on-off sources, 60 %",
        "recorded": "recorded in ns-3",
    }
    figure, grid = plt.subplots(2, 2, figsize=(7.6, 9.0), layout="constrained", height_ratios=[18, 15], sharex=True)
    for panel, (base, title) in zip(grid.T.flat, titles.items(), strict=True):
        rows = frame[frame["base"] == base].reset_index(drop=True)
        for shift, (name, (label, color, marker)) in enumerate(LEFT.items()):
            places = -np.arange(len(rows)) - (shift - 1.5) * 0.17
            errors = [rows[name] - rows[f"{name}_low"], rows[f"{name}_high"] - rows[name]]
            panel.errorbar(
                rows[name], places, xerr=errors, fmt=marker, color=color, markersize=4, linewidth=0.8, label=label
            )
        panel.set_xscale("symlog", linthresh=0.1)
        panel.set_xlim(-3, 70)
        panel.axvline(0, color="black", linewidth=1)
        panel.set_yticks(-np.arange(len(rows)), [cell_name(row) for _, row in rows.iterrows()])
        panel.set_xticks([-1, -0.1, 0, 0.1, 1, 10], ["-1", "-0.1", "0", "0.1", "1", "10"])
        panel.tick_params(labelbottom=True)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("left of LQD's packets, %")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save(figure, "prediction_map.png")


def draw_optimum() -> None:
    """Packets that the best policies do not send, against DT; each kind of arrivals has axes of its own."""
    frame = pd.read_csv(DOCS / "data" / "online_optimum.csv")
    known = {
        "queues": ("queues alone", GREY, "o"),
        "past": ("queues and past", ORANGE, "s"),
        "ahead": ("also packets ahead", GREEN, "D"),
    }
    kinds = list(dict.fromkeys(frame["kind"]))
    titles = ("on-off sources", "bursts over background", "bursts of a buffer")
    figure, panels = plt.subplots(1, len(kinds), figsize=(7.6, 2.9), layout="constrained")
    for panel, kind, title in zip(panels, kinds, titles, strict=True):
        rows = frame[frame["kind"] == kind]
        for name, (label, color, marker) in known.items():
            panel.scatter(rows["dt"], rows[name], s=16, marker=marker, facecolors="none", edgecolors=color, label=label)
        diagonal(panel, rows["dt"].max())
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("left by the best DT, %")
    panels[0].set_ylabel("left of LQD's packets, %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    save(figure, "online_optimum.png")


def diagonal(panel: Axes, most: float) -> None:
    """The line on which a policy leaves as much as DT."""
    panel.plot([0, most], [0, most], color="black", linewidth=1, label="as much as DT")


def draw_search() -> None:
    """The best score so far of two searches, by simulated traffic."""
    frame = pd.read_csv(DOCS / "data" / "sharing_rule_search.csv")
    figure, panel = plt.subplots(figsize=(5.2, 2.8), layout="constrained")
    for (space, rows), color in zip(frame.groupby("space"), (BLUE, ORANGE), strict=True):
        panel.step(rows["simulated_s"], rows["best"], where="post", color=color, label=f"drawn {space}")
    panel.set_xscale("log")
    panel.set_xlabel("simulated traffic, s")
    panel.set_ylabel("J over that of LQD that\nspares last packets, %")
    panel.legend(frameon=False)
    save(figure, "sharing_rule_search.png")


def draw_sharing_map() -> None:
    """Mean regret of every policy and setting in every family; the held-out families are below a line."""
    frame = pd.read_csv(DOCS / "data" / "sharing_map.csv")
    columns = {}
    for policy, (label, settings) in POLICIES.items():
        own = frame[frame["policy"] == policy]
        for setting in settings:
            rows = {"default": own["setting"] == "default", "tuned": own["frozen"], "hindsight": own["hindsight"]}[
                setting
            ]
            name = f"{label}, {setting}" if len(settings) > 1 else label
            columns[name] = 100 * own[rows].groupby(["held_out", "family"])["regret"].mean()
    table = pd.DataFrame(columns).sort_index()
    figure, panel = plt.subplots(figsize=(7.6, 6.2), layout="constrained")
    shades = mpl.colors.LogNorm(5, 400, clip=True)
    panel.imshow(table.clip(lower=5), norm=shades, cmap="Blues", aspect="auto")
    for row, column in np.ndindex(table.shape):
        value = table.iat[row, column]
        color = "white" if value > DARK else "black"
        panel.text(column, row, f"{round(value) + 0:d}", ha="center", va="center", fontsize=8, color=color)
    held_out = table.index.get_level_values("held_out").to_numpy(bool)
    panel.axhline((~held_out).sum() - 0.5, color="black", linewidth=1.5)
    families = [FAMILIES.get(name, name.replace("_", " ")) for name in table.index.get_level_values("family")]
    panel.set_yticks(range(len(families)), families)
    panel.set_xticks(range(len(columns)), list(columns), rotation=60, ha="right", rotation_mode="anchor")
    panel.grid(visible=False)
    panel.set_title("regret, %: mean over the conditions of a family; held-out families below the line", fontsize=9)
    save(figure, "sharing_map.png")


def draw_etalon() -> None:
    """Use and latency of a circuit in the emulator and in Etalon."""
    frame = pd.read_csv(DOCS / "data" / "etalon.csv")
    fixed, growing = frame[frame["ahead_ns"].isna()], frame[frame["ahead_ns"].notna()]
    figure, grid = plt.subplots(2, 3, figsize=(7.6, 4.6), layout="constrained")
    rows = (
        (fixed, fixed["voq_packets"], "VOQ, packets"),
        (growing, growing["ahead_ns"] / 1000, "VOQ grows before the circuit, us"),
    )
    measures = {
        "utilisation_percent": "use of the circuit, %",
        "p50_us": "p50 latency, us",
        "p99_us": "p99 latency, us",
    }
    for panels, (data, x, label) in zip(grid, rows, strict=True):
        for panel, (measure, name) in zip(panels, measures.items(), strict=True):
            panel.plot(x, data[measure], color=BLUE, marker="o", markersize=4, label="emulator")
            published = data[f"published_{measure}"]
            panel.plot(x, published, color=ORANGE, marker="s", markersize=4, linestyle="--", label="Etalon")
            panel.set_ylim(0, 1.08 * max(data[measure].max(), data[f"published_{measure}"].max()))
            panel.set_xlabel(label, fontsize=8.5)
            panel.set_ylabel(name)
            if data is fixed:
                panel.set_xscale("log", base=2)
                panel.set_xticks([4, 8, 16, 32, 64], ["4", "8", "16", "32", "64"])
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    save(figure, "etalon.png")


def save(figure: mpl.figure.Figure, name: str) -> None:
    """Write one picture."""
    figure.savefig(DOCS / "images" / name, dpi=180)
    plt.close(figure)


def main() -> None:
    """Draw all of them."""
    mpl.use("Agg")
    with mpl.rc_context(STYLE):
        draw_promise()
        draw_map()
        draw_optimum()
        draw_search()
        draw_sharing_map()
        draw_etalon()


if __name__ == "__main__":
    main()
