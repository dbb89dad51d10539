"""Evaluation of synthetic data: how useful it is."""

import os

# Threads of scikit-learn and XGBoost spin while they wait for each other. Beside any other process that keeps a core
# busy, that makes small trainings a hundred times slower. Read when their libraries are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
