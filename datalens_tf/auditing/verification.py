"""Checks that anybody who holds a run folder, an export or a converted file can make.

Checks need no records and nothing private. If a check fails, something was altered or mixed up. If all checks pass, the
parts agree with each other; `CANNOT_KNOW` says what nobody can see from outside.
"""

import base64
import dataclasses
import functools
import gzip
import io
import math
import pathlib
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import dp_accounting

from datalens_tf import _checksums, _files, _text
from datalens_tf.accounting import verification
from datalens_tf.accounting.accountants import round_up
from datalens_tf.accounting.ledger import PrivacyLedger
from datalens_tf.accounting.statement import parse_statement
from datalens_tf.classification.classifier_config import ClassifierConfig
from datalens_tf.config import config_digest
from datalens_tf.errors import CheckpointError, DataLensError, InvalidArgumentError
from datalens_tf.methods.registry import DEFAULT, config_from_json, methods
from datalens_tf.serving.digests import converted_checksums, onnx_digest, tflite_digest
from datalens_tf.serving.export import version_folder

CANNOT_KNOW = (
    "whether the noise was drawn as stated, and the weights come from these charges alone: that is the word of whoever "
    "trained",
    "whether somebody who knows how rewrote both the ledger and the statement: the chain of hashes has no key",
    "whether other runs used the same records: their budgets add up")
# All operations that generators of this package compute with, and classifiers of the layers that `classify` allows. Of
# these operations, only the four that load the variables touch a file.
_OPERATIONS = frozenset("""
    Abs AddN AddV2 All Any ArgMax Assert AssignVariableOp AvgPool AvgPool3D BatchMatMulV2 BatchToSpaceND BiasAdd
    Bitcast BitwiseOr BroadcastTo Cast Ceil ClipByValue ConcatV2 Const Conv2D Conv2DBackpropInput Conv3D Cos Cumsum
    DepthwiseConv2dNative DisableCopyOnRead Div DivNoNan Einsum Elu EncodePng Equal Erf Exp ExpandDims Fill Floor
    FloorDiv FloorMod FusedBatchNormV3 GatherNd GatherV2 Greater GreaterEqual Identity IdentityN If IsFinite IsNan
    LeakyRelu LeftShift Less LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr MatMul Max MaxPool MaxPool3D
    Maximum Mean MergeV2Checkpoints Min Minimum MirrorPad Mul Neg NoOp NotEqual OneHot OnesLike Pack Pad PadV2
    PartitionedCall Placeholder PlaceholderWithDefault Pow Prod RandomStandardNormal RandomUniform RandomUniformInt
    Range Rank ReadVariableOp RealDiv Relu Relu6 Reshape ResizeArea ResizeBicubic ResizeBilinear ResourceGather
    ResizeNearestNeighbor RestoreV2 ReverseV2 RightShift RngReadAndSkip Round Rsqrt SaveV2 ScaleAndTranslate
    ScatterNd Select SelectV2 Selu Shape ShardedFilename Sigmoid Sign Sin Size Slice Softmax Softplus Softsign
    SpaceToBatchND Split SplitV Sqrt Square SquaredDifference Squeeze StatefulPartitionedCall StatelessIf
    StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomNormalV2 StatelessRandomUniformFullIntV2
    StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormalV2 StatelessWhile
    StaticRegexFullMatch StopGradient StridedSlice StringJoin Sub Sum Tanh TensorListFromTensor TensorListGetItem
    TensorListReserve TensorListSetItem TensorListStack Tile TopKV2 Transpose Unpack VarHandleOp Where While
    ZerosLike
""".split())  # noqa: SIM905 (a list in quotes and commas is harder to read)
_IN_A_VERSION = re.compile(
    r"saved_model\.pb|fingerprint\.pb|variables/variables\.(index|data-\d{5}-of-\d{5})|assets\.extra/[^/]+")
