"""Stand-in of the launcher's program: imports what the real one does, and says which container it starts."""

import hera.workflows  # noqa: F401
import hydra
import kubeflow.training  # noqa: F401
import omegaconf
import tqdm  # noqa: F401
import zstandard  # noqa: F401


@hydra.main(config_path="conf", config_name="config", version_base="1.2")
def main(config: omegaconf.DictConfig) -> None:
    print(config.container)


main()
