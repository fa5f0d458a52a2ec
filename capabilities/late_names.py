"""Names of a package that are loaded when they are first used (PEP 562).

A program pays for the modules that it uses, not for all there are. Must not know any name or module.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def late_names(
    package: str, module_of: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for the package of that name.

    `module_of` says for each public name in which module of the package it is defined. A name that is the
    module's own stands for the module. No other name may be that of a module: importing a module sets it
    as an attribute of its package, and that would hide what is meant.

    A name is looked up once; from then on it is an ordinary attribute.
    """

    def get(name: str) -> object:
        """Load a public name.

        Raises:
            AttributeError: no such name.
        """
        home = sys.modules[package]
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=home)
        module = import_module(f".{module_of[name]}", package)
        value: object = module if module_of[name] == name else getattr(module, name)
        setattr(home, name, value)
        return value

    def names() -> list[str]:
        """List the public names, loaded or not, and what else the package holds."""
        return sorted({*vars(sys.modules[package]), *module_of})

    return get, names
