"""What answers without torch: help, version, listing, completion; each within its time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onn_runner import __version__
from onn_runner.cli import onn
from onn_runner.cli.catalogue import Catalogue, config_folder, first_comment

PROGRAM = "import sys; from onn_runner.cli.{module} import main; sys.argv[0] = '{name}'; sys.exit(main())"
REPORT = "import atexit, sys; atexit.register(lambda: print('TORCH' if 'torch' in sys.modules else 'LIGHT'));"


def start(module: str, name: str, *typed: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run a console script as a process of its own; with the seconds that it took."""
    code = REPORT + PROGRAM.format(module=module, name=name)
    root = str(Path(__file__).resolve().parents[2])
    before = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *typed],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        timeout=60,
    )
    return done, time.perf_counter() - before


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_answers_within_a_second_without_torch(flag: str) -> None:
    # The best of three: another process may hold the core for a while.
    tries = [start("run", "onn-run", flag) for _ in range(3)]
    assert min(seconds for _, seconds in tries) < 1
    done = tries[0][0]
    assert done.returncode == 0
    assert done.stdout.endswith("LIGHT\n")
    assert "hydra is" not in done.stdout.lower()


def test_config_errors_and_cfg_need_no_torch() -> None:
    refused, _ = start("run", "onn-run", "ops=sine,exq")
    assert refused.returncode == 2
    assert refused.stdout == "LIGHT\n"
    assert "Traceback" not in refused.stderr
    shown, _ = start("run", "onn-run", "--cfg", "job", "model=conv")
    assert shown.returncode == 0
    assert shown.stdout.endswith("LIGHT\n")


def test_help_names_every_group_and_option(onn_run) -> None:
    text = onn_run("--help").out
    for group, options in Catalogue((config_folder(),)).groups.items():
        assert group in text
        for option in options:
            assert option in text
    for line in [
        "onn-run model=onn ops=sine,exp data=denoise",
        "resume=",
        "-m ops=sine,exp",
        "--config-dir",
        "--version",
    ]:
        assert line in text
    assert max(map(len, text.splitlines())) <= 120


def test_help_includes_the_users_options(onn_run, mine: Path) -> None:
    assert "mine," in onn_run("--help", "--config-dir", "mine").out
    answer = onn_run("--config-dir=nowhere", "--help")
    assert answer.code == 2
    assert "there is no such folder" in answer.err


def test_help_wins_over_everything_else(onn_run, runs) -> None:
    assert onn_run("ops=nonsense", "-m", "--help").code == 0
    assert runs.requests == []


def test_versions(onn_run) -> None:
    assert onn_run("--version").out == f"onn-run {__version__}\n"
    assert CliRunner().invoke(onn.app, ["--version"]).output == f"onn {__version__}\n"


def test_hydras_own_help_is_still_there(onn_run) -> None:
    answer = onn_run("--hydra-help")
    assert answer.code == 0
    assert "Hydra" in answer.out


@pytest.mark.parametrize(
    ("kind", "group"),
    [("operators", "ops"), ("ops", "ops"), ("operator", "ops"), ("models", "model"), ("networks", "network"),
     ("data", "data"), ("partitions", "partition"), ("metrics", "metric"), ("optimizers", "optimizer")],
)  # fmt: skip
def test_list_shows_one_line_each(kind: str, group: str) -> None:
    answer = CliRunner().invoke(onn.app, ["list", kind])
    assert answer.exit_code == 0
    options = Catalogue((config_folder(),)).options(group)
    assert [line.split()[0] for line in answer.output.splitlines()] == list(options)
    for line, path in zip(answer.output.splitlines(), options.values(), strict=True):
        assert line.endswith(first_comment(path))


def test_list_shows_everything(mine: Path) -> None:
    answer = CliRunner().invoke(onn.app, ["list", "--config-dir", str(mine)])
    assert answer.exit_code == 0
    for group, options in Catalogue((config_folder(),)).groups.items():
        assert f"({group}=...)" in answer.output
        assert all(f"  {option} " in answer.output for option in options)
    assert "  mine       My operator" in answer.output


