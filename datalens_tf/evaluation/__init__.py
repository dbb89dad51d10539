"""Evaluation of synthetic data: how useful it is."""

import os

# Threads of scikit-learn and XGBoost spin while they wait for each other. While another process keeps a core busy,
# this makes small trainings a hundred times slower. The variable is read when their libraries are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
