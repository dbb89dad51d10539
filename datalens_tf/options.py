"""Options of a run that change its speed and memory, and nothing else."""

import dataclasses
import typing
from typing import Any

from datalens_tf import _validate
from datalens_tf.settings import Settings, at_least, positive, setting


def _check_distribute(name: str, value: Any) -> None:
    sound = isinstance(value, str) and (value == "ray" or value.startswith("ray://"))
    _validate.require(sound, name, value, "to be ray or ray://HOST:PORT")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerformanceOptions(Settings):
    """Options that change speed and memory only, never the guarantee.

    Example:
      >>> from datalens_tf import DataLens, PerformanceOptions
      >>> synthesizer = DataLens.from_preset("mnist", epsilon=1.0, options=PerformanceOptions(num_threads=4))
    """

    chunk_size: int | None = setting(
        None, "Teachers computed at once. With none, the size of a teacher decides.", at_least(1))
    num_threads: int | None = setting(
        None, "Chunks of teachers computed side by side, each in a thread. None means one in Python and in every "
        "actor, and one per CPU core on the command line.", at_least(1))
    checkpoint_minutes: float = setting(
        15.0, "Minutes between teacher checkpoints; later steps are computed again on resume.", at_least(0))
    bank_memory_gb: float | None = setting(
        None, "GiB that the teachers' state may take in memory. A larger one lives in a file of the run folder and is "
        "read as needed; results are the same. None means 80 % of the machine's memory.", at_least(0))
    distribute: str | None = setting(
        None, "Where teachers are: ray for several processes of this machine, or of the cluster that "
        "RAY_ADDRESS names; ray://HOST:PORT for those of another cluster; none for this process alone. Results "
        "are the same.",
        _check_distribute)
    num_actors: int | None = setting(
        None, "Processes that share the teachers. None means one per machine, at least 2.", at_least(1))
    actor_gpus: float = setting(
        0.0, "GPUs that each of these processes takes, a fraction where they share one.", at_least(0))
    actor_timeout_minutes: float = setting(
        60.0, "Minutes that one process may take for a round before it is replaced.", positive)

    GROUP: typing.ClassVar[str] = "speed"
