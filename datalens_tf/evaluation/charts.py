"""Charts of an evaluation, drawn with matplotlib (extra `eval`). Colours can be told apart by colour-blind readers.

Every function returns a matplotlib Figure; `svg_bytes` and `png_bytes` make files of it.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Okabe and Ito's palette, with black first and without yellow, which is hard to see on white.
PALETTE = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = "osD^vP*Xhd"
_STYLE = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25,
    "axes.prop_cycle": None, "legend.frameon": False, "figure.constrained_layout.use": True,
    "svg.hashsalt": "datalens",  # the same chart is the same file
}


def budget_chart(epsilons: Mapping[str, Sequence[float]], budget: float | None, default: str) -> Any:
    """Epsilon spent after each charge: accountant -> [num_charges]."""
    figure, axes = _figure(5.2, 3.4)
    for number, (accountant, values) in enumerate(epsilons.items()):
        axes.plot(range(1, len(values) + 1), values, color=PALETTE[number], lw=2.5 if accountant == default else 1.2,
                  ls="-" if accountant == default else ("--", ":", "-.")[number % 3],
                  label=accountant + (" (the guarantee)" if accountant == default else ""))
    if budget is not None:
        axes.axhline(budget, color="0.5", lw=1)
        axes.annotate("budget", (1, budget), xytext=(0, 3), textcoords="offset points", color="0.35")
    axes.set(xlabel="charge", ylabel="epsilon spent", ylim=(0, None))
    axes.legend()
    return figure


def training_chart(steps: Sequence[int], losses: Sequence[float]) -> Any:
    """The student's loss at each step."""
    figure, axes = _figure(5.2, 3.4)
    axes.plot(steps, losses, color=PALETTE[1], lw=1.5)
    axes.set(xlabel="step", ylabel="generator's loss")
    return figure


def epochs_chart(accuracies: Sequence[Sequence[float]]) -> Any:
    """Accuracy on test data after each epoch, one curve per classifier."""
    figure, axes = _figure(5.2, 3.4)
    for number, curve in enumerate(accuracies):
        axes.plot(range(1, len(curve) + 1), curve, color=PALETTE[(number + 1) % len(PALETTE)], lw=1.5)
    axes.set(xlabel="epoch of the classifier", ylabel="accuracy on real test records")
    return figure


def accuracy_chart(ours: Sequence[Mapping[str, Any]], published: Mapping[str, Mapping[float, float]],
                   real: float | None = None) -> Any:
    """Epsilon against accuracy.

    Args:
      ours: points with `label`, `epsilon`, `accuracy` and `std` (or None).
      published: name -> {epsilon: accuracy}.
      real: accuracy after training on real data.
    """
    figure, axes = _figure(5.2, 3.4)
    for number, (name, points) in enumerate(published.items()):
        axes.plot(list(points), list(points.values()), color=PALETTE[(number + 3) % len(PALETTE)], ls="--", lw=1,
                  marker=MARKERS[(number + 3) % len(MARKERS)], ms=4, label=f"{name}, published")
    labels = list(dict.fromkeys(point["label"] for point in ours))
    for number, label in enumerate(labels):
        mine = sorted((point for point in ours if point["label"] == label), key=lambda point: point["epsilon"])
        axes.errorbar([point["epsilon"] for point in mine], [point["accuracy"] for point in mine],
                      yerr=[point["std"] or 0 for point in mine], color=PALETTE[(number + 1) % len(PALETTE)],
                      marker=MARKERS[number % len(MARKERS)], ms=7, lw=1.5, capsize=3, label=label)
    if real is not None:
        axes.axhline(real, color="0.4", lw=1)
        axes.annotate("trained on real data", (0.01, real), xycoords=("axes fraction", "data"), xytext=(0, -11),
                      textcoords="offset points", color="0.35")
    if all(point["epsilon"] > 0 for point in ours):
        axes.set_xscale("log")
        _plain_ticks(axes, [point["epsilon"] for point in ours]
                     + [epsilon for points in published.values() for epsilon in points])
    axes.set(xlabel="epsilon", ylabel="accuracy on real test data", ylim=(0, 1))
    axes.legend(loc="lower right", fontsize=8)
    return figure


def confusion_chart(matrix: np.ndarray, class_names: Sequence[str]) -> Any:
    """Share of each true class (row) that was taken for each class (column)."""
    matrix = np.asarray(matrix, float)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    size = max(3.6, 0.42 * len(matrix) + 1.2)
    figure, axes = _figure(size + 0.5, size)
    axes.grid(False)
    image = axes.imshow(shares, cmap="cividis", vmin=0, vmax=1)
    names = [_short(name) for name in class_names]
    axes.set_xticks(range(len(names)), names, rotation=45 if max(map(len, names)) > 2 else 0, ha="right")
    axes.set_yticks(range(len(names)), names)
    if len(matrix) <= 20:
        for row, column in np.ndindex(shares.shape):
            if shares[row, column] >= 0.005:
                axes.text(column, row, f"{100 * shares[row, column]:.0f}", ha="center", va="center", fontsize=7,
                          color="white" if shares[row, column] < 0.55 else "black")
    axes.set(xlabel="taken for", ylabel="true class")
    figure.colorbar(image, ax=axes, shrink=0.8, label="share of the true class (numbers: %)")
    return figure


