"""Encodings of text files: found by their first bytes, and read as UTF-8, a block at a time.

A byte order mark or the zeros of UTF-16 and UTF-32 decide at once, and so does text that is valid UTF-8. Other bytes
are read in the code page whose letters make words of one language (:data:`ALPHABETS`). No library and no locale
decides, so a file has one encoding on every machine.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from fairfix.data.names import did_you_mean
from fairfix.errors import DataError, UsageError

USUAL = "cp1252"
"""The encoding of Windows in Western Europe and America, which Excel writes."""

BYTE_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; that of UTF-32 begins like that of UTF-16."""

WESTERN = ("äöüßéèêàâçîôûëïùœæÿ", "áâãàçéêíóôõúñüïòèìù", "æøåäöéü", "áéíóúñüäöëçãâôêåß")
CENTRAL = (*("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîșțşţ", "čćđšž", "äöüß"),)
RUSSIAN = (
    "абвгдежзийклмнопрстуфхцчшщъыьэюяё",
    "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя",
    "абвгдђежзијклљмнњопрстћуфхцчџш",
)
ALPHABETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (USUAL, WESTERN),
    ("cp1250", CENTRAL),
    ("cp1251", RUSSIAN),
    ("cp1253", ("αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώϊϋ",)),
    ("cp1254", ("çğıöşüâîûi\u0307",)),
    (USUAL, ("áðéíóúýþæö",)),
    ("cp1257", ("ąčęėįšųūž", "āčēģīķļņšūž", "äöõüšž")),
    ("iso8859-2", CENTRAL),
    ("mac_roman", WESTERN),
    ("cp850", WESTERN),
    ("koi8-r", RUSSIAN),
    ("cp866", RUSSIAN),
)
"""Code pages, each with the letters of its languages other than a to z; the most usual first.

Of two that fit a text alike, the first is taken: Turkish before Icelandic, whose letters have the same bytes.
"""

NEUTRAL = frozenset("’‘“”–—…€°§«»\u00a0")
"""Signs that are of no language."""

WORD = re.compile(rb"[A-Za-z\x80-\xff]*[\x80-\xff][A-Za-z\x80-\xff]*")
STRANGERS = re.compile(rb"[\x80-\xff]{2,}")
KANA = r"[\u3040-\u30ff]"
"""Letters that only Japanese has."""

LATIN = "\u024f"
"""The last of the letters that are Latin."""

MIXED = 0.25
"""Penalty of a letter in a word that mixes cases or scripts, as wrong code pages make them."""

SURE = 0.85
"""Part of the letters that a language has to have, for its code page to be taken without a look at East Asian ones."""


def known_encoding(name: str) -> str:
    """Return the name by which Python knows an encoding that a user states; else a UsageError."""
    try:
        info = codecs.lookup(name)
        "a".encode(name).decode(name)  # an encoding of text, no other codec
    except (LookupError, ValueError):
        usual = ("utf-8", "utf-16", "latin-1", "cp1252", "cp1250", "cp1251", "shift_jis", "gb18030")
        hint = did_you_mean(name, usual) or f"; write one such as {', '.join(usual)}"
        raise UsageError(f"`encoding={name}` is not an encoding of Python{hint}") from None
    return "utf-8" if info.name == "utf-8-sig" else info.name


def encoding_of(data: bytes, *, whole: bool) -> str:
    """Return the encoding of a file that begins with some bytes; ``whole`` if these are all of it."""
    for mark, encoding in BYTE_MARKS:
        if data.startswith(mark):
            return encoding
    if zeros := _by_zeros(data[:4096]):
        return zeros
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError:
        text = data.decode("utf-8", errors="replace")
        wrong = text.count("\ufffd")
        if sum(not one.isascii() for one in text) > 5 * wrong:
            return "utf-8"  # a few bytes are damaged, which are named if their column is used
        return _code_page(data, whole=whole)
    return "utf-8"


def _by_zeros(data: bytes) -> str:
    """Return the encoding whose characters of ASCII have zeros at the places of those in some bytes; else nothing."""
    many = len(data) // 4
    if not many or data.count(0) < many:
        return ""
    at = [data[i::4].count(0) > many / 2 for i in range(4)]
    shapes = {
        (False, True, True, True): "utf-32-le",
        (True, True, True, False): "utf-32-be",
        (False, True, False, True): "utf-16-le",
        (True, False, True, False): "utf-16-be",
    }
    return shapes.get((at[0], at[1], at[2], at[3]), "")


def _code_page(data: bytes, *, whole: bool) -> str:
    words = list(dict.fromkeys(WORD.findall(data)))[:2000]
    worth = [_worth(words, encoding, alphabets) for encoding, alphabets in ALPHABETS]
    best = max(worth)
    if best < SURE and (eastern := _east_asian(data, whole=whole)):
        return eastern
    if best > 0:
        return ALPHABETS[worth.index(best)][0]  # the first of equal ones
    return "latin-1" if worth[0] < 0 else USUAL