_PRIVATE = "private"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
      passed: None where there is nothing to compare with.
      text: what was found, in words.
    """

    passed: bool | None
    text: str


def verify(path: str | pathlib.Path) -> list[Check]:
    """Checks a run folder, a released checkpoint, an export, or a converted file.

    Args:
      path: a folder with `config.json`; a SavedModel or the folder of its versions; or a file that `datalens convert`
        wrote.

    Raises:
      DataLensError: the path is none of these.
    """
    path = pathlib.Path(path)
    if path.is_file():
        return list(_converted(path))
    if (path / "config.json").exists() or (path / verification.LEDGER).exists():
        return list(_run(path))
    latest = version_folder(path)
    versions = [latest] if latest == path else sorted(
        (folder for folder in path.iterdir() if folder.name.isdecimal()), key=lambda folder: int(folder.name))
    return [check for version in versions for check in _export(version, f" {version.name}" * (len(versions) > 1))]


def _run(folder: pathlib.Path) -> Iterator[Check]:
    """Checks a run folder or a released checkpoint."""
    yield from _sealed(folder)
    yield _check("statement", lambda: _stated(verification.run_statement(folder)))
    if (folder / verification.LEDGER).exists():
        yield _check("ledger", lambda: _chain(PrivacyLedger.read(folder / verification.LEDGER)))
        yield _check("settings", lambda: _settings(folder))
    versions = [folder / "generator" / "1"] if (folder / "generator").exists() else []
    for version in versions:
        yield from _export(version)
        yield _check("the generator's statement", functools.partial(_same_statement, folder, version))
    if (folder / "saved_model" / "1").exists():
        yield _check("SavedModel", lambda: _saved_model(folder / "saved_model" / "1"))


def _export(version: pathlib.Path, number: str = "") -> Iterator[Check]:
    """Checks the folder of a SavedModel; its number is named where there are several."""
    sums = version / "assets.extra" / _checksums.NAME
    found, names = _checksums.problems(version, sums)
    inside = {path.relative_to(version).as_posix() for path in version.rglob("*") if not path.is_dir()}
    found += [f"{name} has no checksum" for name in sorted(inside - names - {f"assets.extra/{_checksums.NAME}"})]
    found += [f"{name} does not belong there" for name in sorted(inside) if not _IN_A_VERSION.fullmatch(name)]
    yield _files_check(f"SavedModel{number}, files", found, len(names))
    yield _check(f"SavedModel{number}, statement", lambda: _stated(_some(verification.export_statement(version))))
    yield _check(f"SavedModel{number}, content", lambda: _saved_model(version))


def _converted(path: pathlib.Path) -> Iterator[Check]:
    """Checks a file of `datalens convert`."""
    kind = path.suffix.removeprefix(".")
    readers: dict[str, Callable[[bytes], tuple[dict[str, str], str]]] = {
        "onnx": _onnx, "tflite": _tflite, "html": _page}
    if kind not in readers:
        raise InvalidArgumentError(f"Expected {path} to be a folder, or a file that `datalens convert` wrote: .onnx, "
                                   ".tflite or .html.")
    try:
        texts, weights = readers[kind](path.read_bytes())
    except DataLensError:
        raise
    except Exception as error:  # noqa: BLE001 (parsers of damaged files raise nearly anything)
        yield Check(passed=False, text=f"file: it is damaged, or not what `datalens convert` writes ({error})")
        return
    stated = texts.pop(_checksums.NAME, None)
    if stated is None:
        yield Check(passed=None, text="checksums: none inside, as an older version wrote none")
    else:
        differing = stated != converted_checksums(texts, weights)
        yield Check(passed=not differing, text="checksums: what the model computes with, and its texts, "
                    + ("are not what was converted" if differing else "are what was converted"))
    with tempfile.TemporaryDirectory() as scratch:
        extra = pathlib.Path(scratch) / "assets.extra"
        extra.mkdir()
        for name, text in texts.items():
            if name in (verification.STATEMENT, verification.LEDGER):
                (extra / name).write_text(text, encoding="utf-8")
        yield _check("statement", lambda: _stated(_some(verification.export_statement(extra.parent))))


def _onnx(data: bytes) -> tuple[dict[str, str], str]:
    try:
        import onnx
    except ImportError as error:
        raise InvalidArgumentError("Expected the extra `serving` to be installed, to read ONNX: pip install "
                                   "'datalens_tf[serving]'.") from error
    model = onnx.load_model_from_string(data)
    return {entry.key: entry.value for entry in model.metadata_props}, onnx_digest(model)


def _tflite(data: bytes) -> tuple[dict[str, str], str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > len(data):  # They are stored uncompressed.
            raise ValueError("its texts are larger than the file")
        texts = {member.filename: archive.read(member).decode() for member in members}
        return texts, tflite_digest(data[:min(member.header_offset for member in members)])


def _page(data: bytes) -> tuple[dict[str, str], str]:
    """The page draws with an ONNX model inside it."""
    packed = re.search(rb'id="model"[^>]*>\s*([A-Za-z0-9+/=]+)\s*<', data)
    if packed is None:
        raise ValueError("it holds no model")
    return _onnx(gzip.decompress(base64.b64decode(packed.group(1))))


def _check(name: str, find: Callable[[], str]) -> Check:
    """Makes a check from what `find` returns, or from the error with which it refuses."""
    try:
        return Check(passed=True, text=f"{name}: {find()}")
    except DataLensError as error:
        return Check(passed=False, text=f"{name}: {error}")


def _files_check(name: str, found: list[str], count: int) -> Check:
    """Makes the check of checksums."""
    if not found:
        return Check(passed=True, text=f"{name}: all {count} are as they were written")
    more = [f"and {len(found) - 5} more"] if len(found) > 5 else []
    return Check(passed=False, text=f"{name}: {'; '.join(found[:5] + more)}")


def _sealed(folder: pathlib.Path) -> Iterator[Check]:
    """The checksums of a run folder."""
    if not (folder / _checksums.NAME).exists():
        yield Check(passed=None, text="files: the folder has no checksums, as an older version wrote none")
        return
    found, names = _checksums.problems(folder, folder / _checksums.NAME)
    yield _files_check("files", found, len(names))
    others = sorted({path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file()
                     and path.relative_to(folder).as_posix() not in names} - {_PRIVATE, _checksums.NAME})
    if others:
        yield Check(passed=None, text=f"files without a checksum, which may be anybody's: {', '.join(others)}. "
                    "`datalens share` leaves them out")


def _some(statement: dict[str, Any] | None) -> dict[str, Any]:
    if statement is None:
        raise CheckpointError("there is no privacy statement.")
    return statement


def _stated(statement: dict[str, Any]) -> str:
    """Describes the promise of a statement."""
    if not statement["private"]:
        return "NOT PRIVATE, and says so"
    return (f"epsilon {round_up(statement['epsilon'])} ({statement['accountant']}) at delta {statement['delta']:g}, "
            f"{statement['adjacency']}, is what {statement['num_charges']} charges cost")


def _chain(ledger: PrivacyLedger) -> str:
    """Describes a ledger."""
    starts = len({charge.start for charge in ledger.charges})
    name = "it has no id, as it was made by an older version" if ledger.run_id is None else (
        f"run {ledger.run_id}, {starts} start{'s' * (starts != 1)}")
    return f"an unbroken chain of {ledger.num_charges} charges in {len(ledger.charges)} lines; {name}"


def _settings(folder: pathlib.Path) -> str:
    """Compares settings and ledger."""
    text = (folder / "config.json").read_text(encoding="utf-8")
    ledger = PrivacyLedger.read(folder / verification.LEDGER)
    if config_digest(text) != ledger.config_digest:
        raise CheckpointError("config.json is not that of the ledger.")
    event = _step_event(text)
    if event is None:
        return "config.json is that of the ledger"
    if ledger.step_event != event:
        raise CheckpointError(f"a charge is {ledger.step_event}, and these settings make charges of {event}.")
    cheaper = [charge for charge in ledger.charges if charge.unit != event and not _costs_less(charge.unit, event)]
    if cheaper:
        raise CheckpointError(f"charge {cheaper[0].index} is of {cheaper[0].unit}, which these settings do not make.")
    return f"config.json is that of the ledger, and makes charges of {event}"


def _step_event(text: str) -> dp_accounting.DpEvent | None:
    """Cost of a charge by the settings in `config.json`; None where these alone do not decide it, as in PATE."""
    method = _files.parse_json(text).get("method", DEFAULT)
    if method in methods():
        return config_from_json(text).step_event()
    return ClassifierConfig.from_json(text).step_event() if method == ClassifierConfig.method else None


def _costs_less(unit: dp_accounting.DpEvent, event: dp_accounting.DpEvent) -> bool:
    """Whether `unit` is a release that was given more noise than `event` plans, after charges were lost."""
    return (isinstance(unit, dp_accounting.GaussianDpEvent) and isinstance(event, dp_accounting.GaussianDpEvent)
            and unit.noise_multiplier > event.noise_multiplier)


def _same_statement(folder: pathlib.Path, version: pathlib.Path) -> str:
    inside = _some(verification.export_statement(version))
    path = folder / verification.STATEMENT
    try:
        own = parse_statement(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Cannot read the privacy statement {path}.") from error
    if inside != own:
        raise CheckpointError("the statement in the SavedModel is another one than the run's.")
    return "it is the run's"


def _saved_model(version: pathlib.Path) -> str:
    """Describes the operations and variables of a SavedModel."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    model = saved_model_pb2.SavedModel()
    try:
        model.ParseFromString((version / "saved_model.pb").read_bytes())
        variables = tf.train.list_variables(str(version / "variables" / "variables"))
    except (OSError, DecodeError, ValueError, tf.errors.OpError) as error:
        raise CheckpointError(f"{version} is damaged: {_text.first_line(error):.200}") from error
    used, texts = set(), set()
    for graph in model.meta_graphs:
        for nodes in (graph.graph_def.node, *(function.node_def for function in graph.graph_def.library.function)):
            used |= {node.op for node in nodes}
            for node in nodes:
                texts |= set(node.attr["value"].tensor.string_val)
    strange = sorted(used - _OPERATIONS)
    if strange:
        raise CheckpointError(f"it holds operations that no generator of this package has: {', '.join(strange)}.")
    stated = version / "assets.extra" / verification.STATEMENT
    described = any("describe" in graph.signature_def for graph in model.meta_graphs)
    if described and stated.exists() and stated.read_bytes() not in texts:
        raise CheckpointError("the statement that it answers to `describe` is another one than that beside it.")
    numbers = sum(math.prod(shape) for name, shape in variables if not name.startswith("_CHECKPOINTABLE"))
    return f"{numbers} numbers in variables, and no operation that reaches beyond the model"
