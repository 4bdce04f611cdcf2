"""The docker provider: `docker:index/image:Image` and `getRegistryImage`, as in the official plugin.

It is the substitute where the official plugin is not available: same token, same inputs, same outputs, same state. It
uses the Docker Engine's HTTP API and needs no docker command.

Where it is better on purpose:

- `Cancel` (Ctrl-C) ends the build, in the engine too; a failed build quotes the failing step's last lines; a failed
  push says what to do.
- Unknown inputs (the arguments, the network, ...) go through a preview; the official plugin crashes there; an unknown
  context has no digest, where the official plugin takes the program's directory in its place.
- Outputs that repeat a secret input are secret, and secrets are masked in a build's output.
- `disableDockerDaemonCheck` counts for images, too.
- The engine gets exactly what the digest covers: a file that a pattern takes back in below an ignored directory
  is in the context, as with `docker build`.
- Where containerd keeps the images, the pushed digest is read from the push itself.
"""
