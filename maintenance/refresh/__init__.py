"""The releases that public sources have and the tables of ``stacks/versions`` lack."""