def _worth(words: list[bytes], encoding: str, alphabets: tuple[str, ...]) -> float:
    """Return how well words fit the best of the languages of a code page, at most 1; -1 if some are not in it."""
    try:
        texts = [word.decode(encoding) for word in words]
    except UnicodeDecodeError:
        return -1.0
    letters = [(one, text) for text in texts for one in text if not one.isascii()]
    inside = {text: text[1:-1] for text in texts}
    fit = max(
        sum(
            one.lower() in alphabet or (one in NEUTRAL and (one == "’" or one not in inside[text]))
            for one, text in letters
        )
        for alphabet in alphabets
    )
    mixed = sum(_is_mixed(one, text) for one, text in letters)
    return max(0.0, (fit - MIXED * mixed) / len(letters))


def _is_mixed(one: str, text: str) -> bool:
    """Tell whether a word has a capital behind a small letter, or letters of ASCII and one that is not Latin."""
    foreign = one.isalpha() and one > LATIN and re.search("[A-Za-z]", text) is not None
    return foreign or not (text.isupper() or text[1:] == text[1:].lower())


def _east_asian(data: bytes, *, whole: bool) -> str:
    """Return the East Asian encoding in which some bytes are text, or nothing; letters of Europe stand alone."""
    strangers = sum(map(len, STRANGERS.findall(data)))
    if strangers < 0.4 * sum(one > 0x7F for one in data):
        return ""
    for encoding, common in (
        ("euc_jp", KANA),
        ("cp932", KANA),
        ("cp949", r"[\uac00-\ud7a3]"),
        ("gb18030", r"[\u4e00-\u9fff]"),
        ("big5", r"[\u4e00-\u9fff]"),
        ("cp932", r"[\u4e00-\u9fff]"),
    ):
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(data, final=whole)
        except UnicodeDecodeError:
            continue
        strange = [one for one in text if not one.isascii()]
        of_kind = len(re.findall(common, text)) / len(strange)
        east = len(re.findall("[\u3000-\u9fff\uff01-\uff5e]", text)) / len(strange)
        if (common != KANA and of_kind < 0.9) or (common == KANA and (of_kind < 0.1 or east < 0.95)):
            continue
        if encoding != "gb18030" or _is_common_chinese(text):
            return encoding
    return ""


def _is_common_chinese(text: str) -> bool:
    """Tell whether most characters are of the usual ones that GB 2312 lists first, so the text is no Big5."""
    own = [one.encode("gb18030") for one in text if "\u4e00" <= one <= "\u9fff"]
    return sum(len(one) == 2 and 0xB0 <= one[0] <= 0xD7 and one[1] >= 0xA1 for one in own) > 0.8 * len(own)


def decoded(blocks: Iterable[bytes], encoding: str, where: str, *, stated: bool = False) -> Iterator[str]:
    """Yield the text of blocks; a DataError names the line of the first bytes that are none."""
    decoder = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" else encoding)()
    line = 1
    for block in chain(blocks, [b""]):
        try:
            text = decoder.decode(block, not block)
        except UnicodeError as error:
            raise _fault(error, block, line, encoding, where, stated=stated) from None
        yield text
        line += text.count("\n") or text.count("\r")


def _fault(
    error: UnicodeError, block: bytes, line: int, encoding: str, where: str, *, stated: bool
) -> DataError:
    """Return the error that names a place whose bytes are no text, and the encoding to read it with.

    ``line`` is that in which the block begins.
    """
    at, end = getattr(error, "start", 0), getattr(error, "end", 1)
    data: bytes = getattr(error, "object", block)
    good = data[:at].decode(encoding, errors="ignore")
    begin, stop = max(data.rfind(b"\n", 0, at) + 1, at - 40), data.find(b"\n", at) + 1 or len(data)
    around = data[begin : min(stop, at + 40)].rstrip(b"\r\n")
    other = encoding_of(around, whole=False)
    if other == encoding or _undecodable(around, other):
        other = USUAL if encoding != USUAL and not _undecodable(around, USUAL) else "latin-1"
    if stated and encoding != "utf-8" and not _undecodable(around, "utf-8"):
        other = "utf-8"
    return DataError(
        f"{where} has the bytes {data[at:end][:4].hex(' ')} in line "
        f"{line + (good.count(chr(10)) or good.count(chr(13))):,}, which are not valid {encoding.upper()}; read as "
        f"{other} the text is {around.decode(other, errors='replace').strip()[:60]!r}: add `encoding={other}`, or "
        "correct the line"
    )


def _undecodable(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return True
    return False
