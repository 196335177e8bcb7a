"""Machines to follow docs/cluster.md on by hand, section 1.2 and what comes after it: a laptop and
some nodes, each with a home, an address and processes of its own, reached by ssh from the laptop.

    python -m testbed.rig.by_hand FOLDER            # by root; ends them at ctrl-C or SIGTERM

It prints how to enter each; `kill -9 -$(cat FOLDER/node2.pid)` is a power cut, and after
`touch FOLDER/node2.on` the machine starts again, with its disk. Everyone is `ubuntu` there, the
laptop has this project in ~/bitfront and a key for the nodes, /mnt/shared is one folder on all.
What a machine of one's own would have and these have not is stood in for:
`python3.11 -m venv` makes an environment that finds this one's libraries (there is no network to
the outside), `sudo` asks nothing, `systemctl` starts PostgreSQL and what head.sh installs. sshd and
rsync are looked for in PATH and below --tools, into which Debian's packages openssh-server,
libwrap0, rsync and libpopt0 were unpacked (`dpkg -x`)."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from testbed.rig.machines import Machine, Network, machines_work
from testbed.rig.nodes import ROOT

HOME = "/home/ubuntu"
PATHS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Folders each has of its own, beside those of every machine, and who owns what is in them.
OWN = ("/run", "/mnt", "/etc/postgresql", "/etc/systemd/system", "/var/lib/postgresql")
POSTGRES = ("run/postgresql", "etc/postgresql", "var/lib/postgresql")
ACCOUNTS = f"ubuntu:x:0:0::{HOME}:/bin/bash\nsshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
# On a busy machine Ray gives up early, ends workers where others fill the memory, and lets its
# workers, which are polite, wait for all others.
SETTINGS = """\
export RAY_memory_monitor_refresh_ms=0 RAY_raylet_start_wait_time_s=300 RAY_worker_niceness=0
"""
LAPTOP = "laptop"
# Where the tools are on a machine.
TOOLS = "/usr/local/sbin"

# `python3.11`: an environment it makes finds libraries that are here, and asks nobody for others.
PYTHON = """\
#!/bin/bash
{python} "$@" || exit
[[ "$1 $2" == "-m venv" ]] || exit 0
venv=$(realpath "${{@: -1}}")
rm -rf "$venv/lib/{version}/site-packages/setuptools"*  # older than what is here
printf '%s\\n' {libraries} > "$venv/lib/{version}/site-packages/libraries.pth"
printf '[global]\\nno-index = true\\ndisable-pip-version-check = true\\n' > "$venv/pip.conf"
printf '[install]\\nno-build-isolation = false\\n' >> "$venv/pip.conf"
for script in {scripts}; do
  sed "1s|.*|#!$venv/bin/python|" "$script" > "$venv/bin/${{script##*/}}"
  chmod +x "$venv/bin/${{script##*/}}"
done
"""
SUDO = """\
#!/bin/bash
user=
while [[ $1 == -* ]]; do [[ $1 == -u ]] && { user=$2; shift; }; shift; done
[[ -z $user ]] && exec "$@"
cd / && exec setpriv --reuid="$user" --regid="$user" --init-groups "$@"
"""
SYSTEMCTL = """\
#!/bin/bash
for unit; do :; done
file=/etc/systemd/system/$unit.service
case $1 in
  enable)
    [[ $unit == postgresql ]] || exit 0
    version=$(ls /usr/lib/postgresql | tail -1)
    pg_lsclusters -h | grep -q . || pg_createcluster "$version" main > /dev/null
    pg_lsclusters -h | grep -q online || pg_ctlcluster "$version" main start ;;
  stop | restart | start)
    [[ ! -e /run/$unit.pid ]] || kill -- "-$(cat "/run/$unit.pid")" 2> /dev/null
    [[ $1 != stop ]] || exit 0
    run=$(sed -z 's/\\\\\\n//g' "$file" | sed -n 's/^ExecStart=//p')
    settings=$(sed -n 's/^Environment=//p' "$file")
    setsid bash -c "echo \\$\\$ > /run/$unit.pid; exec env $settings $run" \\
      > "/run/$unit.log" 2>&1 < /dev/null & ;;
esac
"""
SSHD = """\
Port 22
HostKey /usr/local/sbin/host_key
AuthorizedKeysFile /usr/local/sbin/key.pub .ssh/authorized_keys
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
AllowTcpForwarding yes
"""


def found(name: str, tools: Path) -> str | None:
    """The program of this name, in PATH or unpacked below `tools`."""
    below = [str(p) for p in sorted(tools.rglob(f"*bin/{name}")) if p.is_file()]
    return shutil.which(name) or next(iter(below), None)


def make_tools(folder: Path, tools: Path) -> None:
    """The programs that stand in for what machines of one's own have."""
    place = folder / "sbin"
    place.mkdir()
    beside = Path(sys.executable).parent
    scripts = [beside / name for name in ("ray", "mlflow", "jupyter", "pytest")]
    texts = {
        "python3.11": PYTHON.format(
            python=Path(sys.base_prefix) / "bin" / "python3.11",
            libraries=" ".join(p for p in sys.path if p.endswith("site-packages")),
            version="python3.11",
            scripts=" ".join(str(script) for script in scripts if script.exists()),
        ),
        "sudo": SUDO,
        "systemctl": SYSTEMCTL,
    }
    (place / "lib").mkdir()
    for library in tools.rglob("*.so*"):
        shutil.copy(library, place / "lib" / library.name)
    for name in ("rsync", "sshd"):
        program = found(name, tools)
        if program is not None:
            shutil.copy(program, place / "lib" / name)
            text = f'LD_LIBRARY_PATH={TOOLS}/lib exec {TOOLS}/lib/{name} "$@"'
            texts[name] = f"#!/bin/sh\n{text}\n"
    for name in ("key", "host_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
        subprocess.run(command, check=True)
    texts["sshd_config"] = SSHD
    for name, text in texts.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)


