"""The compiler's front ends: trained classifiers of other frameworks become ensembles, all of them through treelite.

scikit-learn goes left iff ``x <= t`` with a float64 threshold (all but histogram boosting cast x to float32 first),
XGBoost iff ``x < t`` in float32. On integers below 2**24, which float32 and float64 both hold, these are ``x <=
floor(t)`` and ``x <= ceil(t) - 1``. Above, float32 rounds x, and the cut is the largest integer that it rounds to the
left side. Where a missing value would go is irrelevant: integers are never missing.

A packet is dropped iff its drop probability, the second class's, exceeds one half; a tie accepts. That is ``predict``
of every framework here, except that ``GradientBoostingClassifier.predict`` drops at a logit of exactly 0, where its own
``predict_proba`` says one half.

How each framework adds up, and so where its rounding can decide otherwise than the exact sum, stands in
``foretail.models.ensemble.rounding``; front ends put the type it adds in, ``float64`` or ``float32``, into ``origin``.
"""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.labels import require_labels
from foretail.core.reading import Reading
from foretail.models.ensemble.agreement import require_agreement
from foretail.models.ensemble.ensemble import MAX_BITS, ColumnInput, Ensemble, FeatureInput, OriginValue, Output

if TYPE_CHECKING:
    import treelite
from foretail.models.ensemble.ensemble import FLOAT32_BITS
from foretail.models.ensemble.tree import MAX_VISITS, Tree

_LE, _LT = 3, 2  # treelite's Operator codes of a node's `cmp`
CATEGORICAL = "the model has categorical splits, which are not supported: train it on integer features only"


def read_tree(accessor: Any, classes: int, features: Sequence[FeatureInput], *, rounds: bool) -> Tree:
    """Return the tree of a treelite accessor; ForetailError when it is malformed or of another kind.

    Parameters
    ----------
    classes : 2 for leaves that are probabilities of two classes, 1 for leaves of one number
    features : the model's columns in training order
    rounds : whether the framework compares inputs as float32
    """
    if np.any(accessor.get_field("has_categorical_split")):
        raise ForetailError(CATEGORICAL)
    left, right = (accessor.get_field(name).astype(np.int64) for name in ("cleft", "cright"))
    feature = accessor.get_field("split_index").astype(np.int64)
    threshold = accessor.get_field("threshold").astype(np.float64)
    operator = accessor.get_field("cmp")
    arrays = [left, right, feature, threshold, operator]
    if not len(left) or any(len(array) != len(left) for array in arrays) or np.any((left < 0) != (right < 0)):
        raise _malformed()
    inner = np.flatnonzero(left >= 0)
    if np.any(feature[inner] < 0) or np.any(feature[inner] >= len(features)):
        raise _malformed()
    if not np.all(np.isin(operator[inner], (_LE, _LT))):
        raise ForetailError("the model has splits other than x < t and x <= t: use a random forest or boosted trees")
    if not np.all(np.isfinite(threshold[inner])):
        raise ForetailError("the model has a split at a threshold that is not finite: train it without missing values")
    value = _leaf_values(accessor, classes, left < 0)
    if not np.all(np.isfinite(value)):
        raise ForetailError("the model has a leaf that is not finite: lower its learning rate or train it again")
    # On integers x <= t is x <= floor(t), and x < t is x <= ceil(t) - 1; clipped to where a cut changes something.
    threshold = np.clip(threshold, -1, 1 << MAX_BITS)
    cut = np.where(operator == _LE, np.floor(threshold), np.ceil(threshold) - 1)
    if rounds:
        cut = np.where(cut < 1 << FLOAT32_BITS, cut, _cuts_of_float32(threshold, operator == _LE))
    cut = np.where(left >= 0, np.maximum(cut, -1), 0).astype(np.int64)
    visits = _visits(accessor, left < 0)
    return _in_preorder(feature, cut, left, right, value, visits, [(1 << f.bits) - 1 for f in features])


