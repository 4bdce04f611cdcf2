"""What Slipway builds: from a stack's YAML to images, their tags, and what a preview shows as changed.

One way through: :mod:`stacks.config` reads the YAML into typed models. :mod:`stacks.flavors` turns them into
:mod:`stacks.spec`. :mod:`stacks.lock` pins what others publish. :mod:`stacks.checks` looks for mistakes.
:mod:`stacks.identity` computes each image's fingerprint. :mod:`stacks.plan` names it, ready to build. Nothing here
imports Pulumi, talks to a network, or runs a program other than git.
"""
