"""How long an image takes from its digest to the first useful step, measured on this machine."""