def _cuts_of_float32(threshold: npt.NDArray[np.float64], at_most: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the largest integer whose float32 is at most, or else below, each threshold from 2**24 on."""
    last = threshold.astype(np.float32)
    beyond = np.where(at_most, last > threshold, last >= threshold)
    last = np.where(beyond, np.nextafter(last, np.float32(-np.inf)), last)
    # Integers round to the nearer float32; one in the middle to the float32 whose last bit is 0.
    middle = (last.astype(np.float64) + np.nextafter(last, np.float32(np.inf))) / 2
    cuts: npt.NDArray[np.float64] = np.where(middle.astype(np.float32) == last, np.floor(middle), np.ceil(middle) - 1)
    return cuts


def _leaf_values(accessor: Any, classes: int, leaf: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    value = np.zeros(len(leaf))
    if classes == 1:
        given = accessor.get_field("leaf_value").astype(np.float64)
        if len(given) != len(leaf):
            raise _malformed()
        value[leaf] = given[leaf]
        return value
    vector, begin = (accessor.get_field(name) for name in ("leaf_vector", "leaf_vector_begin"))
    if len(begin) != len(leaf) or np.any(begin[leaf] + 1 >= len(vector)):
        raise _malformed()
    value[leaf] = vector[begin[leaf].astype(np.int64) + 1]
    return value


def _visits(accessor: Any, leaf: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64] | None:
    """Return how many training rows reached each leaf, as its framework has counted them; None where it has not."""
    count, present = (accessor.get_field(name) for name in ("data_count", "data_count_present"))
    if len(count) != len(leaf) or len(present) != len(leaf) or not np.all(present[leaf]) or count.max() >= MAX_VISITS:
        return None
    return np.where(leaf, count.astype(np.int64), 0)


def _in_preorder(
    feature: npt.NDArray[np.int64],
    cut: npt.NDArray[np.int64],
    left: npt.NDArray[np.int64],
    right: npt.NDArray[np.int64],
    value: npt.NDArray[np.float64],
    visits: npt.NDArray[np.int64] | None,
    largest: Sequence[int],
) -> Tree:
    """Number the nodes that inputs in [0, largest] reach in preorder, the canonical order: equal trees, equal files."""
    order: list[int] = []
    children: list[list[int]] = []
    stack, seen = [(0, -1, 0)], np.zeros(len(left), np.bool_)
    while stack:
        node, parent, side = stack.pop()
        while True:
            if node >= len(left) or seen[node]:  # no child, or one of two parents
                raise _malformed()
            seen[node] = True
            if left[node] < 0 or 0 <= cut[node] < largest[feature[node]]:
                break
            node = int(right[node] if cut[node] < 0 else left[node])
        if parent >= 0:
            children[parent][side] = len(order)
        if left[node] >= 0:
            stack += [(int(right[node]), len(order), 1), (int(left[node]), len(order), 0)]
        order.append(node)
        children.append([-1, -1])
    ordered = np.array(order)
    pairs = np.array(children)
    tested = np.where(left[ordered] >= 0, feature[ordered], -1).astype(np.int32)
    below, above = (side.astype(np.int32) for side in pairs.T)
    counts = None if visits is None else visits[ordered]
    return Tree(tested, cut[ordered], below, above, value[ordered], visits=counts)


def _malformed() -> ForetailError:
    return ForetailError("the model has a malformed tree: its file is damaged, save the model again")


Origin = Mapping[str, OriginValue]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_MAPPING = "as in inputs=[{name: queue_length, column: 'queue length', bits: 12}]"
_ZERO_IS_MISSING = 1  # LightGBM's missing type of a split, in bits 2 and 3 of its decision type
_BINARY = 0  # treelite's TaskType kBinaryClf
_BOOSTED = ("GradientBoosting", "HistGradientBoosting")
_THRESHOLD = "decides at a threshold of its own, a rule outside of its trees: give its estimator_"
_SEARCH = "is a search: give its best_estimator_"
_WRAPPERS = {
    "CalibratedClassifierCV": "calibrates probabilities, a rule outside of its trees: give the classifier without it",
    "FixedThresholdClassifier": _THRESHOLD,
    "TunedThresholdClassifierCV": _THRESHOLD,
    "GridSearchCV": _SEARCH,
    "RandomizedSearchCV": _SEARCH,
    "Pipeline": "changes its inputs before its trees: give the classifier of its last step, trained without the others",
}
"""Estimators that are read once they are unwrapped."""


def is_tree_model(estimator: object) -> bool:
    """Return whether a fitted model is one that :func:`from_estimator` reads."""
    package, kind = type(estimator).__module__.partition(".")[0], type(estimator).__name__
    if package == "sklearn":
        return kind.removesuffix("Classifier") in ("RandomForest", "ExtraTrees", "DecisionTree", *_BOOSTED)
    return package in ("xgboost", "lightgbm") and kind in ("XGBClassifier", "LGBMClassifier", "Booster")


def named_columns(estimator: object) -> list[str] | None:
    """Return the names of the columns that a model was fitted on; None where it does not know them."""
    booster = getattr(estimator, "booster_", estimator)  # of LightGBM
    for name in ("feature_names_in_", "feature_names", "feature_name"):
        names = getattr(booster, name, None)
        names = names() if callable(names) else names
        if names is not None and list(names) != [f"Column_{index}" for index in range(len(names))]:
            return [str(one) for one in names]
    return None


def from_estimator(
    estimator: object,
    features: Sequence[FeatureInput],
    origin: Origin | None = None,
    rows: npt.ArrayLike | None = None,
) -> Ensemble:
    """Read a fitted classifier of scikit-learn, XGBoost or LightGBM; as :func:`from_sklearn` for all others."""
    package = type(estimator).__module__.partition(".")[0]
    if package == "xgboost":
        return from_xgboost(estimator, features, origin, rows)
    if package == "lightgbm":
        with tempfile.TemporaryDirectory() as folder:
            if hasattr(estimator, "classes_"):
                require_labels(type(estimator).__name__, estimator.classes_)
            file = Path(folder) / "model.txt"
            getattr(estimator, "booster_", estimator).save_model(file)  # type: ignore[attr-defined]
            return from_lightgbm(file, features, origin, rows)
    return from_sklearn(estimator, features, origin, rows)


def from_sklearn(
    estimator: object,
    features: Sequence[FeatureInput],
    origin: Origin | None = None,
    rows: npt.ArrayLike | None = None,
) -> Ensemble:
    """Read a fitted scikit-learn classifier of two classes.

    Forests and trees give ``mean_probability`` with the estimators' own leaf probabilities; gradient boosting gives
    ``logit``: the prior of ``init`` is the base, and leaf values carry the learning rate, rounded as scikit-learn does.
    ForetailError on any other or unfitted estimator, other labels, categorical features, or features that do not fit.

    Parameters
    ----------
    estimator : scikit-learn classifier
        RandomForest, ExtraTrees, DecisionTree, GradientBoosting or HistGradientBoosting, fitted on labels 0 (accept)
        and 1 (drop).
    features : the training columns in order, with the names the estimator was fitted with, if any; a ColumnInput has
        another name
    origin : added to the ensemble's ``origin``
    rows : integer array [rows, features], optional, on which decisions are compared, beside zeros and thresholds
    """
    import sklearn
    import treelite
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        GradientBoostingClassifier,
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )
    from sklearn.tree import DecisionTreeClassifier

    kind = type(estimator).__name__
    forests = (RandomForestClassifier, ExtraTreesClassifier)
    boosted = (GradientBoostingClassifier, HistGradientBoostingClassifier)
    if not isinstance(estimator, (*forests, *boosted, DecisionTreeClassifier)):
        if kind in _WRAPPERS:
            raise ForetailError(f"the {kind} {_WRAPPERS[kind]}")
        raise ForetailError(
            f"{kind} is not a classifier that Foretail reads: use RandomForestClassifier, ExtraTreesClassifier, "
            f"DecisionTreeClassifier, GradientBoostingClassifier or HistGradientBoostingClassifier"
        )
    model: Any = estimator
    if not hasattr(model, "classes_"):
        raise ForetailError(f"the {kind} is not trained: call fit first")
    if np.ndim(model.classes_[0]) > 0:
        raise _several_labels(len(model.classes_))
    classes = np.asarray(model.classes_).tolist()
    require_labels(kind, classes)
    features = _checked_features(features, getattr(model, "feature_names_in_", None), model.n_features_in_)
    if isinstance(model, boosted) and model.loss != "log_loss":
        raise ForetailError(f"the {kind} was trained with loss {model.loss!r}: train it with loss='log_loss'")
    if isinstance(model, HistGradientBoostingClassifier) and np.any(model.is_categorical_):
        raise ForetailError(f"the {kind} has categorical features: train it on integer features only")
    if isinstance(model, DecisionTreeClassifier):
        model = RandomForestClassifier(n_estimators=1)  # which treelite reads, and which predicts alike
        model.estimators_ = [estimator]
        for name in ("n_features_in_", "n_outputs_", "n_classes_", "classes_"):
            setattr(model, name, getattr(estimator, name))
    elif hasattr(model, "estimators_"):
        model = copy.copy(model)
        model.n_estimators = len(model.estimators_)  # treelite would read beyond those that early stopping left
    try:
        read = treelite.sklearn.import_model(model)
    except (treelite.TreeliteError, NotImplementedError) as error:
        raise ForetailError(
            f"treelite cannot read the {kind} ({_first_line(error)}): train it with scikit-learn's own init"
        ) from None
    if isinstance(model, forests):
        for index, tree in enumerate(e.tree_ for e in model.estimators_):
            # treelite divides leaf probabilities by their sum, which moves the last bit under class weights
            read.get_tree_accessor(index).set_field("leaf_vector", tree.value[tree.children_left < 0, 0].ravel())
    known = {"framework": f"scikit-learn {sklearn.__version__}", **(origin or {})}
    ensemble = _from_treelite(read, features, known, rounds=not isinstance(model, HistGradientBoostingClassifier))
    own: Any = estimator
    require_agreement(ensemble, kind, lambda x: np.asarray(own.predict(x)) == 1, rows)
    return ensemble


def from_xgboost(
    booster: object,
    features: Sequence[FeatureInput],
    origin: Origin | None = None,
    rows: npt.ArrayLike | None = None,
) -> Ensemble:
    """Read a trained XGBoost model with objective ``binary:logistic``: trees, random forests or DART.

    Leaf values are the float32 numbers that XGBoost adds, DART's weights included, and the base is the margin that
    XGBoost itself makes of ``base_score``; in float32 and tree order they sum to the ``output_margin`` of
    ``Booster.predict`` to the last bit (``XGBClassifier.predict`` rounds DART once more per tree). ForetailError
    without XGBoost, on any other or untrained model, an early-stopped booster, categorical splits, features that do
    not fit, or a classifier that takes an input's value for a missing one.

    Parameters
    ----------
    booster : an early-stopped classifier is read up to its best iteration, as it predicts
    features : the training columns in order, with the booster's ``feature_names``, if any
    origin : added to the ensemble's ``origin``
    rows : integer array [rows, features], optional, on which decisions are compared, beside zeros and thresholds
    """
    import treelite
    import xgboost

    kind = type(booster).__name__
    if isinstance(booster, xgboost.XGBClassifier):
        if not booster.__sklearn_is_fitted__():
            raise ForetailError(f"the {kind} is not trained: call fit first")
        if booster.missing is not None and 0 <= float(booster.missing) < 1 << MAX_BITS:  # NaN, the default, is not
            raise ForetailError(
                f"the {kind} takes missing={booster.missing:g} for a missing value, a rule outside "
                "of its trees: train it without missing="
            )
        model = booster.get_booster()
        best = model.attr("best_iteration")
        if best is not None:
            model = model[: int(best) + 1]
            model.set_attr(best_iteration=None)
    elif isinstance(booster, xgboost.Booster):
        model = booster
    else:
        raise ForetailError(f"{kind} is not a classifier that Foretail reads: use xgboost.XGBClassifier or a Booster")
    try:
        learner = json.loads(model.save_config())["learner"]
    except xgboost.core.XGBoostError as error:
        require_memory(error)
        remedy = "train it with one base_score above 0 and below 1" if "base_score" in str(error) else "save it again"
        raise ForetailError(
            f"XGBoost itself refuses the model ({_first_line(error).rstrip('. :')}): {remedy}"
        ) from None
    objective, trees = learner["objective"]["name"], learner["gradient_booster"]["name"]
    if objective != "binary:logistic" or trees not in ("gbtree", "dart"):
        raise ForetailError(
            f"the XGBoost model ({trees}, {objective}) is not a binary classifier of trees: train it with "
            f"booster=gbtree and objective=binary:logistic"
        )
    if (labels := int(learner["learner_model_param"]["num_target"])) != 1:
        raise _several_labels(labels)
    rounds, best = model.num_boosted_rounds(), model.attr("best_iteration")
    if rounds == 0:
        raise ForetailError("the XGBoost model is not trained: it has no trees")
    if best is not None and int(best) + 1 < rounds:
        raise ForetailError(
            f"the XGBoost model has {rounds} rounds but stopped early at round {best}: keep the rounds that count with "
            f"booster[:{int(best) + 1}], or clear its attribute best_iteration to keep all"
        )
    features = _checked_features(features, model.feature_names, model.num_features())
    try:
        read = treelite.frontend.from_xgboost(model)
    except treelite.TreeliteError as error:
        require_memory(error)
        if "categorical" in str(error):
            raise ForetailError(CATEGORICAL) from None
        raise ForetailError(
            f"treelite cannot read the XGBoost model ({_first_line(error)}): it is damaged, train or save it again"
        ) from None
    # treelite takes the logit of base_score in float64; a model without trees gives the float32 that XGBoost adds
    base_score = np.ravel(json.loads(learner["learner_model_param"]["base_score"])).tolist()
    row = xgboost.DMatrix(np.zeros((1, len(features))), label=[0.0])
    empty = xgboost.train({"objective": objective, "base_score": base_score[0], "nthread": 1}, row, 0)
    base = empty.predict(row, output_margin=True).astype(np.float64)
    read.get_header_accessor().set_field("base_scores", base)
    known = {"framework": f"xgboost {xgboost.__version__}", **(origin or {})}
    ensemble = _from_treelite(read, features, known, rounds=True)

    def predict(x: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        own, given = (model, xgboost.DMatrix(x)) if model is booster else (booster, x)
        probability: npt.NDArray[Any] = np.asarray(own.predict(given, validate_features=False))  # or 0 and 1
        return probability > 0.5

    require_agreement(ensemble, kind, predict, rows)
    return ensemble


def from_lightgbm(
    path: Path,
    features: Sequence[FeatureInput],
    origin: Origin | None = None,
    rows: npt.ArrayLike | None = None,
) -> Ensemble:
    """Read LightGBM's own text model, as ``Booster.save_model`` writes it; parameters and errors as those of others.

    Where LightGBM is installed, decisions are compared with it. ForetailError, too, where a split takes zeros for
    missing values: treelite loses that rule.
    """
    import treelite

    try:
        read = treelite.frontend.load_lightgbm_model(path)
    except treelite.TreeliteError as error:
        require_memory(error)
        raise ForetailError(
            f"treelite cannot read the LightGBM model ({_first_line(error)}): train it with plain trees, or save it "
            "again if it is damaged"
        ) from None
    lines = path.read_text(errors="replace").splitlines()
    if "end of trees" not in lines:
        raise ForetailError("the LightGBM model is cut off before the end of its trees: save it again")
    _require_all_trees(path.read_bytes())
    kinds = (word for line in lines if line.startswith("decision_type=") for word in line.partition("=")[2].split())
    if any(int(kind) >> 2 & 3 == _ZERO_IS_MISSING for kind in kinds if kind.isdigit()):
        raise ForetailError(
            "the LightGBM model takes zeros for missing values, a rule that treelite loses: train it without "
            "zero_as_missing"
        )
    features = _checked_features(features, lightgbm_columns("\n".join(lines)), read.num_feature)
    version = next((line.partition("=")[2] for line in lines if line.startswith("version=")), "")
    known = {"framework": f"lightgbm text {version}", **(origin or {})}
    ensemble = _from_treelite(read, features, known, rounds=False)
    try:
        import lightgbm
    except ModuleNotFoundError:
        Reading(str(path), guesses=("treelite reads it as LightGBM, which is not installed to compare, does",)).tell()
        return ensemble
    try:
        own = lightgbm.Booster(model_str="\n".join(lines) + "\n")  # a line end of Windows would end the process
    except (lightgbm.basic.LightGBMError, ValueError) as error:  # it hands parameters to a reader of JSON unchecked
        raise ForetailError(f"LightGBM itself refuses the model ({_first_line(error)}): save it again") from None
    require_agreement(ensemble, "LightGBM model", lambda x: np.asarray(own.predict(x, num_threads=1)) > 0.5, rows)
    return ensemble


def _require_all_trees(content: bytes) -> None:
    """Raise ForetailError unless a LightGBM text has every tree that its header counts, with the size stated there."""
    header, *trees = re.split(rb"(?m)^(?=Tree=\d)", content.partition(b"end of trees")[0].replace(b"\r\n", b"\n"))
    stated = re.search(rb"^tree_sizes=([\d ]*)\r?$", header, re.MULTILINE)
    sizes = [] if stated is None else list(map(int, stated[1].split()))
    if stated is not None and sizes != [len(tree) for tree in trees]:
        raise ForetailError(
            f"the LightGBM model has {len(trees)} trees that are not the {len(sizes)} of its tree_sizes, or were "
            "changed: save it again"
        )


def lightgbm_columns(text: str) -> list[str] | None:
    """Return the names of the columns of a LightGBM text model; None for its own ``Column_0``, ``Column_1``."""
    names = re.findall(r"^feature_names=(.*)$", text, re.MULTILINE)
    columns = names[0].split() if names else []
    return None if columns == [f"Column_{index}" for index in range(len(columns))] else columns


def regressor_from_xgboost(booster: Any, features: Sequence[FeatureInput]) -> Ensemble:
    """Read boosted trees of objective ``reg:squarederror`` that this process has trained on all of `features`.

    In float32 and tree order the leaf values and the base sum to ``Booster.predict`` to the last bit.
    """
    import treelite

    learner = json.loads(booster.save_config())["learner"]
    (base,) = np.ravel(json.loads(learner["learner_model_param"]["base_score"])).tolist()
    read = treelite.frontend.from_xgboost(booster)
    trees = tuple(read_tree(read.get_tree_accessor(index), 1, features, rounds=True) for index in range(read.num_tree))
    import xgboost

    origin = {"framework": f"xgboost {xgboost.__version__}"}
    return Ensemble(tuple(features), trees, Fraction(0), float(np.float32(base)), "value", origin=origin)


def from_treelite(model: treelite.Model, features: Sequence[FeatureInput], origin: Origin | None = None) -> Ensemble:
    """Read a binary classifier: a forest of class probabilities, or boosted trees with a logistic link.

    A split whose outcome is the same for every value of a feature's range, such as ``x <= t`` with
    ``t >= 2**bits - 1``, is replaced by the branch that is always taken. ForetailError when the model is of another
    kind, has categorical splits or numbers that are not finite, or does not fit `features`.

    Parameters
    ----------
    model : treelite.Model
        From any treelite front end; class 1 is "drop". Inputs are rounded to its ``input_type``. treelite itself rounds
        a scikit-learn forest's leaf probabilities anew: :func:`from_sklearn` keeps scikit-learn's.
    features : the model's columns in training order; a treelite model has no names to compare
    origin : added to the ensemble's ``origin``
    """
    import treelite

    ensemble = _from_treelite(model, features, origin, rounds=model.input_type == "float32")

    def predict(x: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.asarray(treelite.gtil.predict(model, x.astype(model.input_type), nthread=1)[:, 0, -1] > 0.5)

    require_agreement(ensemble, "treelite model", predict)
    return ensemble


def _from_treelite(
    model: treelite.Model, features: Sequence[FeatureInput], origin: Origin | None, *, rounds: bool
) -> Ensemble:
    """Read it; `rounds`: the framework compares inputs as float32."""
    import treelite

    header = model.get_header_accessor()
    features = _checked_features(features, None, model.num_feature)
    shape = np.asarray(header.get_field("leaf_vector_shape")).tolist()
    averages = bool(header.get_field("average_tree_output")[0])
    link = header.get_field("postprocessor")
    bases = np.asarray(header.get_field("base_scores"), np.float64)
    task, targets = int(header.get_field("task_type")[0]), int(header.get_field("num_target")[0])
    output: Output
    if targets == 1 and shape == [1, 2] and averages and link == "identity_multiclass" and not bases.any():
        output, classes, base, threshold = "mean_probability", 2, 0.0, Fraction(model.num_tree, 2)
    elif (
        (targets, task, shape, len(bases)) == (1, _BINARY, [1, 1], 1)
        and not averages
        and link == "sigmoid"
        and header.get_field("sigmoid_alpha")[0] == 1
    ):
        output, classes, base, threshold = "logit", 1, float(bases[0]), Fraction(0)
    else:
        alpha = float(header.get_field("sigmoid_alpha")[0])
        if targets != 1:
            raise _several_labels(targets)
        if averages and link == "sigmoid":
            raise ForetailError("the model averages logits, as LightGBM's boosting=rf: train it with boosting=gbdt")
        if alpha != 1:
            raise ForetailError(f"the model has LightGBM's sigmoid={alpha:g}: train it with sigmoid=1")
        raise ForetailError(
            f"the model (leaf shape {shape}, link {link!r}) is not a binary classifier that Foretail reads: "
            f"use a random forest or boosted trees with binary:logistic"
        )
    if not np.isfinite(base):
        raise ForetailError("the model has a base score that is not finite: train it again")
    trees = tuple(
        read_tree(model.get_tree_accessor(i), classes, features, rounds=rounds) for i in range(model.num_tree)
    )
    if any(tree.visits is None for tree in trees):
        trees = tuple(replace(tree, visits=None) for tree in trees)
    known = {"framework": f"treelite {treelite.__version__}", "arithmetic": model.output_type, **(origin or {})}
    return Ensemble(features, trees, threshold, base, output, origin=known | _doubts(model, features))


def _doubts(model: treelite.Model, features: Sequence[FeatureInput]) -> dict[str, str]:
    """Names of features that do not look like whole numbers of their bits, by what ``origin`` calls it.

    ``beyond_bits``: a test compares the feature with a number that no value of so many bits exceeds. ``fractions``: its
    thresholds are those of a scaled column or a logarithm. Then one lies neither on nor in the middle of whole numbers,
    and none is above its number of bits. Trees with random thresholds have the first, and hardly ever the second.
    """
    bits = np.array([feature.bits for feature in features])
    other, largest = np.zeros(len(features), bool), np.full(len(features), -np.inf)
    for tree in map(model.get_tree_accessor, range(model.num_tree)):
        inner = tree.get_field("cleft") >= 0
        tested, threshold = tree.get_field("split_index")[inner], tree.get_field("threshold")[inner]
        is_other = np.abs(2.0 * threshold - np.round(2.0 * threshold)) > 1e-3 + 2e-6 * np.abs(threshold)
        other[tested[is_other]] = True
        np.maximum.at(largest, tested, threshold)
    doubtful = {"beyond_bits": largest > (1 << bits) - 1, "fractions": other & (largest <= bits)}
    names = np.array([feature.name for feature in features])
    return {doubt: ", ".join(names[them]) for doubt, them in doubtful.items() if them.any()}


def _checked_features(
    features: Sequence[FeatureInput], names: Sequence[str] | None, count: int
) -> tuple[FeatureInput, ...]:
    """Return the inputs without their columns.

    ForetailError when they are malformed or not the model's `count` columns, called `names` where it knows them.
    """
    for feature in features:
        if not _NAME.fullmatch(str(feature.name)):
            raise ForetailError(
                f"feature name {str(feature.name)[:80]!r} is not an identifier: use a letter, then at most 62 letters, "
                f"digits and underscores, and give the name in training beside it, {_MAPPING}"
            )
        if type(feature.bits) is not int or not 1 <= feature.bits <= MAX_BITS:
            raise ForetailError(
                f"feature {feature.name!r} has no range, its bits are {feature.bits!r}: declare 1 to {MAX_BITS} bits"
            )
    if count != len(features):
        raise ForetailError(
            f"the model was trained on {count} features, but {len(features)} are declared: "
            f"declare the training columns in order"
        )
    declared = [item.column if isinstance(item, ColumnInput) else item.name for item in features]
    if names is None and any(isinstance(item, ColumnInput) for item in features):
        raise ForetailError("the model does not name its columns: declare the inputs in order, without column=NAME")
    trained = declared if names is None else list(names)
    if trained != declared:
        missing = [name for name in trained if name not in declared]
        fault = f"{missing[0]!r} is not declared" if missing else f"the declared order is {', '.join(declared)}"
        remedy = "declare the training columns in order"
        if missing and not _NAME.fullmatch(str(missing[0])):
            remedy += f", and one whose name is no identifier by both names, {_MAPPING}"
        raise ForetailError(f"the model was trained on {', '.join(map(str, trained))}, but {fault}: {remedy}")
    return tuple(FeatureInput(item.name, item.params, item.bits) for item in features)


def _several_labels(count: int) -> ForetailError:
    return ForetailError(f"the model has several outputs, {count} labels: train it on one column of labels")


def require_memory(error: Exception) -> None:
    """Raise MemoryError when the error of a C++ library says that there was too little memory."""
    if "bad_alloc" in str(error):
        raise MemoryError from None


def _first_line(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[0-9:]+\] \S+: ", "", line)  # treelite starts with the time and a line of its source