class Place(Machine):
    """A machine somebody may enter."""

    home = HOME
    own = (*OWN, *Machine.own)

    def prepare(self) -> list[str]:
        shared = self.folder.parent / "shared"
        settings = self.folder / self.home[1:] / ".bashrc"
        if not settings.exists():
            settings.write_text(SETTINGS)
        (self.folder / "mnt" / "shared").mkdir(exist_ok=True)
        shutil.rmtree(self.folder / "run")  # what ran before a power cut
        (self.folder / "run" / "sshd").mkdir(parents=True)
        for name in POSTGRES:
            (self.folder / name).mkdir(exist_ok=True)
            shutil.chown(self.folder / name, "postgres", "postgres")
        accounts = self.folder / "passwd"
        accounts.write_text(ACCOUNTS + Path("/etc/passwd").read_text())
        return [
            f"mount --bind {shared} {self.folder}/mnt/shared",
            f"mount --bind {accounts} /etc/passwd",
            f"mount --rbind {self.folder.parent}/sbin /usr/local/sbin",
        ]


def serve_ssh(network: Network, number: int) -> None:
    """Let the machine be reached by ssh; it ends with the machine."""
    command = [*network.inside(number), f"{TOOLS}/lib/sshd", "-f", f"{TOOLS}/sshd_config"]
    libraries = {"LD_LIBRARY_PATH": f"{TOOLS}/lib"}
    subprocess.run(command, check=True, env={"PATH": PATHS, **libraries})


def enter(machine: Machine, script: Path) -> None:
    """Write the command that enters a machine, or runs something there."""
    settings = {"HOME": HOME, "USER": "ubuntu", "LANG": "C.UTF-8", "PATH": PATHS}
    given = " ".join(f"{name}={text}" for name, text in settings.items())
    inside = shlex.join(machine.inside())
    script.write_text(
        f'#!/bin/sh\n[ $# -gt 0 ] && set -- -c "$*"\n'
        f'exec {inside} env -i TERM="$TERM" {given} bash -l "$@"\n'
    )
    script.chmod(0o755)


def start(network: Network, number: int, name: str) -> None:
    """Start a machine, and what may be reached on it."""
    folder = network.folder
    machine = network.start(number, name)
    # Ray takes for its address the one from which this leads outside.
    subprocess.run(
        [*network.inside(number), "ip", "route", "add", "default", "via", network.outside],
        check=True,
    )
    enter(machine, folder / f"enter-{name}")
    (folder / f"{name}.pid").write_text(str(machine.group))
    print(f"{name}: {network.host(number)}   {folder}/enter-{name}", flush=True)
    if name != LAPTOP and (folder / "sbin" / "sshd").exists():
        serve_ssh(network, number)


def start_again(network: Network, number: int, name: str) -> None:
    """Start a machine whose power was cut, once somebody asks for it."""
    asked = network.folder / f"{name}.on"
    if asked.exists():
        asked.unlink()
        network.kill(number)  # where it runs, it is started anew
        start(network, number, name)


def copy_project(home: Path) -> None:
    """This project, as somebody would clone it."""
    files = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(files, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        target = home / "bitfront" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(ROOT / name):
            shutil.copy2(ROOT / name, target, follow_symlinks=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="a new one")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--tools", type=Path, default=Path("/nowhere"), metavar="FOLDER")
    args = parser.parse_args()
    if not machines_work():
        sys.exit("only root may make machines, where namespaces are allowed")
    folder = args.folder.absolute()
    (folder / "shared").mkdir(parents=True)
    make_tools(folder, args.tools.absolute())
    with Network(folder, Place) as network:
        names = [LAPTOP, *(f"node{number}" for number in range(1, args.nodes + 1))]
        for number, name in enumerate(names):
            start(network, number, name)
        home = folder / LAPTOP / HOME[1:]
        (home / ".ssh").mkdir(mode=0o700)
        shutil.copy(folder / "sbin" / "key", home / ".ssh" / "id_ed25519")
        copy_project(home)
        print("ctrl-C ends them and what runs there", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            while True:
                time.sleep(1)
                for number, name in enumerate(names):
                    start_again(network, number, name)
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    assert sysconfig.get_python_version() == "3.11", "the page says 3.11"
    sys.exit(main())
