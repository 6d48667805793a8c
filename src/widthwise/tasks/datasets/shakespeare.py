"""The speeches of Shakespeare's roles: the next character from the 80 before it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch

from widthwise.core.errors import DataError
from widthwise.tasks.dataset import Signature, TextSet
from widthwise.tasks.preparation import Preparation, of_characters
from widthwise.tasks.source import (
    DEFAULT_TEST_FRACTION,
    Ints,
    Request,
    Source,
    Splits,
    check_enough_ids,
    choose,
)
from widthwise.tasks.tables import read_table

WINDOW = 80
FIRST, LAST = 32, 126  # printable ASCII: 95 symbols


class Shakespeare(Source):
    """Each role of each play is an id; its speeches are joined in order, newlines become spaces.

    The last ``test_fraction`` of a role's characters is its test part, in time order. Windows lie wholly in
    one part, so no character that is a training target or input is ever tested on: a role of n characters,
    c of them in the training part, has c - 80 training and n - c - 80 test windows.
    """

    @property
    def preparation(self) -> Preparation:
        """Printable ASCII from the space on."""
        return of_characters(WINDOW, FIRST, LAST)

    def read(self, request: Request) -> Splits:
        """Read the speeches, and lay the kept roles one after another in one token stream."""
        columns = {name: (name,) for name in ("play", "character", "text")}
        table = read_table(self.name, "plays", columns, self.folders, self.hub, request.data_dir)
        speeches = defaultdict(list)
        for play, role, text in zip(*map(table.texts, columns), strict=True):
            speeches[play, role].append(text)
        roles = sorted(("\n".join(texts) for texts in speeches.values()), key=len, reverse=True)
        if request.largest_ids is not None:
            check_enough_ids(request.largest_ids, len(roles), self)
            roles = roles[: request.largest_ids]
        fraction = request.test_fraction or DEFAULT_TEST_FRACTION
        bounds = np.cumsum([0, *map(len, roles)])
        cuts = bounds[1:] - (np.diff(bounds) * fraction).astype(np.int64)
        starts, ids = _windows(bounds[:-1], cuts)
        test_starts, _ = _windows(cuts, bounds[1:])
        if not len(starts):
            raise DataError(
                f"longest role of {table.where} has {max(map(len, roles))} characters, but a training part "
                f"needs more than {WINDOW}. Give more text."
            )
        kept = choose(len(starts), request.limit, request.seeds.at("limit").numpy())
        test_kept = choose(len(test_starts), request.test_limit, request.seeds.at("test-limit").numpy())
        tokens = torch.from_numpy(_encode("".join(roles), table.where))
        train, test = (
            TextSet(self.name, self.signature, self.class_names, tokens, torch.from_numpy(each))
            for each in (starts[kept], test_starts[test_kept])
        )
        return Splits(train, test, ids[kept])


def _windows(begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return the starts of all windows within [begin, end) of each role, and the role of each window."""
    counts = np.maximum(ends - begins - WINDOW, 0)
    roles = np.repeat(np.arange(len(begins)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return begins[roles] + within, roles


def _encode(text: str, where: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return tokens 0..94, one for each character.

    Raises:
        DataError: if a character is not printable ASCII.
    """
    text = text.replace("\n", " ")
    strange = next((each for each in text if not FIRST <= ord(each) <= LAST), None)
    if strange is not None:
        raise DataError(
            f"text of {where} has the character {strange!r}, but only printable ASCII and newlines are "
            "known. Replace it."
        )
    return np.frombuffer(text.encode("ascii"), dtype=np.uint8) - np.uint8(FIRST)


SHAKESPEARE = Shakespeare(
    name="shakespeare",
    signature=Signature("text", (WINDOW,), LAST - FIRST + 1),
    class_names=("space", *map(chr, range(FIRST + 1, LAST + 1))),
    summary="speeches of 1,358 roles, 4.3 million characters; the next character from 80, 95 symbols",
    origin="Moby Shakespeare in Jon Bosak's XML version; after LEAF (Caldas et al., arXiv 1812.01097)",
    terms="public domain",
    id_name="role",
    has_test=False,
    folders=("shakespeare",),
)
