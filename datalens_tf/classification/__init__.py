"""Differentially private classifiers: by DP-SGD, and by PATE."""
