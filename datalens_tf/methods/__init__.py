"""Methods: one file each, with its settings, presets, training and wording; and what several of them share.

Calling the package lists the methods, as a table that prints and iterates.

Example:
  >>> import datalens_tf as dl
  >>> [method.published_as for method in dl.methods() if method.name == "datalens"]
  ['DataLens']
"""

import sys
import types
from typing import Any


class _Package(types.ModuleType):
    """A package that lists its methods when it is called: `datalens_tf.methods()`."""

    def __call__(self) -> Any:
        from datalens_tf.methods import registry

        return registry.table()


sys.modules[__name__].__class__ = _Package
