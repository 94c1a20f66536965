"""Structured configuration: one dataclass per config node, every field with its meaning, unit and range.

The dataclasses are Hydra schemas, stored in the ConfigStore as ``base_<stage>`` and named first in the defaults list
of each stage's YAML file, so that composing already checks names and types. Ranges stand in the fields, what only
several fields can tell in a ``check`` method beside them; ``foretail.pipelines.settings`` applies both after composing.
Fields without a default are ``MISSING``: a YAML file has to set them.
"""
