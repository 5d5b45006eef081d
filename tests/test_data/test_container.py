"""The artifact: what goes in comes out, and whatever else comes in is refused."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.data.container import DTYPES, Archive, fingerprint, read, write
from fairfix.errors import ArtifactError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.strategies import examples

Members = dict[str, bytes]


def sample() -> Archive:
    """Return a small artifact with arrays of several shapes."""
    arrays = {
        "offsets": np.array([0.25, -1.5]),
        "codes": np.arange(6).reshape(2, 3),
        "empty": np.zeros((0, 4)),
    }
    return Archive({"method": "ramp", "parameters": {"gamma": 0.05}, "text": "naïve – ok"}, arrays)


def saved(path: Path) -> Path:
    """Write the sample."""
    write(path / "a.fairfix", sample())
    return path / "a.fairfix"


def members(path: Path) -> Members:
    """Return the content of each member."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def npy(array: npt.NDArray[Any]) -> bytes:
    """Return an array as .npy, pickles allowed."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def entry(data: bytes, array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return a manifest entry that fits an .npy content."""
    digest = hashlib.sha256(data).hexdigest()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "bytes": len(data), "sha256": digest}


def repacked(path: Path, content: Members) -> Path:
    """Write members as a ZIP."""
    out = path.parent / "changed.fairfix"
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return out