def roc_chart(roc: Mapping[str, Any], areas: Sequence[float | None], class_names: Sequence[str]) -> Any:
    """One-vs-rest ROC curves."""
    figure, axes = _figure(5.2, 4.2)
    axes.plot([0, 1], [0, 1], color="0.7", lw=1, ls=":")
    styles = ("-", "--", "-.", ":")
    for label, curve in enumerate(roc["true_positive_rate_per_class"]):
        if curve is not None and label < 4 * len(PALETTE):
            axes.plot(roc["false_positive_rate"], curve, lw=1.2, color=PALETTE[label % len(PALETTE)],
                      ls=styles[label // len(PALETTE)], label=f"{_short(class_names[label])}: {areas[label]:.3f}")
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(-0.01, 1), ylim=(0, 1.01))
    axes.legend(title="area under the curve", fontsize=7, title_fontsize=8, ncols=2, loc="lower right")
    return figure


def classifier_chart(synthetic: Mapping[str, float], real: Mapping[str, float]) -> Any:
    """Accuracy of each classifier after training on synthetic and on real data."""
    names = list(synthetic)
    figure, axes = _figure(5.2, 0.28 * len(names) + 1)
    rows = np.arange(len(names))[::-1]
    axes.hlines(rows, [synthetic[name] for name in names], [real[name] for name in names], color="0.75", lw=2)
    axes.plot([real[name] for name in names], rows, "s", color=PALETTE[0], ms=6, label="trained on real data")
    axes.plot([synthetic[name] for name in names], rows, "o", color=PALETTE[2], ms=6, label="trained on synthetic data")
    axes.set_yticks(rows, names)
    axes.set(xlabel="accuracy on real test data", xlim=(0, 1.02))
    figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    return figure


def embedding_chart(points: np.ndarray, is_real: np.ndarray, labels: np.ndarray, class_names: Sequence[str],
                    title: str) -> Any:
    """Real and synthetic records side by side in one plane.

    Args:
      points: [n, 2].
      is_real: bool [n].
      labels: [n].
    """
    figure, axes = _figure(7.6, 4.0, columns=2)
    for panel, chosen, name in zip(axes, (is_real, ~is_real), ("real test records", "synthetic")):
        for label, class_name in enumerate(class_names):
            mine = chosen & (labels == label)
            panel.scatter(*points[mine].T, s=9, lw=0.4, alpha=0.8, label=_short(class_name),
                          color=PALETTE[label % len(PALETTE)], marker=MARKERS[label % len(MARKERS)],
                          facecolors="none" if label >= len(PALETTE) else None)
        panel.set(title=name, xticks=[], yticks=[], xlabel=f"{title} 1", ylabel=f"{title} 2",
                  xlim=_limits(points[:, 0]), ylim=_limits(points[:, 1]))
    handles, names = axes[0].get_legend_handles_labels()
    if len(class_names) <= 20:
        figure.legend(handles, names, loc="outside right center", fontsize=8, markerscale=1.6)
    return figure


def distance_chart(synthetic: np.ndarray, test: np.ndarray) -> Any:
    """Distributions of the distance to the nearest training record."""
    figure, axes = _figure(5.2, 3.0)
    bins = np.linspace(0, max(np.max(synthetic), np.max(test)), 50)
    axes.hist(test, bins, density=True, histtype="step", color=PALETTE[0], lw=1.5, label="unseen real records")
    axes.hist(synthetic, bins, density=True, histtype="step", color=PALETTE[2], lw=1.5, ls="--", label="synthetic")
    axes.set(xlabel="distance to the nearest training record", ylabel="density")
    axes.legend()
    return figure


def svg_bytes(figure: Any) -> bytes:
    """The chart as SVG; the same chart is the same bytes."""
    return _saved(figure, "svg", metadata={"Date": None})


def png_bytes(figure: Any) -> bytes:
    """The chart as PNG of 64 colours, which takes a quarter of the bytes of a PNG of all colours."""
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(_saved(figure, "png", dpi=150))) as picture:
        picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _saved(figure, kind, **options):
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": _STYLE["svg.hashsalt"]}):
        figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


def _figure(width: float, height: float, columns: int = 1):
    """A figure outside of pyplot, whose global state would keep it alive; and its axes."""
    import cycler
    import matplotlib
    from matplotlib.figure import Figure

    style: dict[Any, Any] = _STYLE | {"axes.prop_cycle": cycler.cycler(color=PALETTE)}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height))
        return figure, figure.subplots(1, columns)


def _plain_ticks(axes, values: Sequence[float]) -> None:
    """0.2, 1 and 10 rather than powers of ten."""
    from matplotlib import ticker

    low, high = min(values), max(values)
    steps = [base * 10.0 ** power for power in range(-3, 4) for base in (1, 2, 5)]
    axes.set_xlim(low * 0.85, high * 1.18)
    axes.xaxis.set_major_locator(ticker.FixedLocator([tick for tick in steps if low * 0.85 <= tick <= high * 1.18]))
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def _limits(values: np.ndarray) -> tuple[float, float]:
    margin = 0.04 * (np.ptp(values) or 1)
    return float(values.min() - margin), float(values.max() + margin)


def _short(name: str) -> str:
    return name if len(name) <= 12 else name[:11] + "."
