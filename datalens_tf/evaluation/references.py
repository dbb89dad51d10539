"""Published numbers, to stand beside ours. Each was measured by its authors' own protocol.

DataLens: Wang et al., CCS 2021, tables 1 to 3; it reports the best test accuracy of 600 epochs. GS-WGAN: Chen et al.,
NeurIPS 2020, tables 1, A1 and A2. The re-run of DataLens' code: the SoK of sok-ppds.
"""

from datalens_tf.methods.registry import methods

# Accuracy of the DataLens paper's classifier: data set -> method -> epsilon -> accuracy. Its table 2 has 0.4046 where
# table 1 has 0.4036.
ACCURACY = {
    "mnist": {
        "DataLens": {0.2: 0.2344, 0.4: 0.2919, 0.6: 0.4201, 0.8: 0.6485, 1.0: 0.7123, 10.0: 0.8066},
        "GS-WGAN": {0.2: 0.0972, 0.4: 0.1029, 0.6: 0.1044, 0.8: 0.1170, 1.0: 0.1432, 10.0: 0.8075},
        "G-PATE": {0.2: 0.2230, 0.4: 0.2478, 0.6: 0.4184, 0.8: 0.5377, 1.0: 0.5810, 10.0: 0.8092},
        "DP-GAN": {0.2: 0.1104, 0.4: 0.1524, 0.6: 0.1022, 0.8: 0.3732, 1.0: 0.4036, 10.0: 0.8011},
        "PATE-GAN": {0.2: 0.2176, 0.4: 0.2399, 0.6: 0.3484, 0.8: 0.3571, 1.0: 0.4168, 10.0: 0.6667}},
    "fashion_mnist": {
        "DataLens": {0.2: 0.2226, 0.4: 0.3863, 0.6: 0.4314, 0.8: 0.5534, 1.0: 0.6478, 10.0: 0.7061},
        "GS-WGAN": {0.2: 0.1000, 0.4: 0.1001, 0.6: 0.1144, 0.8: 0.1242, 1.0: 0.1661, 10.0: 0.6579},
        "G-PATE": {0.2: 0.1874, 0.4: 0.3020, 0.6: 0.4283, 0.8: 0.5258, 1.0: 0.5567, 10.0: 0.6934},
        "DP-GAN": {0.2: 0.1021, 0.4: 0.1302, 0.6: 0.0998, 0.8: 0.1210, 1.0: 0.1053, 10.0: 0.6098},
        "PATE-GAN": {0.2: 0.1605, 0.4: 0.2977, 0.6: 0.3698, 0.8: 0.3659, 1.0: 0.4222, 10.0: 0.6218}},
    "celeba_gender": {
        "DataLens": {1.0: 0.7058, 10.0: 0.7287}, "GS-WGAN": {1.0: 0.5901, 10.0: 0.6136},
        "G-PATE": {1.0: 0.6702, 10.0: 0.6897}, "DP-GAN": {1.0: 0.5330, 10.0: 0.5211},
        "PATE-GAN": {1.0: 0.6068, 10.0: 0.6535}},
    "celeba_hair": {
        "DataLens": {1.0: 0.6061, 10.0: 0.6224}, "GS-WGAN": {1.0: 0.4203, 10.0: 0.5225},
        "G-PATE": {1.0: 0.4985, 10.0: 0.6217}, "DP-GAN": {1.0: 0.3447, 10.0: 0.3920},
        "PATE-GAN": {1.0: 0.3789, 10.0: 0.3900}},
    "places365": {
        "DataLens": {1.0: 0.4313, 10.0: 0.4875}, "GS-WGAN": {1.0: 0.3375, 10.0: 0.3725},
        "G-PATE": {1.0: 0.3483, 10.0: 0.3883}, "DP-GAN": {1.0: 0.3200, 10.0: 0.3292},
        "PATE-GAN": {1.0: 0.3238, 10.0: 0.3796}},
}

# The neighbouring relations of published epsilons, for the methods that are drawn beside ours.
ADJACENCY = {"DataLens": "replace-one", "GS-WGAN": "replace-one", "DP-FETA": "add-or-remove-one"}

