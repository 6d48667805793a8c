"""Central differential privacy: clipping, noise and what they are worth."""

from widthwise.privacy.accountant import epsilon
from widthwise.privacy.config import PrivacyConfig
from widthwise.privacy.noise import clip_factor, noisy_mean

__all__ = ["PrivacyConfig", "clip_factor", "epsilon", "noisy_mean"]
