"""How far apart two colours look, also to readers who lack one kind of cone.

Full dichromacy after Machado, Oliveira and Fernandes (2009), distance in CIELAB (1976). A distance
of 10 is plain to see side by side.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.draw.style import channels

VISION = {
    "ordinary": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = np.array([0.9505, 1.0, 1.089])


def distance(one: str, other: str, vision: str) -> float:
    return float(np.linalg.norm(_lab(one, vision) - _lab(other, vision)))


def _lab(colour: str, vision: str) -> NDArray[np.float64]:
    values = np.array(channels(colour)) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    xyz = _XYZ @ seen / _WHITE
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
