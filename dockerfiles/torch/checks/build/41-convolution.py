#!/usr/bin/env python3
"""Convolutions on the CPU, forward and backward, are right: a box over a plane is its area times the middle."""

import sys

import torch
from torch.nn.functional import conv2d

plane = (torch.arange(32.0)[:, None] * 5 + torch.arange(48.0)).expand(2, 3, 32, 48).clone().requires_grad_()
result = conv2d(plane, torch.ones(4, 3, 3, 3))
if not torch.equal(result, (plane[:, :1, 1:-1, 1:-1] * 27).expand_as(result)):
    sys.exit("a 3 x 3 convolution gives wrong numbers")

# A pixel away from the edge is under nine boxes of each of the four output channels.
result.sum().backward()
if plane.grad is None or not torch.all(plane.grad[:, :, 2:-2, 2:-2] == 36):
    sys.exit("the gradient of a 3 x 3 convolution is wrong")
