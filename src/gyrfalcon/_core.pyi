"""Fused kernel products on tiles: the native core of Gyrfalcon."""

import enum
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray

def instruction_sets() -> list[str]:
    """Return the instruction sets of this processor, best first."""

class Verb(enum.Enum):
    """A product with K."""

    fill = 0

    matvec = 1

    rmatvec = 2

    sandwich = 3

class Profile(enum.Enum):
    """Kernels that tiles can compute."""

    gaussian = 0

    laplacian = 1

    laplacian1 = 2

    matern32 = 3

    matern52 = 4

    rational = 5

    linear = 6

    polynomial = 7

    sigmoid = 8

    arccosine0 = 9

    arccosine1 = 10

def geometry(profile: Profile) -> str:
    """Return what a profile is a function of."""

def shapley_sums(
    instruction_set: str,
    z: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order="C", device="cpu", writable=False)],
    b: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order="C", device="cpu", writable=False)],
    nodes: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order="C", device="cpu")],
) -> None: ...

class CentersF32:
    def __init__(
        self,
        centers: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        shift: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        scale: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        profile: Profile,
        param0: float,
        param1: float,
        degree: int,
        difference: bool,
        instruction_set: str = "",
    ) -> None: ...
    def fill(
        self,
        rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def matvec(
        self,
        rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        v: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    ) -> None: ...
    def rmatvec(
        self,
        rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        u: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> None: ...
    def sandwich(
        self,
        rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        v: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        weight: object | None,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
        added: object | None = None,
    ) -> None: ...
    def matmat(
        self,
        rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        v: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def rmatmat(
        self,
        rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        u: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def sandwich_columns(
        self,
        rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        v: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        weight: object | None,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
        added: object | None = None,
    ) -> None: ...

@overload
def signed_sums(
    instruction_set: str,
    block: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    centers: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    coef: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order="C", device="cpu")],
) -> None: ...
@overload
def signed_sums(
    instruction_set: str,
    block: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    centers: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    coef: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order="C", device="cpu")],
) -> None: ...
@overload
def dense_matmat(
    instruction_set: str,
    block: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    v: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
@overload
def dense_matmat(
    instruction_set: str,
    block: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    v: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
@overload
def dense_rmatmat(
    instruction_set: str,
    block: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    u: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
@overload
def dense_rmatmat(
    instruction_set: str,
    block: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    u: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
@overload
def dense_sandwich(
    instruction_set: str,
    block: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    v: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    weight: object | None,
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    added: object | None = None,
) -> None: ...
@overload
def dense_sandwich(
    instruction_set: str,
    block: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    v: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    weight: object | None,
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    added: object | None = None,
) -> None: ...
@overload
def dense(
    instruction_set: str,
    verb: Verb,
    block: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    v: object | None,
    u: object | None,
    out: object,
    added: object | None = None,
) -> None: ...
@overload
def dense(
    instruction_set: str,
    verb: Verb,
    block: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    v: object | None,
    u: object | None,
    out: object,
    added: object | None = None,
) -> None: ...

class CentersF64:
    def __init__(
        self,
        centers: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        shift: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        scale: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        profile: Profile,
        param0: float,
        param1: float,
        degree: int,
        difference: bool,
        instruction_set: str = "",
    ) -> None: ...
    def fill(
        self,
        rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def matvec(
        self,
        rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        v: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> None: ...
    def rmatvec(
        self,
        rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        u: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> None: ...
    def sandwich(
        self,
        rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        v: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        weight: object | None,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
        added: object | None = None,
    ) -> None: ...
    def matmat(
        self,
        rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        v: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def rmatmat(
        self,
        rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        u: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def sandwich_columns(
        self,
        rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        v: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        weight: object | None,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
        added: object | None = None,
    ) -> None: ...

def narrow(
    instruction_set: str,
    block: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def half_sandwich(
    instruction_set: str,
    block: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    v: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    weight: object | None,
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def hash_rows(
    words: Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    multipliers: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """Hash the rows of a matrix of words."""

class SparseF32:
    def __init__(
        self,
        data: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        scale: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        profile: Profile,
        param0: float,
        param1: float,
        degree: int,
        instruction_set: str = "",
    ) -> None: ...
    @property
    def n_columns(self) -> int: ...
    def fill(
        self,
        data: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    ) -> bool: ...
    def matvec(
        self,
        data: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        v: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    ) -> bool: ...
    def rmatvec(
        self,
        data: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        u: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> bool: ...
    def sandwich(
        self,
        data: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        v: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        weight: object | None,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> bool: ...
    def project(
        self,
        V: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        P: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def linear_matmat(
        self,
        data: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        P: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def linear_rmatmat(
        self,
        data: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        U: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def linear_sandwich(
        self,
        data: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        P: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        weight: object | None,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...

class SparseF64:
    def __init__(
        self,
        data: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        scale: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        profile: Profile,
        param0: float,
        param1: float,
        degree: int,
        instruction_set: str = "",
    ) -> None: ...
    @property
    def n_columns(self) -> int: ...
    def fill(
        self,
        data: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> bool: ...
    def matvec(
        self,
        data: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        v: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> bool: ...
    def rmatvec(
        self,
        data: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        u: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> bool: ...
    def sandwich(
        self,
        data: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        v: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        weight: object | None,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> bool: ...
    def project(
        self,
        V: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        P: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def linear_matmat(
        self,
        data: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        P: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def linear_rmatmat(
        self,
        data: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        U: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...
    def linear_sandwich(
        self,
        data: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        indices: object,
        indptr: object,
        n_features: int,
        P: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        weight: object | None,
        out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None: ...

@overload
def marked(
    bits: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
@overload
def marked(
    bits: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order="C", device="cpu")],
) -> None: ...
@overload
def tree_sums(
    feature: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    threshold: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    left: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    right: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    missing_left: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order="C", device="cpu", writable=False)],
    value: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    root: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    output: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    X: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
@overload
def tree_sums(
    feature: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    threshold: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    left: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    right: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    missing_left: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order="C", device="cpu", writable=False)],
    value: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    root: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    output: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    X: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None:
    """Sum the values of the leaves of rows."""

def boost(
    bins: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    n_bins: Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    train: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    held: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    y: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    weight: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    offset: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    n_classes: int,
    rate: float,
    l2: float,
    share: float,
    max_leaves: int,
    min_leaf: int,
    symmetric: bool,
    iterations: int,
    patience: int,
    seconds: float,
    seed: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None,))],
    Annotated[NDArray[numpy.int32], dict(shape=(None,))],
    Annotated[NDArray[numpy.int32], dict(shape=(None,))],
    Annotated[NDArray[numpy.int32], dict(shape=(None,))],
    Annotated[NDArray[numpy.float64], dict(shape=(None,))],
    Annotated[NDArray[numpy.int32], dict(shape=(None,))],
    Annotated[NDArray[numpy.float64], dict(shape=(None,))],
]:
    """Fit gradient-boosted trees until the loss of held-out rows falls no more, or time is up."""
