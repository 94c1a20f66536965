"""Model files of every format: recognised by content, read apart, and refused in one sentence where not right."""

from __future__ import annotations

import bz2
import functools
import gzip
import importlib
import io
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
import treelite
import xgboost

from foretail.core.errors import ForetailError
from foretail.models.ensemble import model_files
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_sklearn, from_treelite, from_xgboost
from foretail.models.ensemble.model_files import Format, Limits, format_of, load_model_file, read_foreign
from tests.examples import draws, some_by_day
from tests.forests import CLASSIFIERS, untrained
from tests.refusals import refusing

pytestmark = pytest.mark.slow

TWO = (FeatureInput("queue", "cell_bytes=256", 10), FeatureInput("occupancy", "cell_bytes=256", 10))
SKLEARN = [kind for kind in CLASSIFIERS if not kind.startswith("xgboost")]
BOOSTED = [kind for kind in CLASSIFIERS if kind.startswith("xgboost")]


def _fitted(kind: str) -> Any:
    random = np.random.default_rng(1)
    x = random.integers(0, 1 << 10, (300, 2))
    return untrained(kind).fit(x, x[:, 0] + random.integers(0, 400, 300) > 800)


@functools.cache
def sound_files() -> dict[str, bytes]:
    """One valid file of every format that is read apart."""
    forest, booster = _fitted("random_forest"), _fitted("xgboost").get_booster()
    return {
        "checkpoint": treelite.sklearn.import_model(forest).serialize_bytes(),
        "ubj": bytes(booster.save_raw("ubj")),
        "json": bytes(booster.save_raw("json")),
        "skops": skops.io.dumps(forest),
    }


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return sound_files()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read valid files in this process, as the one apart does, which takes seconds to start."""
    monkeypatch.setattr(model_files, "_read_apart", read_foreign)


def _without_file(ensemble: Ensemble) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ensemble.to_json())
    document["origin"].pop("file_sha256", None)
    return document


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", BOOSTED)
@pytest.mark.parametrize("form", ["json", "ubj"])
def test_xgboost_files_hold_the_booster(kind: str, form: str, tmp_path: Path) -> None:
    model = _fitted(kind)
    model.save_model(tmp_path / f"model.{form}")
    path = (tmp_path / f"model.{form}").rename(tmp_path / "model")  # the name says nothing
    assert _without_file(load_model_file(path, TWO)) == _without_file(from_xgboost(model, TWO))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("kind", SKLEARN)
def test_skops_files_hold_the_estimator(kind: str, tmp_path: Path) -> None:
    model = _fitted(kind)
    skops.io.dump(model, tmp_path / "model")
    assert _without_file(load_model_file(tmp_path / "model", TWO)) == _without_file(from_sklearn(model, TWO))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("compress", [0, 3, ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3)])
def test_pickles_are_opened_when_allowed_and_only_then(compress: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    for model, read in ((_fitted("extra_trees"), from_sklearn), (_fitted("xgboost"), from_xgboost)):
        joblib.dump(model, path, compress=compress)  # noqa: TID251  # what users bring
        with pytest.raises(ForetailError, match=r"is a pickle.*allow_pickle=true"):
            load_model_file(path, TWO)
        assert _without_file(load_model_file(path, TWO, allow_pickle=True)) == _without_file(read(model, TWO))


def test_a_checkpoint_is_read_in_a_process_of_its_own(files: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.bin"
    path.write_bytes(files["checkpoint"])
    model = treelite.Model.deserialize_bytes(files["checkpoint"])
    assert _without_file(load_model_file(path, TWO)) == _without_file(from_treelite(model, TWO))


def test_an_ensemble_brings_its_features(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    ensemble = from_sklearn(_fitted("random_forest"), TWO)
    ensemble.save(path)
    assert load_model_file(path, None) == load_model_file(path, list(TWO)) == ensemble
    with pytest.raises(ForetailError, match="its own features"):
        load_model_file(path, TWO[::-1])


RUNS_CODE = {
    "that crashes": (b"\x80\x04cos\nkill\n(cos\ngetpid\n)RK\x0btR.", "ends its reader.*SIGSEGV"),
    "that fills the memory": (
        b"\x80\x04cbuiltins\nbytearray\n\x8a\x05" + (1 << 36).to_bytes(5, "little") + b"\x85R.",
        r"takes more than model_limits\.memory_bytes=8,589,934,592",
    ),
    "that is nested too deeply": (b'{"learner":' * 100_000, "ends its reader.*SIGSEGV"),
}


def test_json_of_others_is_recognised_without_parsing_it() -> None:
    """XGBoost's is opened in a process of its own only: in this one nobody looks at how it is built."""
    assert format_of(RUNS_CODE["that is nested too deeply"][0], "F") is Format.XGBOOST_JSON
    assert format_of(b' \n{"learner": {"attributes"', "F") is Format.XGBOOST_JSON


