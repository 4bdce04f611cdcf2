#!/usr/bin/env python3
"""torchcodec, with which vLLM reads sound and films, has found the image's FFmpeg; vLLM before 0.25 does without it."""

import sys
from importlib.util import find_spec

if find_spec("torchcodec"):
    from torchcodec import ffmpeg_major_version

    if ffmpeg_major_version is None:
        sys.exit("torchcodec can load no FFmpeg")
    print(f"FFmpeg {ffmpeg_major_version}")
