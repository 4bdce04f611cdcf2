import numpy
import torch


def nms(boxes, scores, iou_threshold):
    kept, box = [], boxes.array
    area = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
    for index in numpy.argsort(-scores.array):
        for other in kept:
            low, high = numpy.maximum(box[index, :2], box[other, :2]), numpy.minimum(box[index, 2:], box[other, 2:])
            both = numpy.prod(numpy.clip(high - low, 0, None))
            if both / (area[index] + area[other] - both) > iou_threshold:
                break
        else:
            kept.append(int(index))
    return torch.tensor(kept, dtype=int)