@pytest.mark.parametrize("fault", some_by_day(RUNS_CODE, "that crashes".__eq__))
def test_a_file_that_takes_its_reader_down_leaves_us_alive(fault: str, tmp_path: Path) -> None:
    content, says = RUNS_CODE[fault]
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(ForetailError, match=says):
        load_model_file(tmp_path / "model", TWO, allow_pickle=True)


NEVER_ENDS = {
    "that waits": (
        b"\x80\x04ctime\nsleep\nM\x58\x02\x85R.",
        Limits(wall_seconds=10),
        "has not ended in .*wall_seconds=10",
    ),
    "that computes": (
        b"\x80\x04cbuiltins\nsum\n(cbuiltins\nrange\n(I0\nI1000000000000\ntRtR.",
        Limits(cpu_seconds=1),
        r"computed for more than model_limits\.cpu_seconds=1:",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("fault", NEVER_ENDS)
def test_a_file_that_is_read_forever_is_given_up(fault: str, tmp_path: Path) -> None:
    content, limits, says = NEVER_ENDS[fault]
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(ForetailError, match=says) as caught:
        load_model_file(tmp_path / "model", TWO, True, limits)
    assert "damaged" not in str(caught.value) or "if the file is damaged" in str(caught.value)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["checkpoint", "ubj", "json", "skops"])
def test_a_sound_file_that_takes_too_much_memory_is_not_called_damaged(name: str, tmp_path: Path) -> None:
    """The limit is the smallest that the settings allow; the file of a few trees is read within it."""
    random = np.random.default_rng(1)
    x, y = random.integers(0, 1 << 10, (4000, 2)), random.integers(0, 2, 4000)
    kind = "random_forest" if name in ("checkpoint", "skops") else "xgboost"
    model = untrained(kind, trees=400, depth=12).fit(x, y)
    if kind == "xgboost":
        content = bytes(model.get_booster().save_raw(name))
    else:
        content = skops.io.dumps(model) if name == "skops" else treelite.sklearn.import_model(model).serialize_bytes()
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(ForetailError, match=r"takes more than model_limits\.memory_bytes=16,777,216: raise that limit"):
        load_model_file(tmp_path / "model", TWO, limits=Limits(memory_bytes=1 << 24))


def test_a_reader_that_the_machine_holds_up_is_waited_for(files: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(files["checkpoint"])
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(load_model_file, path, TWO, limits=Limits(cpu_seconds=2))
        children: list[str] = []
        while not children:
            children = [
                child
                for task in Path("/proc/self/task").iterdir()
                for child in (task / "children").read_text().split()
                if b"model_files" in Path(f"/proc/{child}/cmdline").read_bytes()
            ]
        (child,) = map(int, children)
        os.kill(child, signal.SIGSTOP)
        time.sleep(3)  # more than it may compute
        os.kill(child, signal.SIGCONT)
        assert len(reading.result().trees) == 3


# Reads every file of a folder in a fork of its own and prints how that ended: 0 read, 1 refused, 2 a bug, or a signal.
DAMAGED = """
import os, signal, sys
from pathlib import Path
from foretail.core.errors import ForetailError
from foretail.models.ensemble import frontends
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.model_files import Format, format_of, read_foreign
import skops.io, xgboost
two = [FeatureInput("queue", "", 10), FeatureInput("occupancy", "", 10)]
for path in sorted(Path(sys.argv[1]).iterdir()):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(1)
        code = 2
        try:
            kind = format_of(path.read_bytes(), str(path))
            if kind not in (Format.ENSEMBLE, Format.PICKLE):
                read_foreign(path, kind, two)
            code = 0
        except ForetailError as error:
            code = 1 if "\\n" not in str(error) else 2
        finally:
            os._exit(code)
    print(path.name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_damaged_files_are_refused_or_end_their_reader(files: dict[str, bytes], tmp_path: Path) -> None:
    random, times = np.random.default_rng(1), draws(16)
    for name, content in files.items():
        for i in range(times):
            cut = int(random.integers(0, len(content)))
            (tmp_path / f"{name}.cut.{i}").write_bytes(content[:cut])
            noise = bytearray(content)
            noise[cut : cut + 4] = random.bytes(4)
            (tmp_path / f"{name}.noise.{i}").write_bytes(noise)
        (tmp_path / f"{name}.head").write_bytes(content[:12] + random.bytes(1000))
    answer = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", DAMAGED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    ends = dict(line.rsplit(" ", 1) for line in answer.stdout.splitlines())
    assert len(ends) == (2 * times + 1) * len(files)
    assert [name for name, end in ends.items() if end == "2"] == []
    assert [name for name, end in ends.items() if ".cut." in name and end == "0"] == []


def test_damage_that_xgboost_notices_only_when_it_writes_the_trees_again(
    files: dict[str, bytes], tmp_path: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_raw(*_: object, **__: object) -> bytes:
        raise xgboost.core.XGBoostError("Check failed: size != 0 (0 vs. 0)\nStack trace:")

    monkeypatch.setattr(xgboost.Booster, "save_raw", save_raw)
    (tmp_path / "model.json").write_bytes(files["json"])
    with pytest.raises(ForetailError, match="not a valid XGBoost JSON model"):
        load_model_file(tmp_path / "model.json", TWO)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zlib.compress])
def test_compressed_files_of_others_are_no_pickles(pack: Any, files: dict[str, bytes], tmp_path: Path) -> None:
    for content in (*files.values(), b"tree\nversion=v4\n", b"noise"):
        (tmp_path / "model").write_bytes(pack(content))
        with pytest.raises(ForetailError, match=r"is compressed, and no pickle is in it: unpack it") as caught:
            load_model_file(tmp_path / "model", TWO, allow_pickle=True)
        assert "allow_pickle" not in str(caught.value)


def test_importing_the_door_imports_no_framework() -> None:
    code = (
        "import foretail.models.ensemble.model_files, sys; print({'sklearn', 'xgboost', 'treelite'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_trusted_types_are_needed(files: dict[str, bytes]) -> None:
    needed = set(skops.io.get_untrusted_types(data=files["skops"]))
    needed |= set(skops.io.get_untrusted_types(data=skops.io.dumps(_fitted("histogram_boosting"))))
    assert needed == set(model_files.SKOPS_TYPES)


def read_here(folder: Path, content: bytes, features: Any = TWO) -> object:
    """Read a file in this process, where an apart one takes seconds to start; what refuses it names it."""
    path = folder / "model"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_files, "_read_apart", read_foreign)
        with pytest.raises(ForetailError, match=re.escape(str(path))) as caught:
            load_model_file(path, features)
    raise caught.value


def read_skops(folder: Path, model: Callable[[], Any]) -> object:
    x = np.random.default_rng(1).integers(0, 8, (300, 2))
    return read_here(folder, skops.io.dumps(model().fit(x, x.sum(1) > 8)))


def of_sklearn(module: str, name: str, *given: Any, **settings: Any) -> Any:
    return getattr(importlib.import_module(f"sklearn.{module}"), name)(*given, **settings)


def of_lightgbm() -> Any:
    return lightgbm.LGBMClassifier(n_estimators=2, verbose=-1)


def zipped(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, content)
    return packed.getvalue()


def with_base_score(text: str) -> bytes:
    return re.sub(rb'"base_score":"[^"]*"', f'"base_score":"{text}"'.encode(), sound_files()["json"])


def of_another_sklearn() -> bytes:
    packed = io.BytesIO()
    whole = io.BytesIO(skops.io.dumps(_fitted("decision_tree")))
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(packed, "w") as target:
        for item in source.namelist():
            target.writestr(item, source.read(item).replace(b'1.9.1\\"', b'1.7.0\\"'))
    return packed.getvalue()


def categorical(folder: Path, one_hot_up_to: int) -> object:
    """XGBoost saves the names of categories beside the splits on them, which treelite refuses before it sees any."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"queue": random.integers(0, 8, 500), "occupancy": random.integers(0, 1 << 10, 500)})
    label, frame["queue"] = frame["queue"].isin([1, 3]), frame["queue"].astype("category")
    model = xgboost.XGBClassifier(n_estimators=2, enable_categorical=True, max_cat_to_onehot=one_hot_up_to)
    return read_here(folder, bytes(model.fit(frame, label).get_booster().save_raw("ubj")))


OTHER_MODELS: tuple[tuple[Callable[[], Any], str], ...] = (
    (lambda: untrained("xgboost"), "holds a model of XGBoost: save it with its own save_model"),
    (of_lightgbm, "holds a model of LightGBM: save it as text"),
    (lambda: untrained("histogram_boosting", categorical_features=[0]), "categorical features: train it"),
    (
        lambda: of_sklearn("calibration", "CalibratedClassifierCV", untrained("random_forest")),
        "holds a calibration, a rule outside of the trees",
    ),
    (
        lambda: of_sklearn("model_selection", "GridSearchCV", untrained("random_forest"), {"max_depth": [2]}),
        "holds a search or a threshold .* best_estimator_",
    ),
    (
        lambda: of_sklearn("model_selection", "FixedThresholdClassifier", untrained("random_forest")),
        "decides at a threshold of its own",
    ),
    (lambda: of_sklearn("ensemble", "RandomForestRegressor", 2), "model: RandomForestRegressor is not a classifier"),
    (
        lambda: of_sklearn("preprocessing", "FunctionTransformer", func=subprocess.run),
        r"not trusted \(subprocess\.run\)",
    ),
)
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
CONTENTS: tuple[tuple[bytes, str], ...] = (
    (LFS, "is a pointer of Git LFS .* git lfs pull"),
    (b"\n<!DOCTYPE html>\n<html>", "is a web page and not the file itself"),
    (b"", "not a model file"),
    (b"\x9f" * 200, "not a model file"),
    (b"tree\nversion=v4\nnum_class=1\n", "cannot read the LightGBM model"),
    (b"[1, 2, 3]", "not a model file"),
    (b'{"learner": {"attributes"', "not a valid XGBoost JSON model"),
    (b'{"a": 1}', "neither an ensemble nor an XGBoost model"),
    (b'{"schema": "foretail.ensemble", "trees": ' + b"[" * 100_000, "nested too deeply"),
    (b'{"schema": "foretail.ensemble", "version": 9}', "version 9"),
    (b'{"learner": {}}', "not a valid XGBoost JSON model"),
    (b"PK\x03\x04" + b"\0" * 40, "not a valid skops file"),
    (zipped("data.pkl", b""), "none of skops"),
    (zipped("net/data.pkl", b"x"), r"is a file of PyTorch.*Network\.of_layers"),
)
SCORES = ("[2E0]", "[NaN]", "[5E-1,5E-1]")
test_what_cannot_be_is_refused = refusing(
    *((lambda folder, content=content: read_here(folder, content), words) for content, words in CONTENTS),
    *((lambda folder, model=model: read_skops(folder, model), words) for model, words in OTHER_MODELS),
    (lambda folder: read_here(folder, of_another_sklearn()), r"saved by scikit-learn 1\.7\.0"),
    *(
        (lambda folder, most=most: categorical(folder, most), "which are not supported: train it on")
        for most in (1, 100)
    ),
    *(
        (lambda folder, s=s: read_here(folder, with_base_score(s)), r"refuses .*base_score.* above 0 and below 1$")
        for s in SCORES
    ),
    *(
        (lambda folder, n=n: read_here(folder, sound_files()[n], None), "does not say the range of its")
        for n in ("ubj", "skops")
    ),
    *(
        (lambda folder, n=n: read_here(folder, sound_files()[n], ()), "does not say the range")
        for n in ("checkpoint", "json")
    ),
    (lambda folder: load_model_file(folder, TWO), "cannot be read"),
    (lambda folder: load_model_file(folder / "none", TWO), "cannot be read"),
)
