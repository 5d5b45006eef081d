"""Results that are kept with the object that they were computed from, so that whoever asks again gets them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

Owner = TypeVar("Owner")
Made = TypeVar("Made")
Key = ParamSpec("Key")


def once_per_object(
    make: Callable[Concatenate[Owner, Key], Made],
) -> Callable[Concatenate[Owner, Key], Made]:
    """Compute a function once for each first argument, such as a table, and keep the result as long as that lives.

    Further arguments are the key, so they are hashable and given by position. A warning is given again to each caller.
    The result may not refer to the first argument, which would then live forever.
    """
    kept: WeakKeyDictionary[Owner, dict[Any, tuple[Made, list[Warning | str]]]] = WeakKeyDictionary()

    @wraps(make)
    def made(owner: Owner, /, *key: Key.args, **no: Key.kwargs) -> Made:
        own = kept.setdefault(owner, {})
        if key not in own:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                out = make(owner, *key, **no)
            own[key] = out, [one.message for one in caught]
        out, warned = own[key]
        for one in warned:
            warnings.warn(one, stacklevel=2)
        return out

    return made
