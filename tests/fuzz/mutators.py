"""Mutators: they walk JSON trees and arrays, whatever is in them, and seal the result with hashes that fit.

A field that is new tomorrow is changed tomorrow: nothing here knows the name of a field.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Rng = np.random.Generator
Path = tuple[Any, ...]

DEEP = "@deep@"
"""Stands for 100,000 levels of JSON, which no writer nests."""

AGAIN = "@again@"
"""At the end of a key: the key without it, so that it is there twice."""

INFINITE = "@1e999@"
"""Stands for a number that no float holds."""

PAYLOAD = '"); open("ran", "w").close() #'
CONTROLS = "\x1b[31m\u202egpj\x00\r\n::error::x"

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 64, 4096, 1 << 31, (1 << 53) + 1, 1 << 63, 1 << 64, -(1 << 63), 10**400, -(10**18)),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -0.5, 1e-300, 5e-324, 1e16, 1e308, -1e308, math.nan, math.inf, -math.inf),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "nan",
        "-inf",
        "1e999",
        "0",
        "-1",
        "true",
        "null",
        "race",
        "score",
        "label",
        "../x",
        "/etc/passwd",
    ),
    *(
        "a,b",
        "a=b",
        "[[x]]",
        "\ud800",
        "\ufeff",
        CONTROLS,
        PAYLOAD,
        "<script>alert(1)</script>",
        "%0A::error::",
    ),
    *("'; DROP TABLE data; --", "{0}", "%s", "text", "10" * 3000, "file:///etc/passwd", "sha256:" + "0" * 64),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": {}}, ["a", 1], DEEP, INFINITE)


def places(tree: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every value inside a JSON value."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, part in inner:
        yield (*at, key)
        yield from places(part, (*at, key))


def at(tree: Any, path: Path) -> Any:
    """Return what stands at a path."""
    for key in path:
        tree = tree[key]
    return tree


def pick(rng: Rng, choices: Any) -> Any:
    """Return one of a sequence, as Python has it."""
    return choices[int(rng.integers(len(choices)))]


def pick_place(rng: Rng, paths: list[Path]) -> Path:
    """Return a path: first a branch of the top, then one of what is in it, so that no long list hides the rest."""
    top = pick(rng, sorted({path[:1] for path in paths}, key=repr))
    inside = [path for path in paths if path[:1] == top]
    middle = pick(rng, sorted({path[:3] for path in inside}, key=repr))
    return tuple(pick(rng, [path for path in inside if path[:3] == middle]))


def change_tree(rng: Rng, tree: Any) -> str:
    """Change one place of a JSON value, and say how."""
    paths = list(places(tree))
    if not paths:
        return "nothing"
    path = pick_place(rng, paths)
    holder, key = at(tree, path[:-1]), path[-1]
    value = holder[key]
    ways: list[Callable[[], Any]] = [
        lambda: holder.__setitem__(key, pick(rng, NUMBERS)),
        lambda: holder.__setitem__(key, pick(rng, TEXTS)),
        lambda: holder.__setitem__(key, pick(rng, OTHERS)),
        lambda: holder.__delitem__(key),
        lambda: holder.__setitem__(key, json.loads(json.dumps(at(tree, pick(rng, paths))))),
    ]
    if isinstance(holder, dict):
        ways += [
            lambda: holder.__setitem__(pick(rng, TEXTS), value),
            lambda: holder.__setitem__(str(key) + AGAIN, value),
            lambda: _renamed(holder, key, pick(rng, TEXTS)),
        ]
    if isinstance(holder, list):
        ways += [
            lambda: holder.insert(int(rng.integers(len(holder) + 1)), pick(rng, holder)),
            holder.reverse,
            holder.clear,
            lambda: holder.append(pick(rng, NUMBERS)),
        ]
    if isinstance(value, bool):
        ways += [lambda: holder.__setitem__(key, not value)] * 5
    elif isinstance(value, (int, float)):
        near: tuple[Any, ...] = (str(value), [value])
        if abs(value) < 1e300:  # else it is no float
            near += (value + 1, value - 1, -value, value * 2, value / 2, float(value))
        alike = [one for one in NUMBERS if type(one) is type(value) and abs(one) < 1e300]
        ways += [lambda: holder.__setitem__(key, pick(rng, (*near, *alike)))] * 5
    elif isinstance(value, str):
        near = (
            value + "x",
            value[:-1],
            value.upper(),
            [value],
            value * 2000,
            CONTROLS + value,
            value + PAYLOAD,
        )
        texts = [one for one in (at(tree, other) for other in paths) if isinstance(one, str)]
        ways += [lambda: holder.__setitem__(key, pick(rng, (*near, *TEXTS)))] * 2
        ways += [lambda: holder.__setitem__(key, pick(rng, texts))] * 2
        ways += [lambda: _everywhere(tree, value, pick(rng, (*near[:3], *near[5:], *TEXTS, *texts)))] * 2
    elif isinstance(value, list) and value:
        ways += [lambda: holder.__setitem__(key, value * 300), lambda: value.sort(key=repr), value.clear]
    pick(rng, ways)()
    return "/".join(map(str, path))[:200]


def _everywhere(tree: Any, text: str, other: Any) -> None:
    """Call something by another name wherever it is named, so that all still fits together."""
    inner = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree))
    for key, part in inner:
        if isinstance(part, (dict, list)):
            _everywhere(part, text, other)
        if part == text:
            tree[key] = other
        if key == text and isinstance(other, str):
            tree[other] = tree.pop(key)


def _renamed(holder: dict[str, Any], key: str, name: str) -> None:
    holder[name] = holder.pop(key)


def as_text(tree: Any, depth: int = 100_000) -> str:
    """Return JSON with what no writer of JSON writes."""
    text = json.dumps(tree, indent=1, ensure_ascii=False)
    text = text.replace(json.dumps(DEEP), "[" * depth + "]" * depth)
    return text.replace(json.dumps(INFINITE), "1e999").replace(AGAIN, "")


def encoded(text: str) -> bytes:
    """Return UTF-8, in which half of a surrogate pair makes what is none."""
    return text.encode("utf-8", "surrogatepass")


def change_json(rng: Rng, data: bytes) -> tuple[bytes, str]:
    """Change a place of a JSON file."""
    tree = json.loads(data)
    how = change_tree(rng, tree)
    return encoded(as_text(tree)), how


def change_bytes(rng: Rng, data: bytes) -> tuple[bytes, str]:
    """Return bytes that are cut, flipped, or have others put into them."""
    content, how = bytearray(data), pick(rng, ("cut", "flip", "insert", "drop", "repeat", "empty"))
    place = int(rng.integers(max(len(content), 1)))
    few = int(rng.integers(1, 60))
    if how == "cut":
        del content[place:]
    elif how == "flip" and content:
        content[place] ^= 1 << int(rng.integers(8))
    elif how == "insert":
        content[place:place] = pick(
            rng, (b"\xff\xfe", b"\x00", b"\x1b[31m", b"\n", b"[" * 100_000, b"9" * 5000, b'"')
        )
    elif how == "drop":
        del content[place : place + few]
    elif how == "repeat":
        content[place:place] = content[place : place + few]
    elif few < 4:
        content.clear()
    return bytes(content), f"bytes: {how} at {place}"


# ---------------------------------------------------------------------- arrays

DTYPES = (
    "|b1",
    "|i1",
    "|u1",
    "<i2",
    "<i4",
    "<i8",
    "<u4",
    "<u8",
    "<f4",
    "<f8",
    ">f8",
    "<f2",
    "<c16",
    "<U4",
    "|O",
    "<M8[D]",
)


def change_array(rng: Rng, array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], str]:
    """Return an array with another entry, order, shape or type."""
    if array.dtype.kind not in "biuf":  # changed before
        return array, "nothing"
    out = array.copy()
    flat = out.reshape(-1)
    how = pick(rng, ("entry", "entry", "entry", "other", "order", "shape", "type", "all", "length"))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how == "entry" and flat.size:
            flat[int(rng.integers(flat.size))] = _entry(rng, out.dtype)
        elif how == "other" and flat.size:
            flat[int(rng.integers(flat.size))] = pick(rng, flat)
        elif how == "order":
            out = pick(rng, (np.sort(flat), flat[::-1], np.roll(flat, 1))).reshape(out.shape).copy()
        elif how == "shape":
            empty = np.zeros((0, *out.shape[1:]), out.dtype)
            out = pick(
                rng, (out.T, out[..., None], flat, out.reshape(1, -1), empty, out.sum(dtype=out.dtype))
            ).copy()
        elif how == "type":
            out = out.astype(pick(rng, DTYPES))
        elif how == "all" and flat.size:
            flat[:] = _entry(rng, out.dtype)
        elif how == "length" and out.ndim:
            out = pick(rng, (out[:-1], out[1:], np.concatenate([out, out[-1:]]), np.concatenate([out, out])))
    return np.asarray(out), how


def _entry(rng: Rng, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return bool(rng.integers(2))
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        return np.array(
            pick(rng, (ends.min, ends.max, 0, 1, 2, 3, 7, 1 << 30, ends.max - 1, -1 if ends.min else 5))
        ).astype(dtype)
    return pick(rng, (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-320, 1e308, -1e308, 1e16))


def npy(array: npt.NDArray[Any]) -> bytes:
    """Return the .npy form of an array, of objects too."""
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(array), (1, 0), allow_pickle=True)
    return out.getvalue()


HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1, " * 70 + ")}",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (1, 1)}",
    "{'descr': [('a', '<f8'), ('b', '|O')], 'fortran_order': False, 'shape': (1,)}",
    "{'descr': '|V800000000', 'fortran_order': False, 'shape': (0,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}",
    "{'descr': '<f8', 'shape': (1,)}",
    "__import__('os').system('touch ran')",
    "(" * 3000,
)


def with_header(header: str) -> bytes:
    """Return an .npy file of one number with another header."""
    line = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + bytes(8)


# ---------------------------------------------------------------------- the container


@dataclass
class Sealed:
    """What is in an artifact or a file of counts, taken apart: JSON, arrays, and what is odd about their packing."""

    manifest: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    raw: dict[str, bytes] = field(default_factory=dict)
    """Members instead of those that the contents give; also others."""
    lies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Array -> what its entry in the manifest says of it otherwise."""
    twice: tuple[str, ...] = ()
    compression: int = zipfile.ZIP_STORED

    @classmethod
    def of(cls, data: bytes) -> Sealed:
        """Take a file apart."""
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
        manifest = json.loads(members.pop("manifest.json"))
        names = list(manifest.pop("arrays"))
        return cls(manifest, {one: np.load(io.BytesIO(members[f"arrays/{one}.npy"])) for one in names})

    def sealed(self) -> bytes:
        """Return the file, whose lengths and hashes fit."""
        packed = {
            name: self.raw.pop(f"arrays/{name}.npy", None) or npy(array)
            for name, array in self.arrays.items()
        }
        table = {
            name: {
                "dtype": self.arrays[name].dtype.str,
                "shape": list(self.arrays[name].shape),
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                **self.lies.get(name, {}),
            }
            for name, data in packed.items()
        }
        members = {"manifest.json": encoded(as_text({"arrays": table, **self.manifest}))}
        members |= {f"arrays/{name}.npy": data for name, data in packed.items()} | self.raw
        return zipped(members, self.twice, self.compression)


