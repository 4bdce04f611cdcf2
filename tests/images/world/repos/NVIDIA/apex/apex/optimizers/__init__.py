import amp_C
