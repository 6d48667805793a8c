"""What a run promises about the data of each client."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

#: Beyond, noise leaves the numbers that a float32 parameter can hold; no update is so long.
MAX_CLIP = 1e6
#: Below, epsilon is above 10^11 a round and leaves the numbers that its accountant can hold.
MIN_NOISE = 1e-6


class PrivacyConfig(BaseModel):
    """The ``privacy:`` block of a configuration: central differential privacy for clients.

    The update of each client is clipped, and the server adds noise to the sum before it steps (module
    ``noise``). What that is worth (epsilon at ``delta``) follows from the number of rounds and the share of
    clients in a cohort (``accountant``).

    Attributes:
        clip: C, the largest norm of a client's update over all coordinates of its slice.
        noise_multiplier: z. The noise on each coordinate of the sum has standard deviation z * C.
        delta: The probability that the bound of epsilon may fail with; below 1 / clients.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    clip: float = Field(gt=0, le=MAX_CLIP)
    noise_multiplier: float = Field(ge=MIN_NOISE, le=1e4)
    delta: float = Field(1e-5, gt=0, lt=1)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on each coordinate of the sum."""
        return self.noise_multiplier * self.clip
