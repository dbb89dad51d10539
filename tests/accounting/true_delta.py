"""The delta of samples of fixed size, computed from the definition."""

import numpy as np
from scipy import signal, stats


def densities(rate, means, x):
    """Of P = (1 - q) A + q B and Q = (1 - q) A + q B' with unit noise; means of A, B, B' in standard deviations."""
    a, b, other = (stats.norm.pdf(x - mean) for mean in means)
    return (1 - rate) * a + rate * b, (1 - rate) * a + rate * other


def least_delta(rate, means, steps, epsilon, interval=2e-3):
    """A lower bound of the steps' true delta: the privacy losses of a fine partition of the line, rounded down."""
    edges = np.linspace(-15, 15 + max(means), 60_001)
    points = (edges[1:] + edges[:-1]) / 2
    p, q = densities(rate, means, points)
    mass, losses = p * (edges[1] - edges[0]), np.floor(np.log(p / q) / interval).astype(int)
    low = losses.min()
    one = np.bincount(losses - low, mass)
    total = one
    for _ in range(steps - 1):
        total = np.maximum(signal.fftconvolve(total, one), 0)
    grid = interval * (steps * low + np.arange(len(total)))
    return np.sum(total * np.maximum(0, -np.expm1(epsilon - grid)))
