"""Exceptions and warnings. Each exception carries the exit status with which the command line ends."""


class DataLensError(Exception):
    """Base of every error that is the user's to mend: one clear line, no traceback on the command line.

    Example:
      >>> from datalens_tf import DataLensError, load_dataset
      >>> try:
      ...     load_dataset("minst")
      ... except DataLensError as error:
      ...     print(error)
      Unknown data set 'minst'. ...
    """

    exit_code = 2


class InvalidArgumentError(DataLensError, ValueError):
    """An argument, flag or configuration value outside its domain."""


class PrivacyWarning(UserWarning):
    """Settings that are allowed, and that protect less than they seem to."""


class InterruptionWarning(UserWarning):
    """Charges to the privacy budget that were lost in an interruption, and what that means for the rest of the run."""


class DataWarning(UserWarning):
    """Data that can be used but is perhaps not what was meant."""


class DataError(DataLensError):
    """A data set that is missing, unreadable, or not what it must be."""


class CheckpointError(DataLensError):
    """A run folder or checkpoint that is damaged, locked, or belongs to another configuration."""


class LedgerError(DataLensError):
    """A privacy ledger that is damaged or disagrees with the configuration."""


class TrainingDivergedError(DataLensError):
    """NaN or infinity where training needs finite numbers. Charges already made stay in the ledger."""

    exit_code = 1


class BrokenInstallationError(DataLensError):
    """Something of this installation or machine keeps the package from working."""

    exit_code = 1


class ActorError(DataLensError):
    """Other processes that take part in training cannot be reached, or keep dying."""

    exit_code = 1


class BudgetExhaustedError(DataLensError):
    """The privacy budget does not pay for a single step."""

    exit_code = 3


class TrainingInterrupted(DataLensError):
    """The user interrupted training; the state was saved and `--resume` continues it."""

    exit_code = 130
