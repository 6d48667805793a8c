"""The algebra of axis labels: which channels of which tensors are the same channels.

Every axis of every tensor in a model is a row-major product of *atoms* (outer first): the rows of an LSTM
weight are ``(4, H)``, a flattened image is ``(C, height, width)``. An atom is a node of a union-find forest
with a size; it may be bound to a product of other atoms, concatenate several axes, or be *pinned*:
then it is never cut. Unification (as in Prolog) makes two axes the same axis; what is left free in the end
and lies on a parameter is a channel group. Axes whose factors do not line up stay whole, and that is noted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from math import prod
from operator import is_

Axis = tuple["Atom", ...]


class Mismatch(Exception):
    """Two axes cannot be the same axis: they have different sizes."""


class _Uneven(Exception):
    """The factors of axes do not line up."""


class Atom:
    """One factor of an axis.

    Attributes:
        size: Number of positions.
        pinned: Whether every position must stay.
        link: The product that this atom is bound to, once it is.
        parts: The axes that this atom concatenates, if it is a concatenation.
        owner: Path of the module that owns the first parameter with it.
    """

    __slots__ = ("link", "owner", "parts", "pinned", "size")

    def __init__(self, size: int, *, pinned: bool = False, parts: tuple[Axis, ...] = ()) -> None:
        self.size, self.pinned, self.parts = size, pinned, parts
        self.link: Axis | None = None
        self.owner: str | None = None

    @property
    def owned(self) -> bool:
        """Whether a parameter has this atom."""
        return self.owner is not None

    @property
    def fixed(self) -> bool:
        """Whether nothing of this (unbound) atom may be cut."""
        return self.pinned or (bool(self.parts) and all(a.fixed for p in self.parts for a in resolve(p)))


def size_of(axis: Axis) -> int:
    """Return the number of positions of an axis."""
    return prod(a.size for a in axis)


def resolve(axis: Axis) -> Axis:
    """Return the axis in unbound atoms, without atoms of size 1."""
    found: list[Atom] = []
    pending = list(reversed(axis))
    while pending:  # not by recursion: a residual net binds an axis to the next one, and that to the next
        atom = pending.pop()
        if atom.link is None and len(atom.parts) > 1:
            _join_equal_parts(atom)
        if atom.link is not None:
            if len(atom.link) == 1 and atom.link[0].link is not None:
                atom.link = atom.link[0].link
            pending += reversed(atom.link)
        elif atom.size != 1:
            found.append(atom)
    return tuple(found)


def _join_equal_parts(atom: Atom) -> None:
    """N times the same axis, one after the other, are the product of n and the axis."""
    first, *others = (resolve(part) for part in atom.parts)
    if first and all(len(other) == len(first) and all(map(is_, other, first)) for other in others):
        atom.link, atom.parts = (*fixed_axis(len(others) + 1), *first), ()


def free_atoms(axis: Axis) -> list[Atom]:
    """Return the atoms of an axis that may be cut, those inside concatenations too."""
    found: list[Atom] = []
    for atom in resolve(axis):
        if atom.parts:
            found.extend(inner for part in atom.parts for inner in free_atoms(part))
        elif not atom.pinned:
            found.append(atom)
    return found


def pin(axis: Axis) -> None:
    """Keep every position of an axis."""
    for atom in resolve(axis):
        atom.pinned = True
        for part in atom.parts:
            pin(part)


def fixed_axis(size: int) -> Axis:
    """Return a new axis that is never cut."""
    return () if size == 1 else (Atom(size, pinned=True),)


def free_axis(size: int) -> Axis:
    """Return a new axis of which nothing is known yet; of one without positions nothing can be cut."""
    return () if size == 1 else (Atom(size, pinned=size == 0),)


def product(*axes: Axis) -> Axis:
    """Return the row-major product of axes."""
    return tuple(atom for axis in axes for atom in axis)


def concat(axes: Sequence[Axis]) -> Axis:
    """Return the concatenation of axes."""
    if len(axes) == 1:
        return axes[0]
    total = sum(size_of(axis) for axis in axes)
    if all(atom.fixed for axis in axes for atom in resolve(axis)):
        return fixed_axis(total)
    return (Atom(total, parts=tuple(axes)),)


class Algebra:
    """Unification and regrouping.

    Attributes:
        inside: Whether an axis that is regrouped (heads times the size of a head) is cut inside each block.
        place: Operation and module that are being followed.
        meetings: Axes on which parameters have met, and where; not those of one module inside it.
        kept_whole: Where and why axes stay whole, since their factors do not line up.
    """

    def __init__(self, *, inside: bool = False) -> None:
        self.inside = inside
        self.place = ("", "")
        self.meetings: list[tuple[Axis, tuple[str, str]]] = []
        self.kept_whole: list[tuple[tuple[str, str], str]] = []
        self._splits: list[tuple[Atom, Atom]] = []
        self._products: list[Axis] = []

    def unify(self, one: Axis, other: Axis) -> None:
        """Make two axes the same axis; both stay whole if their factors do not line up.

        Raises:
            Mismatch: if their sizes differ.
        """
        if size_of(one) != size_of(other):
            raise Mismatch(f"{size_of(one)} channels meet {size_of(other)} channels")
        try:
            self._unify(one, other)
        except _Uneven as error:
            self.keep_whole(str(error), one, other)

    def carve(self, axes: Sequence[Axis], sizes: Sequence[int]) -> list[Axis]:
        """Regroup the row-major product of axes into axes of the given sizes.

        An atom that straddles a border is split in two. All stay whole if a border falls where no factor
        can be split, or if there are no positions.

        Raises:
            Mismatch: if the sizes differ.
        """
        if prod(map(size_of, axes)) != prod(sizes):
            raise Mismatch(f"axes of {[*map(size_of, axes)]} channels are regrouped to {list(sizes)}")
        try:
            if not prod(sizes):
                raise _Uneven(f"no positions are regrouped to {list(sizes)}")
            return self._carve(axes, sizes)
        except _Uneven as error:
            self.keep_whole(str(error), *axes)
            return [fixed_axis(size) for size in sizes]

    def divide(self, axis: Axis, sizes: Sequence[int]) -> list[Axis]:
        """Return the consecutive pieces of an axis, one for each size; equal pieces are cut alike.

        The axis stays whole if the pieces' borders fall inside a factor.
        """
        atoms = resolve(axis)
        if all(atom.fixed for atom in atoms):
            return [fixed_axis(size) for size in sizes]
        if len(sizes) == 1:
            return [axis]
        if len(atoms) == 1 and [size_of(part) for part in atoms[0].parts] == list(sizes):
            return list(atoms[0].parts)
        if len(set(sizes)) == 1:
            count, piece = self.carve([axis], [len(sizes), sizes[0]])
            pin(count)
            return [piece] * len(sizes)
        if len(atoms) == 1 and not atoms[0].parts:
            pieces = [free_axis(size) for size in sizes]
            for atom in (atom for piece in pieces for atom in piece):
                atom.owner = atoms[0].owner
            atoms[0].link = concat(pieces)
            return pieces
        self.keep_whole(f"an axis of {size_of(axis)} channels is cut into pieces of {list(sizes)}", axis)
        return [fixed_axis(size) for size in sizes]

    def keep_whole(self, reason: str, *axes: Axis) -> None:
        """Keep every position of axes that cannot be cut; note why, if parameters have them."""
        if any(atom.owned for axis in axes for atom in free_atoms(axis)):
            self.kept_whole.append((self.place, reason))
        for axis in axes:
            pin(axis)

    def settle(self, alone: Container[Atom] = ()) -> None:
        """Decide the products of which more than one factor could still be cut.

        Of an axis that was regrouped (heads times the size of a head) whole blocks are cut, so that the
        inner factor stays; or, with ``inside``, each block is cut, so that the outer one stays. Of any other
        product the factors stay free that some parameter has on its own.

        Args:
            alone: The atoms that are the only free one on some axis of a parameter.
        """
        for outer, inner in self._splits:
            kept, other = (outer, inner) if self.inside else (inner, outer)
            if not all(atom.fixed for atom in resolve((other,))):
                pin((kept,))
        for product in self._products:
            free = [atom for atom in resolve(product) if not atom.fixed]
            for atom in free[1:]:
                if atom not in alone:
                    pin((atom,))

    def _unify(self, one: Axis, other: Axis) -> None:
        left, right = list(resolve(one)), list(resolve(other))
        while left and right and left[0] is right[0]:
            del left[0], right[0]
        while left and right and left[-1] is right[-1]:
            del left[-1], right[-1]
        if not left:
            return
        regrouped = len(left) + len(right) > 2 or left[0].parts or right[0].parts
        if regrouped and all(atom.fixed for atom in (*left, *right)):
            return  # the same positions, grouped in another way, and none of them is ever cut
        if len(left) == 1 and not left[0].parts:
            self._bind(left[0], tuple(right))
        elif len(right) == 1 and not right[0].parts:
            self._bind(right[0], tuple(left))
        elif len(left) == len(right) == 1:
            self._unify_parts(left[0], right[0])
        else:
            for edge in (0, -1):
                if left[edge].size == right[edge].size:
                    rest = slice(1, None) if edge == 0 else slice(None, -1)
                    self._unify((left[edge],), (right[edge],))
                    self._unify(tuple(left[rest]), tuple(right[rest]))
                    return
            larger, smaller = (left, right) if left[0].size > right[0].size else (right, left)
            self._split(larger[0], smaller[0].size)
            self._unify(tuple(left), tuple(right))

    def _carve(self, axes: Iterable[Axis], sizes: Sequence[int]) -> list[Axis]:
        pending: list[Atom] = []
        for atom in (a for axis in axes for a in resolve(axis)):
            # Neighbours that are never cut are one factor, whatever they were before.
            if pending and atom.fixed and pending[-1].fixed:
                pending[-1] = Atom(pending[-1].size * atom.size, pinned=True)
            else:
                pending.append(atom)
        carved: list[Axis] = []
        for size in sizes:
            taken: list[Atom] = []
            need = size
            while need != 1:
                atom = pending.pop(0)
                if need % atom.size == 0:
                    taken.append(atom)
                    need //= atom.size
                else:
                    pending[:0] = self._split(atom, need)
            carved.append(tuple(taken))
        return carved

    def _bind(self, atom: Atom, axis: Axis) -> None:
        if atom.pinned:
            pin(axis)
        for other in axis:
            if other.owner is None:
                other.owner = atom.owner
            elif atom.owner is not None and {atom.owner, other.owner} != {self.place[1]}:
                self.meetings.append((axis, self.place))
        if len(axis) > 1:
            self._products.append(axis)
        atom.link = axis

    def _unify_parts(self, one: Atom, other: Atom) -> None:
        if [size_of(p) for p in one.parts] == [size_of(p) for p in other.parts]:
            for mine, theirs in zip(one.parts, other.parts, strict=True):
                self._unify(mine, theirs)
            self._bind(other, (one,))
        elif self._level(one) or self._level(other):
            self._unify((one,), (other,))
        else:
            raise _Uneven("two concatenations have different parts")

    def _level(self, atom: Atom) -> bool:
        """Make equal parts of a concatenation the same axis: it is a product then, as far as it was none."""
        first, *others = atom.parts
        if any(size_of(part) != size_of(first) for part in others):
            return False
        for part in others:
            self._unify(first, part)
        return not resolve((atom,))[0].parts

    def _split(self, atom: Atom, outer_size: int) -> Axis:
        """Take an atom apart, so that its first factors have the given size (or are nearer to it)."""
        if not atom.fixed and atom.parts and self._level(atom):
            return resolve((atom,))
        if atom.size % outer_size or (atom.parts and not atom.fixed):
            raise _Uneven(f"an axis of {atom.size} channels is regrouped by {outer_size}")
        outer = Atom(outer_size, pinned=atom.fixed)
        inner = Atom(atom.size // outer_size, pinned=atom.fixed)
        if not atom.fixed:
            outer.owner = inner.owner = atom.owner
            self._splits.append((outer, inner))
        atom.link = (outer, inner)
        return outer, inner