@pytest.mark.parametrize("kind", ["data", "scheduler", "schedulers", "trainer"])
def test_list_shows_the_keys_of_an_option_with_their_comments(kind: str) -> None:
    group = kind.removesuffix("s")
    for option, path in Catalogue((config_folder(),)).options(group).items():
        answer = CliRunner().invoke(onn.app, ["list", kind, option])
        assert answer.exit_code == 0
        assert answer.output == f"# onn-run {group}={option} {group}.<key>=<value>\n" + path.read_text(encoding="utf-8")


def test_list_shows_an_option_of_ones_own_and_names_an_unknown_one(mine: Path) -> None:
    answer = CliRunner().invoke(onn.app, ["list", "ops", "mine", "-cd", str(mine)])
    assert answer.output == (mine / "ops" / "mine.yaml").read_text(encoding="utf-8")
    done, _ = start("onn", "onn", "list", "data", "denois")
    assert done.returncode == 2
    assert "unknown data 'denois'. Did you mean denoise" in done.stderr


def test_list_of_an_unknown_kind() -> None:
    done, seconds = start("onn", "onn", "list", "oprators")
    assert done.returncode == 2
    assert done.stdout == "LIGHT\n"
    assert "unknown kind 'oprators'. Did you mean operators" in done.stderr
    assert seconds < 10


def test_an_unknown_verb() -> None:
    answer = CliRunner().invoke(onn.app, ["lst"])
    assert answer.exit_code == 2
    assert "list" in answer.output


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """Console scripts as an installation makes them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in (("onn-run", "run"), ("onn", "onn")):
        script = folder / name
        script.write_text(
            f"#!{sys.executable}\nimport sys\nfrom onn_runner.cli.{module} import main\nsys.exit(main())\n"
        )
        script.chmod(0o755)
    return folder


COMPLETE = """
eval "$({install})"
complete_line() {{
    COMP_LINE="$1" COMP_POINT=${{#1}}
    COMP_WORDS=($1); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
    [[ "$1" == *" " ]] && COMP_CWORD=${{#COMP_WORDS[@]}}
    COMPREPLY=()
    {function} "${{COMP_WORDS[0]}}" "${{COMP_WORDS[COMP_CWORD]}}" "" 2>/dev/null
    echo "${{COMPREPLY[*]}}"
}}
"""


def complete(scripts: Path, install: str, function: str, *lines: str) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    code = COMPLETE.format(install=install, function=function)
    code += "\n".join(f"complete_line '{line}'" for line in lines)
    environment = {
        **os.environ,
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    done = subprocess.run([bash, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_completion_in_a_real_shell(scripts: Path) -> None:
    group, option, listed, key, operator, flag, unfinished = complete(
        scripts,
        "onn-run -sc install=bash",
        "hydra_bash_completion",
        "onn-run mod",
        "onn-run ops=sine,exp model=",
        "onn-run ops=sine,e",
        "onn-run ops=sine,exp trainer.epo",
        "onn-run ops=[sine,si",
        "onn-run --conf",
        "onn-run nonsense=( mod",
    )
    assert "model=" in group.split()
    assert {"model=onn", "model=conv"} <= set(option.split())
    assert listed.split() == ["ops=sine,exp"]
    assert key.split() == ["trainer.epochs="]
    assert operator.split() == ["ops=[sine,sinc", "ops=[sine,sinh"]
    assert flag.split() == ["--config-dir"]
    assert "model=" in unfinished.split()


def test_completion_of_the_users_operators(mine: Path, runs, monkeypatch, capsys) -> None:
    from onn_runner.cli.run import main

    monkeypatch.setenv("COMP_LINE", f"onn-run --config-dir {mine} ops=mi")
    monkeypatch.delenv("COMP_POINT", raising=False)
    assert main(["-sc", "query=bash"]) == 0
    assert capsys.readouterr().out.split() == ["ops=mine"]


def test_completion_of_onn_in_a_real_shell(scripts: Path) -> None:
    install = "_ONN_COMPLETE=source_bash onn"
    assert complete(scripts, install, "_onn_completion", "onn li") == ["list"]
