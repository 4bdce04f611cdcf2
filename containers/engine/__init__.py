"""Docker engines: how they are reached, pools of them, their images, and pushes with layers compressed here."""
