"""What undoes a blur whose kernel is known, without training: Wiener's filter and Richardson and Lucy's iteration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Kernel = npt.NDArray[np.float64]
Plane = npt.NDArray[np.float64]

AROUND = 2

# Their iteration divides by the blurred estimate: values below this, and noise below zero, count as this.
LEAST = 1e-3


def wiener(
    blurred: Array,  # [C, H, W]
    kernel: Kernel,
    balance: float,
) -> Array:
    """Fourier inverse with a Laplacian penalty of weight `balance`."""
    from skimage.restoration import wiener as filtered

    return _channelwise(blurred, kernel, lambda channel: filtered(channel, kernel, balance, clip=False))


def richardson_lucy(
    blurred: Array,  # [C, H, W]
    kernel: Kernel,
    iterations: float,
) -> Array:
    """The maximum likelihood of photon counts, stopped early: Richardson 1972, Lucy 1974."""
    from skimage.restoration import richardson_lucy as iterated

    def sharpened(channel: Plane) -> Plane:
        return np.asarray(iterated(np.maximum(channel, LEAST), kernel, num_iter=int(iterations), clip=False))

    return _channelwise(blurred, kernel, sharpened)


def _channelwise(
    blurred: Array,  # [C, H, W]
    kernel: Kernel,
    restored: Callable[[Plane], Plane],
) -> Array:
    """Each channel restored with a surrounding of twice the kernel's size, which is then cut off."""
    high, wide = (AROUND * side for side in kernel.shape)
    inner = (slice(high, high + blurred.shape[1]), slice(wide, wide + blurred.shape[2]))
    return np.stack([restored(surrounded(channel, kernel))[inner] for channel in blurred]).astype(np.float32)


def surrounded(
    channel: Array,  # [H, W]
    kernel: Kernel,
) -> Plane:
    """The mirrored picture around it, going over into its own periodic blur towards the outer border.

    The filters take the picture for periodic, or for zero outside: a jump there rings through all of it (1 to 4 dB).
    """
    sides = [AROUND * side for side in kernel.shape]
    mirrored = np.pad(channel.astype(np.float64), [(side, side) for side in sides], mode="symmetric")
    spread = np.zeros_like(mirrored)
    spread[: kernel.shape[0], : kernel.shape[1]] = kernel
    spread = np.roll(spread, [-(side // 2) for side in kernel.shape], axis=(0, 1))
    periodic = np.fft.irfft2(np.fft.rfft2(mirrored) * np.fft.rfft2(spread), s=mirrored.shape)
    from_border = [np.arange(length) + 0.5 for length in mirrored.shape]
    rows, columns = (
        np.minimum(1, np.minimum(near, near[::-1]) / side) for near, side in zip(from_border, sides, strict=True)
    )
    own = np.outer(rows, columns)
    return own * mirrored + (1 - own) * periodic
