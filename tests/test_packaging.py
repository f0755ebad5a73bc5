"""The wheel, used from another directory; `make` with Pythons that are too old, incomplete, or good."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
POSIX = pytest.mark.skipif(os.name != "posix", reason="make and sh")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    [wheel] = folder.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "onn_runner/conf/config.yaml" in names
    assert not any(name.startswith(("conf/", "tests/")) for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    site = folder / "site"
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", site, wheel)
    return site


def run(*command: object, **settings: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **settings)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@POSIX
def test_the_wheel_works_from_another_directory(installed: Path, tmp_path: Path) -> None:
    settings = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(installed)}}
    programs = installed / "bin"
    where = run(sys.executable, "-c", "from onn_runner.cli import catalogue as c; print(c.config_folder())", **settings)
    assert Path(where.stdout.strip()) == installed / "onn_runner" / "conf"
    assert "ops=sine,exp" in run(programs / "onn-run", "--help", **settings).stdout
    assert "sine" in run(programs / "onn", "list", "operators", **settings).stdout
    assert "exp: ${operators.exp}" in run(programs / "onn-run", "ops=sine,exp", "--cfg", "job", **settings).stdout
    assert list(tmp_path.iterdir()) == []


def test_constraints_are_exact_and_hold_on_every_system() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 for line in lines)
    names = {line.split("==")[0].lower().replace("_", "-") for line in lines}
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton"))]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    for requirement in wanted:
        name = requirement.split("=")[0].split(">")[0].split("<")[0].strip()
        assert name in names, f"{name} is not in constraints.txt"


FAKE_PYTHON = """#!{shell}
# A Python for the tests of the set-up: it notes what it is asked for.
case "$*" in
    *version_info*) echo {version} ;;
    *ensurepip*) exit {ensurepip} ;;
    "-m venv --clear "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    "-m pip install "*)
        echo "$*" >> "{log}"
        [ -e "{broken}" ] && exit 1
        printf '#!{shell}\\necho "onn-run $*"\\n' > "${{0%/*}}/onn-run"
        chmod +x "${{0%/*}}/onn-run" ;;
    *pytest*) echo "1 passed" ;;
    *) exit 9 ;;
esac
"""


class Workshop:
    """A copy of what the set-up needs, with a PATH that holds no Python but the ones made here."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.log = folder / "pip.log"
        self.broken = folder / "broken"
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.project / "scripts").mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "scripts/setup.sh"):
            shutil.copy(ROOT / name, self.project / name)
        for tool in ("sh", "mkdir", "cp", "chmod", "touch", "awk", "make", "rm", "find", "cat"):
            found = shutil.which(tool)
            assert found is not None, f"{tool} is needed"
            (self.bin / tool).symlink_to(found)

    def python(self, name: str, version: str, *, ensurepip: bool = True) -> None:
        path = self.bin / name
        path.write_text(
            FAKE_PYTHON.format(
                shell=shutil.which("sh"),
                version=version,
                ensurepip=int(not ensurepip),
                log=self.log,
                broken=self.broken,
            )
        )
        path.chmod(0o755)

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin), "HOME": str(self.project)}
        return subprocess.run(
            [self.bin / "make", *words],
            cwd=self.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    @property
    def installations(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@POSIX
def test_python_too_old(workshop: Workshop) -> None:
    workshop.python("python3", "3.9")
    workshop.python("python3.12", "2.7")
    done = workshop.make("run")
    assert done.returncode != 0
    assert "needs Python 3.11, 3.12 or 3.13; found: python3.12 (2.7) python3 (3.9)" in done.stderr
    assert "Install one" in done.stderr
    assert "make run PYTHON=" in done.stderr
    assert workshop.installations == []
    assert not (workshop.project / ".venv").exists()


@POSIX
def test_python_too_new_or_missing(workshop: Workshop) -> None:
    assert "found: no Python at all" in workshop.make("test").stderr
    workshop.python("python3", "3.15")
    assert "found: python3 (3.15)" in workshop.make("test").stderr


@POSIX
def test_python_without_venv(workshop: Workshop) -> None:
    workshop.python("python3", "3.12", ensurepip=False)
    done = workshop.make("run")
    assert done.returncode != 0
    assert "python3 (3.12), but without the modules venv and ensurepip" in done.stderr
    assert "apt install python3-venv" in done.stderr


@POSIX
def test_the_first_complete_python_is_taken(workshop: Workshop) -> None:
    workshop.python("python3.13", "3.13", ensurepip=False)
    workshop.python("python3.11", "3.11")
    workshop.python("python3", "3.12")
    done = workshop.make("run")
    assert done.returncode == 0, done.stderr
    assert "making .venv with python3.11 (3.11)" in done.stdout


@POSIX
def test_it_is_installed_once_and_again_after_a_change(workshop: Workshop) -> None:
    workshop.python("python3", "3.12")
    first = workshop.make("run")
    assert first.returncode == 0, first.stderr
    assert "onn-run model=onn ops=sine,exp data=denoise" in first.stdout
    assert [line.split("--editable ")[1] for line in workshop.installations] == [". --constraint constraints.txt"]
    second = workshop.make("run", "ARGS=model=conv seed=3")
    assert second.stdout == "onn-run model=conv seed=3\n"
    assert len(workshop.installations) == 1
    assert "1 passed" in workshop.make("test").stdout
    assert "--editable .[dev] " in workshop.installations[1]
    workshop.make("test")
    workshop.make("run")
    assert len(workshop.installations) == 2
    changed = workshop.project / "constraints.txt"
    later = (workshop.project / ".venv" / ".installed").stat().st_mtime + 5
    os.utime(changed, (later, later))
    assert workshop.make("run").returncode == 0
    assert len(workshop.installations) == 3


@POSIX
def test_a_failed_installation_is_done_again(workshop: Workshop) -> None:
    workshop.python("python3", "3.12")
    workshop.broken.touch()
    done = workshop.make("run")
    assert done.returncode != 0
    assert "the installation failed" in done.stderr
    assert not (workshop.project / ".venv" / ".installed").exists()
    workshop.broken.unlink()
    assert workshop.make("run").returncode == 0
    assert len(workshop.installations) == 2


@POSIX
def test_make_lists_its_targets(workshop: Workshop) -> None:
    for done in (workshop.make(), workshop.make("help")):
        assert done.returncode == 0
        listed = {line.split()[0] for line in done.stdout.splitlines()[1:]}
        assert {"help", "run", "test", "check", "format", "tensorboard", "clean"} <= listed
    lines = (ROOT / "Makefile").read_text().splitlines()
    phony = next(line for line in lines if line.startswith(".PHONY:")).split()[1:]
    assert set(phony) == listed
