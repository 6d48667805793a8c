"""Handwritten digits that are bundled with scikit-learn: no download, the demo's data set."""

from __future__ import annotations

import numpy as np
import torch

from widthwise.core.errors import ConfigError
from widthwise.tasks.dataset import ArraySet, Signature
from widthwise.tasks.preparation import Preparation, of_images
from widthwise.tasks.source import DEFAULT_TEST_FRACTION, Request, Source, Splits, subsample


class Digits(Source):
    """1,797 grey images of 8x8 pixels, ten classes, light ink on black."""

    @property
    def preparation(self) -> Preparation:
        """Normalisation of bytes."""
        return of_images(self.signature.shape, MEAN, STD)

    def read(self, request: Request) -> Splits:
        """Read, split (stratified by class, the same for every seed) and take the samples asked for."""
        # Imported here: scikit-learn takes a second, and only this data set needs it.
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        pixels, labels = load_digits(return_X_y=True)
        # 0..16 to 0..255 in whole numbers, so that they are held as bytes like any other image.
        images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, *self.signature.shape)
        fraction = request.test_fraction or DEFAULT_TEST_FRACTION
        try:
            rows, test_rows = train_test_split(
                np.arange(len(labels)), test_size=fraction, stratify=labels, random_state=0
            )
        except ValueError as error:
            raise ConfigError(
                f"test_fraction is {fraction}, but both parts of digits need a sample of each class "
                f"({error}). Take a share such as {DEFAULT_TEST_FRACTION}."
            ) from error
        rows = rows[subsample(labels[rows], request.limit, request, "limit")]
        test_rows = test_rows[subsample(labels[test_rows], request.test_limit, request, "test-limit")]
        train, test = (
            ArraySet(
                name=self.name,
                signature=self.signature,
                class_names=self.class_names,
                values=torch.from_numpy(images[chosen]),
                targets=torch.from_numpy(labels[chosen].astype(np.int64)),
                mean=MEAN,
                std=STD,
            )
            for chosen in (rows, test_rows)
        )
        return Splits(train, test)


# Over the training part, in units of a byte.
MEAN, STD = (77.9,), (95.9,)

DIGITS = Digits(
    name="digits",
    signature=Signature("image", (1, 8, 8), 10),
    class_names=tuple("0123456789"),
    summary="1,797 handwritten digits, 8x8 grey, bundled: no download",
    origin="scikit-learn's bundled copy of the UCI optical recognition of handwritten digits (test part), "
    "8x8 grey, light ink on black; its pixels 0..16 are taken times 255/16, rounded",
    terms="UCI Machine Learning Repository, CC BY 4.0 (Alpaydin and Kaynak 1998)",
    has_test=False,
)
