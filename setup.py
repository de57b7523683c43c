"""Puts the workflow into the wheel, where `opcost run` finds it (opcost.runs.workflow)."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

WORKFLOW = ("Snakefile", "workflow/**/*", "profiles/**/*", "envs/*", "scripts/*.py")


class BuildWithWorkflow(build_py):
    """Copies the workflow into the package; an editable installation uses the one of its clone."""

    def run(self) -> None:
        """Build the package, then add the workflow."""
        super().run()
        if not self.editable_mode:
            for source, target in self._workflow().items():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """The package's files, and those of the workflow."""
        return [*super().get_outputs(include_bytecode), *map(str, self._workflow().values())]

    def _workflow(self) -> dict[Path, Path]:
        folder = Path(self.build_lib, "opcost", "installed")
        found = (path for pattern in WORKFLOW for path in Path().glob(pattern))
        return {path: folder / path for path in found if path.is_file() and path.suffix != ".pyc"}


setup(cmdclass={"build_py": BuildWithWorkflow})
