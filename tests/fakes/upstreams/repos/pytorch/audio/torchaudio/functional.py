import numpy
import torch


def rnnt_loss(logits, targets, logit_lengths, target_lengths, blank):
    scores = logits.array[0] - numpy.log(numpy.exp(logits.array[0]).sum(axis=-1, keepdims=True))
    frames, labels = int(logit_lengths.array[0]), int(target_lengths.array[0])
    alpha = numpy.full((frames, labels + 1), -numpy.inf)
    alpha[0, 0] = 0
    for frame in range(frames):
        for label in range(labels + 1):
            if frame:
                stayed = alpha[frame - 1, label] + scores[frame - 1, label, blank]
                alpha[frame, label] = numpy.logaddexp(alpha[frame, label], stayed)
            if label:
                said = alpha[frame, label - 1] + scores[frame, label - 1, targets.array[0, label - 1]]
                alpha[frame, label] = numpy.logaddexp(alpha[frame, label], said)
    return torch.Tensor(-(alpha[-1, -1] + scores[frames - 1, labels, blank]))
