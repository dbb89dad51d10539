"""Why two of the thirteen classifiers differ from GS-WGAN's table: accuracy on real data with the defaults of its time.

    python run_scripts/benchmarks/old_defaults.py x.npz          # arrays x, y, x_test, y_test: real data

XGBoost's defaults were trees of depth 3 and a learning rate of 0.1 before version 1.0. AdaBoost's was the algorithm
SAMME.R, which scikit-learn 1.6 no longer has: run this in an environment with `pip install "scikit-learn<1.6" "numpy<2"`
for it. It needs nothing of the package.
"""

import argparse
import inspect
import warnings

import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive")
    with np.load(parser.parse_args().archive) as data:
        x, x_test = ((data[name] / np.float32(255)).reshape(len(data[name]), -1) for name in ("x", "x_test"))
        y, y_test = data["y"], data["y_test"]
    models = {}
    try:
        from xgboost import XGBClassifier

        models["xgboost, depth 3, learning rate 0.1"] = XGBClassifier(max_depth=3, learning_rate=0.1, random_state=0)
    except ImportError:
        print("no xgboost here")
    import sklearn
    from sklearn.ensemble import AdaBoostClassifier

    algorithm = inspect.signature(AdaBoostClassifier).parameters.get("algorithm")
    if algorithm is not None and algorithm.default != "deprecated":
        models["adaboost, SAMME.R"] = AdaBoostClassifier(algorithm="SAMME.R", random_state=0)
        models["adaboost, SAMME"] = AdaBoostClassifier(algorithm="SAMME", random_state=0)
    else:
        print(f"scikit-learn {sklearn.__version__} has no SAMME.R")
    for name, model in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(f"{name}: {np.mean(model.fit(x, y).predict(x_test) == y_test):.4f}", flush=True)


if __name__ == "__main__":
    main()