def zipped(
    members: Mapping[str, bytes], twice: tuple[str, ...] = (), compression: int = zipfile.ZIP_STORED
) -> bytes:
    """Return a ZIP of members, of which some are there twice."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        for name in (*members, *twice):
            archive.writestr(zipfile.ZipInfo(name), members[name], compression)
    return out.getvalue()


def change_sealed(rng: Rng, data: bytes) -> tuple[bytes, str]:
    """Return an artifact or a file of counts with other contents and sound hashes, or sound contents oddly packed."""
    content = Sealed.of(data)
    if rng.random() < 0.12:
        how = _change_packing(rng, content)
        packed = content.sealed()
        return change_bytes(rng, packed) if how == "bytes" else (packed, how)
    hows = []
    for _ in range(pick(rng, (1, 1, 1, 2, 3))):
        if not content.arrays or rng.random() < 0.6:
            hows.append(change_tree(rng, content.manifest))
            continue
        name = pick(rng, sorted(content.arrays))
        if rng.random() < 0.12:
            other = pick(rng, sorted(content.arrays))
            moved = content.arrays.pop(name)
            if rng.random() < 0.6:
                content.arrays[pick(rng, (name + "x", "sums.ks", other))] = moved
            hows.append(f"array {name} away")
        else:
            content.arrays[name], how = change_array(rng, content.arrays[name])
            hows.append(f"array {name}: {how}")
    return content.sealed(), "; ".join(hows)


def _change_packing(rng: Rng, content: Sealed) -> str:
    names = sorted(content.arrays)
    name = pick(rng, names) if names else ""
    how = pick(
        rng, ("bytes", "bytes", "member", "twice", "entry", "header", "format", "deflated", "manifest")
    )
    if how == "member":
        content.raw[
            pick(rng, ("../x", "/x", "arrays/../../x.npy", "arrays\\x.npy", "x.py", "arrays/", "a\x00b"))
        ] = b"x"
    elif how == "twice":
        content.twice = ("manifest.json",) if not name or rng.random() < 0.5 else (f"arrays/{name}.npy",)
    elif how == "entry" and name:
        key = pick(rng, ("dtype", "shape", "bytes", "sha256", "more"))
        content.lies[name] = {key: pick(rng, (*NUMBERS[:14], "x", None, [], [-1], [1 << 62], ["1"], {}))}
    elif how == "header" and name:
        content.raw[f"arrays/{name}.npy"] = with_header(pick(rng, HEADERS))
    elif how == "format":
        kind = pick(rng, ("fairfix.artifact", "fairfix.counts", "pickle", ""))
        content.manifest["format"] = pick(
            rng, (f"{kind}/{pick(rng, (0, 1, 2, -1, '1.0', '٣', '9' * 40))}", None, 1, [kind])
        )
    elif how == "deflated":
        content.compression = zipfile.ZIP_DEFLATED
    elif how == "manifest":
        content.raw["manifest.json"] = pick(
            rng,
            (
                b"",
                b"[]",
                b"{",
                b"\xff\xfe{}",
                b"\xef\xbb\xbf{}",
                b'{"a":' * 100_000,
                b"[" * 100_000,
                b"9" * 9999,
            ),
        )
    return str(how)


# ---------------------------------------------------------------------- texts


def change_csv(rng: Rng, data: bytes) -> tuple[bytes, str]:
    """Return a table in CSV with other entries, columns and rows, or damaged."""
    if rng.random() < 0.15:
        return change_bytes(rng, data)
    rows: Any = list(csv.reader(io.StringIO(data.decode())))
    hows = [change_tree(rng, rows) for _ in range(pick(rng, (1, 1, 2, 3)))]
    out = io.StringIO()
    csv.writer(out).writerows(
        [str(one).replace(INFINITE, "1e999") for one in (row if isinstance(row, list) else [row])]
        for row in rows
    )
    return encoded(out.getvalue()), "; ".join(hows)


# ---------------------------------------------------------------------- models


def change_skops(rng: Rng, data: bytes) -> tuple[bytes, str]:
    """Return a .skops file, which is a ZIP of a JSON schema and arrays, with other contents."""
    if rng.random() < 0.15:
        return change_bytes(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    arrays = sorted(name for name in members if name.endswith(".npy"))
    if arrays and rng.random() < 0.3:
        name = pick(rng, arrays)
        array, how = change_array(rng, np.load(io.BytesIO(members[name]), allow_pickle=False))
        members[name] = npy(array) if rng.random() < 0.9 else with_header(pick(rng, HEADERS))
        return zipped(members), f"{name}: {how}"
    schema = json.loads(members["schema.json"])
    hows = [change_tree(rng, schema) for _ in range(pick(rng, (1, 1, 2)))]
    members["schema.json"] = encoded(as_text(schema, 3000))
    return zipped(members), "; ".join(hows)


def change_onnx(rng: Rng, data: bytes) -> tuple[bytes, str]:
    """Return an ONNX graph with another field somewhere, or damaged."""
    if rng.random() < 0.2:
        return change_bytes(rng, data)
    import onnx

    model = onnx.load_model_from_string(data)
    fields = list(_fields(model))
    hows = []
    for _ in range(pick(rng, (1, 1, 2))):
        message, one = pick(rng, fields)
        hows.append(one.name)
        _change_field(rng, message, one)
    return model.SerializeToString(), "; ".join(hows)


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    for one, value in message.ListFields():
        yield message, one
        if one.type == one.TYPE_MESSAGE:
            for inner in value if _repeated(one) else [value]:
                yield from _fields(inner)


def _repeated(one: Any) -> bool:
    return bool(one.is_repeated if hasattr(one, "is_repeated") else one.label == one.LABEL_REPEATED)


def _change_field(rng: Rng, message: Any, one: Any) -> None:
    value = getattr(message, one.name)
    if one.type == one.TYPE_MESSAGE or rng.random() < 0.15:
        if _repeated(one) and len(value) > 1 and rng.random() < 0.5:
            del value[int(rng.integers(len(value)))]
        else:
            message.ClearField(one.name)
        return
    choices: Any = NUMBERS[14:]
    if one.type == one.TYPE_STRING:
        choices = (*TEXTS[:15], "Loop", "If", "../../etc/passwd", "tensor")
    elif one.type == one.TYPE_BYTES:
        choices = (b"", b"\xff", b"a" * 9, bytes(64))
    elif one.type not in (one.TYPE_FLOAT, one.TYPE_DOUBLE):
        choices = (0, -1, 1, 2, 7, 10, 1 << 20, (1 << 31) - 1, -(1 << 31))
    entry = pick(rng, choices)
    try:
        if _repeated(one):
            value[int(rng.integers(len(value)))] = entry
        else:
            setattr(message, one.name, entry)
    except (TypeError, ValueError):  # not of the field's type
        message.ClearField(one.name)