# Accuracy with generators that were trained without privacy: data set -> the DataLens paper's DC-GAN.
WITHOUT_PRIVACY = {"mnist": 0.9653, "fashion_mnist": 0.8032, "celeba_gender": 0.8149, "celeba_hair": 0.7678,
                   "places365": 0.7404}

# Accuracy of the classifiers of DPImageBench (its README): data set -> method -> epsilon -> accuracy.
DPIMAGEBENCH = {
    "mnist": {"DP-MERF": {1.0: 0.803, 10.0: 0.813}, "DP-GAN": {1.0: 0.924, 10.0: 0.927},
              "DP-FETA": {1.0: 0.956, 10.0: 0.981}},
    "fashion_mnist": {"DP-MERF": {1.0: 0.622, 10.0: 0.622}, "DP-GAN": {1.0: 0.718, 10.0: 0.703},
                      "DP-FETA": {1.0: 0.817, 10.0: 0.873}},
}

# Inception Score in the DataLens paper's table 3: data set -> method -> epsilon -> score.
INCEPTION_SCORE = {
    "mnist": {
        "DataLens": {1.0: 4.37, 10.0: 5.78}, "GS-WGAN": {1.0: 1.00, 10.0: 8.59}, "G-PATE": {1.0: 3.60, 10.0: 5.16},
        "DP-GAN": {1.0: 1.00, 10.0: 1.00}, "PATE-GAN": {1.0: 1.19, 10.0: 1.46}},
    "fashion_mnist": {
        "DataLens": {1.0: 3.93, 10.0: 4.58}, "GS-WGAN": {1.0: 1.00, 10.0: 5.87}, "G-PATE": {1.0: 3.41, 10.0: 4.33},
        "DP-GAN": {1.0: 1.03, 10.0: 1.05}, "PATE-GAN": {1.0: 1.69, 10.0: 2.35}},
}

# Inception Score of real data in GS-WGAN's table 1.
REAL_INCEPTION_SCORE = {"mnist": 9.80, "fashion_mnist": 8.98}

# GS-WGAN's thirteen classifiers, data set -> classifier -> (trained on real data, on GS-WGAN's at epsilon 10).
CLASSIFIERS = {
    "mnist": {
        "mlp": (0.98, 0.79), "cnn": (0.99, 0.80), "adaboost": (0.73, 0.21), "bagging": (0.93, 0.45),
        "bernoulli_nb": (0.84, 0.77), "decision_tree": (0.88, 0.35), "gaussian_nb": (0.56, 0.64), "gbm": (0.91, 0.39),
        "lda": (0.88, 0.78), "linear_svc": (0.92, 0.76), "logistic_reg": (0.93, 0.79), "random_forest": (0.97, 0.52),
        "xgboost": (0.91, 0.50)},
    "fashion_mnist": {
        "mlp": (0.88, 0.65), "cnn": (0.91, 0.64), "adaboost": (0.56, 0.25), "bagging": (0.84, 0.47),
        "bernoulli_nb": (0.65, 0.55), "decision_tree": (0.79, 0.40), "gaussian_nb": (0.59, 0.48), "gbm": (0.83, 0.38),
        "lda": (0.80, 0.67), "linear_svc": (0.84, 0.65), "logistic_reg": (0.84, 0.68), "random_forest": (0.88, 0.54),
        "xgboost": (0.83, 0.47)},
}

RERUN = {"mnist": "An independent re-run of the DataLens authors' code at epsilon 10 got 0.539 where the paper has "
                  "0.8066 (SoK, sok-ppds)."}


def published(method: str, dataset: str, epsilon: float | None) -> dict[str, float]:
    """Source -> published accuracy of a method of this package (see `methods`) at this budget; None is no privacy."""
    known = methods().get(method)
    name = None if known is None else known.published_as
    if epsilon is None:
        return {"DataLens paper": WITHOUT_PRIVACY[dataset]} if name == "DC-GAN" and dataset in WITHOUT_PRIVACY else {}
    found: dict[str, float] = {}
    for source, numbers in (("DataLens paper", ACCURACY), ("DPImageBench", DPIMAGEBENCH)):
        value = numbers.get(dataset, {}).get(name or "", {}).get(epsilon)
        found |= {} if value is None else {source: value}
    return found
