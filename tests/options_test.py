import math

import pytest

from datalens_tf.errors import InvalidArgumentError
from datalens_tf.options import PerformanceOptions


@pytest.mark.parametrize("name,value", [("chunk_size", 0), ("chunk_size", 1.5), ("num_threads", 0),
                                        ("checkpoint_minutes", -1), ("checkpoint_minutes", math.nan),
                                        ("distribute", "spark"), ("num_actors", 0), ("actor_gpus", -0.5),
                                        ("actor_timeout_minutes", 0)])
def test_performance_options_are_checked(name, value):
    with pytest.raises(InvalidArgumentError, match=rf"Expected {name}="):
        PerformanceOptions(**{name: value})


def test_many_cores_are_no_absurd_number_and_a_million_million_are():
    PerformanceOptions(num_threads=256, bank_memory_gb=4096)
    for name in ("num_threads", "num_actors", "chunk_size"):
        with pytest.raises(InvalidArgumentError, match=f"{name}=1000000000000"):
            PerformanceOptions(**{name: 10**12})
