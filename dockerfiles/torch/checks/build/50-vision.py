#!/usr/bin/env python3
"""torchvision's compiled operators run: boxes are suppressed, an image survives PNG."""

import sys

import torch
import torchvision

boxes = torch.tensor([[0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]], dtype=torch.float32)
kept = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), iou_threshold=0.5)
if kept.tolist() != [0, 2]:
    sys.exit(f"nms kept the boxes {kept.tolist()}, not [0, 2]")

image = torch.arange(3 * 8 * 8, dtype=torch.uint8).reshape(3, 8, 8)
if not torch.equal(torchvision.io.decode_png(torchvision.io.encode_png(image)), image):
    sys.exit("an image is another one after encode_png and decode_png")