# ---------------------------------------------------------------------- laws


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_every_array_comes_back_to_the_bit(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    write(tmp_path / "a.fairfix", Archive({}, {"x": array}))
    found = read(tmp_path / "a.fairfix").arrays["x"]

    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    assert not found.flags.writeable


def test_special_floats_and_other_orders_survive(tmp_path: Path) -> None:
    """NaN payloads, infinities and negative zero are kept, and so is what was big-endian or in Fortran's order."""
    special = np.array([np.nan, -np.inf, -0.0, 5e-324])
    turned = np.asfortranarray(np.arange(6.0).reshape(2, 3)).astype(">f8")
    write(tmp_path / "a.fairfix", Archive({}, {"x": special, "y": turned}))
    found = read(tmp_path / "a.fairfix").arrays

    assert found["x"].tobytes() == special.tobytes()
    np.testing.assert_array_equal(found["y"], turned)


def test_the_manifest_comes_back(tmp_path: Path) -> None:
    """JSON values survive, and the container's own keys are not in the way."""
    assert read(saved(tmp_path)).manifest == sample().manifest


def test_same_content_same_bytes(tmp_path: Path) -> None:
    """The order of keys does not show in the bytes, and the hash is the file's."""
    first = write(tmp_path / "a.fairfix", Archive({"a": 1, "b": 2}, {"x": np.ones(2), "y": np.zeros(2)}))
    second = write(tmp_path / "b.fairfix", Archive({"b": 2, "a": 1}, {"y": np.zeros(2), "x": np.ones(2)}))

    assert first == second == fingerprint(tmp_path / "a.fairfix")


@pytest.mark.parametrize(
    "bad",
    [
        Archive({"x": float("nan")}, {}),
        Archive({"x": object()}, {}),
        Archive({"format": "mine"}, {}),
        Archive({}, {"../x": np.ones(1)}),
        Archive({}, {"X": np.ones(1)}),
        Archive({}, {"x": np.array([object()])}),
        Archive({}, {"x": np.array(["text"])}),
        Archive({}, {"x": np.ones(1, dtype=complex)}),
    ],
)
def test_what_the_format_has_not_is_refused(bad: Archive, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        write(tmp_path / "a.fairfix", bad)

    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- hostile files


Change = Callable[[Members], Members]


def resealed(change: Callable[[Any, Members], object]) -> Change:
    """Return a change of the manifest, and of the members beside it."""

    def changed(content: Members) -> Members:
        content, manifest = dict(content), json.loads(content["manifest.json"])
        change(manifest, content)
        return {**content, "manifest.json": json.dumps(manifest).encode()}

    return changed


def change_manifest(**changes: Any) -> Change:
    """Return a change of top-level manifest keys."""
    return resealed(lambda manifest, _: manifest.update(changes))


def change_entry(**changes: Any) -> Change:
    """Return a change of the entry of the array ``offsets``."""
    return resealed(lambda manifest, _: manifest["arrays"]["offsets"].update(changes))


def with_array(data: bytes, like: npt.NDArray[Any]) -> Change:
    """Return a change of the array ``offsets`` to other bytes, with hash and size that fit them."""

    def change(manifest: Any, content: Members) -> None:
        manifest["arrays"]["offsets"] = entry(data, like)
        content["arrays/offsets.npy"] = data

    return resealed(change)


def plus(name: str, data: bytes = b"x") -> Change:
    """Return a change that adds a member."""
    return lambda content: {**content, name: data}


def less(name: str) -> Change:
    """Return a change that drops a member."""
    return lambda content: {key: value for key, value in content.items() if key != name}


class Bomb:
    """Unpickling this would write a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path("exploded").write_text, ("x",))


HUGE = npy(np.zeros(2))
HUGE = HUGE.replace(b"(2,)", b"(9,)")

HOSTILE: dict[str, tuple[Change, str]] = {
    "no manifest": (less("manifest.json"), "no manifest"),
    "a listed array is gone": (less("arrays/codes.npy"), "listed but not there"),
    "an array nobody listed": (plus("arrays/more.npy"), "not listed"),
    "a path upwards": (plus("../evil"), "unknown member"),
    "a path upwards as array": (plus("arrays/../../evil.npy"), "unknown member"),
    "an absolute path": (plus("/etc/evil"), "unknown member"),
    "a backslash": (plus("arrays\\evil.npy"), "unknown member"),
    "code": (plus("model.py"), "unknown member"),
    "another format": (change_manifest(format="pickle/1"), "its format is 'pickle/1'"),
    "no format": (change_manifest(format=None), "its format is None"),
    "format zero": (change_manifest(format="fairfix.artifact/0"), "does not exist"),
    "a newer format": (change_manifest(format="fairfix.artifact/2"), "use a newer one"),
    "no table": (change_manifest(arrays=None), "no table of arrays"),
    "a table that is a list": (change_manifest(arrays=[]), "no table of arrays"),
    "an entry that is a text": (
        change_manifest(arrays={"offsets": "x", "codes": "x", "empty": "x"}),
        "malformed",
    ),
    "a wrong hash": (change_entry(sha256="0" * 64), "another hash"),
    "a wrong size": (change_entry(bytes=1), "not as long"),
    "a wrong type": (change_entry(dtype="<i8"), "the manifest says"),
    "a wrong shape": (change_entry(shape=[3]), "has the shape"),
    "changed bytes": (
        lambda c: {**c, "arrays/offsets.npy": c["arrays/offsets.npy"][:-1] + b"\x01"},
        "another hash",
    ),
    "an object array": (with_array(npy(np.array([Bomb()])), np.array([None])), "of type object"),
    "a bare pickle": (with_array(pickle.dumps(Bomb()), np.zeros(2)), "not a valid"),
    "a text array": (with_array(npy(np.array(["ab"])), np.array(["ab"])), "of type"),
    "a big-endian array": (with_array(npy(np.ones(2, ">f8")), np.ones(2, ">f8")), "of type"),
    "Fortran order": (with_array(npy(np.asfortranarray(np.ones((2, 3)))), np.ones((2, 3))), "Fortran"),
    "bytes after the array": (
        with_array(npy(np.ones(2)) + b"more", np.ones(2)),
        "bytes where its shape needs",
    ),
    "a shape beyond the bytes": (with_array(HUGE, np.zeros(9)), "bytes where its shape needs"),
    "no JSON": (plus("manifest.json", b"{"), "not JSON"),
    "JSON of another kind": (plus("manifest.json", b"[]"), "not a JSON object"),
    "deep nesting": (plus("manifest.json", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "not a valid"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_changed_file_is_refused(name: str, tmp_path: Path, away: None) -> None:
    """One line that says why; nothing in the file runs."""
    change, words = HOSTILE[name]
    path = repacked(saved(tmp_path), change(members(saved(tmp_path))))

    with pytest.raises(ArtifactError, match=words.replace("(", r"\(")) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert not Path("exploded").exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"hello", b"PK\x05\x06" + b"\x00" * 18])
def test_what_is_no_zip_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.fairfix").write_bytes(content)

    with pytest.raises(ArtifactError, match=r"a\.fairfix"):
        read(tmp_path / "a.fairfix")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(ArtifactError, match="cannot be read"):
            read(path)


def test_a_member_twice_is_refused(tmp_path: Path) -> None:
    """Two manifests could tell two readers two things."""
    path = saved(tmp_path)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("manifest.json", members(path)["manifest.json"])

    with pytest.raises(ArtifactError, match="twice"):
        read(path)


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    """A member that claims to be a link is no plain file."""
    path = saved(tmp_path)
    content = members(path)
    link = zipfile.ZipInfo("arrays/offsets.npy")
    link.external_attr = 0o120777 << 16
    out = tmp_path / "link.fairfix"
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in content.items():
            archive.writestr(link if name == link.filename else zipfile.ZipInfo(name), data)

    with pytest.raises(ArtifactError, match="not a plain file"):
        read(out)


def test_overlapping_members_are_refused(tmp_path: Path) -> None:
    """Two directory entries that point at the same bytes are how overlapping bombs are built."""
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    first = content.index(b"PK\x01\x02")
    second = content.index(b"PK\x01\x02", first + 4)
    content[second + 42 : second + 46] = content[first + 42 : first + 46]
    path.write_bytes(bytes(content))

    with pytest.raises(ArtifactError, match="overlap"):
        read(path)


def test_a_zip_bomb_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    """A member that unpacks to far more than its listed size or the limit is not read."""
    out = tmp_path / "bomb.fairfix"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", b"[" + b" " * (17 << 20) + b"]")

    with pytest.raises(ArtifactError, match="larger than"):
        read(out)


def test_an_array_that_grows_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    """40 MiB of zeros in 40 KiB, with a hash and a ratio that are right: no rule looks like that."""
    path, small = tmp_path / "a.fairfix", tmp_path / "small.fairfix"
    write(path, Archive({}, {"x": np.zeros(5 << 20)}))
    with zipfile.ZipFile(small, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members(path).items():
            archive.writestr(name, data)

    assert small.stat().st_size < 1 << 16
    with pytest.raises(ArtifactError, match="more than such a file may"):
        read(small)
    assert read(path).arrays["x"].size == 5 << 20  # stored, the file is as large as what is in it


@pytest.mark.parametrize(
    ("at", "number", "words"),
    [(24, 16, r"a\.fairfix"), (24, 1 << 30, "claims a size it cannot have"), (42, 0, "overlap")],
)
def test_a_directory_that_lies_is_refused(at: int, number: int, words: str, tmp_path: Path) -> None:
    """A size that is too small, or a gigabyte in a few bytes; or a place that another member has, as bombs do it."""
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    at += content.rindex(b"PK\x01\x02", 0, content.rindex(b"arrays/offsets.npy"))
    content[at : at + 4] = number.to_bytes(4, "little")
    path.write_bytes(bytes(content))

    with pytest.raises(ArtifactError, match=words):
        read(path)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_refused_or_harmless(data: st.DataObject, tmp_path: Path) -> None:
    """Flipped, cut or inserted bytes give the same artifact or an ArtifactError, never anything else."""
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        how = data.draw(st.sampled_from(["flip", "cut", "insert", "zero"]))
        if how == "flip":
            content[place] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "cut":
            del content[place : place + data.draw(st.integers(1, 50))]
        elif how == "insert":
            content[place:place] = data.draw(st.binary(max_size=20))
        else:
            content[place : place + 8] = bytes(8)
        if not content:
            break
    damaged = tmp_path / "damaged.fairfix"
    damaged.write_bytes(bytes(content))
    try:
        found = read(damaged)
    except ArtifactError:
        return
    assert found.arrays.keys() == sample().arrays.keys()
    for name, array in sample().arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)


def test_the_format_is_as_documented(tmp_path: Path) -> None:
    """The manifest names format and arrays; members are stored in order."""
    content = members(saved(tmp_path))
    manifest = json.loads(content["manifest.json"])

    assert list(content) == ["manifest.json", "arrays/codes.npy", "arrays/empty.npy", "arrays/offsets.npy"]
    assert manifest["format"] == "fairfix.artifact/1"
    assert manifest["arrays"]["offsets"] == entry(content["arrays/offsets.npy"], sample().arrays["offsets"])
