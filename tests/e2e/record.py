#!/usr/bin/env python3
"""Records a node of a bed, while jobs run on it, as a fixture machine (tests/fixtures/README.md)."""

import argparse
import contextlib
import io
import pathlib
import sys
import tarfile
import time

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tools"))

from archive import Archive  # noqa: E402
from testbed import beds, devices  # noqa: E402
from testbed.processes import exit_on_signals  # noqa: E402

_SNAPSHOT = pathlib.Path(__file__).with_name("testbed") / "snapshot.py"
_JOB = """srun --overlap -n1 sleep 600 &
srun --overlap -n$SLURM_NTASKS sh -c 'head -c 4M /dev/zero > /tmp/io.$$; rm /tmp/io.$$; while :; do :; done' &
sleep 600
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bed", choices=list(beds.ALL), required=True)
    parser.add_argument("--idle", action="store_true", help="record the node without jobs")
    parser.add_argument("--devices", action="store_true", help="with every device of testbed/devices.py")
    parser.add_argument("--settle", type=float, default=10, help="seconds from the jobs' start to the recording")
    parser.add_argument("directory", type=pathlib.Path, help="where machine.txt is written; its name is the machine's")
    options = parser.parse_args()
    exit_on_signals()
    with contextlib.ExitStack() as held:
        bed = held.enter_context(beds.ALL[options.bed]())
        version, kernel = bed.run("slurmd -V").strip(), bed.run("uname -r").strip()
        about = [options.directory.name, f"{version}, cgroup {bed.cgroup}, kernel {kernel}."]
        if options.devices:
            about += make_devices(bed, held)
        if not options.idle:
            about += start_jobs(bed, options.settle)
        about.append("Recorded by tests/e2e/record.py.")
        archive = to_archive(snapshot(bed))
    options.directory.mkdir(parents=True, exist_ok=True)
    (options.directory / "machine.txt").write_text(archive.text("\n".join(about)))


def start_jobs(bed, settle):
    """Starts one job of each user, with several steps; returns the lines that describe them."""
    gpus = ("--gres=gpu:1",) if bed.has_gpus else ()
    jobids = bed.slurm.submit_all([
        (bed.users[0], _JOB, ("--mem=300", f"-n{bed.cpus - 1}", *gpus)),
        (bed.users[1], _JOB, ("--mem=200", "-n1", *gpus))])
    jobs = bed.slurm.wait_running(len(jobids))
    time.sleep(settle)
    return [f"Job {jobid} of {job['UserId']}: {job['NumCPUs']} CPUs, {job['MinMemoryNode']} asked for, "
            f"{'one GPU, ' if gpus else ''}steps batch, extern, 0, 1." for jobid, job in sorted(jobs.items())]


def make_devices(bed, held):
    """Creates devices with some traffic, until `held` is closed; returns the lines that describe them."""
    rapl = held.enter_context(devices.rapl(bed))
    adapters = held.enter_context(devices.infiniband(bed, count=2))
    held.enter_context(devices.soft_roce(bed))
    cable = held.enter_context(devices.veth(bed))
    mount = held.enter_context(devices.nfs(bed, "4.2"))
    adapters.move(received=3 << 30, transmitted=5 << 30)
    adapters.move(received=7 << 20, transmitted=2 << 20, adapter=1)
    devices.roce_pingpong(bed)
    bed.run(cable.ask(100, sent=1000, answered=300))
    for command in (devices.write_file(f"{mount}/file", 2), devices.read_file(f"{mount}/file", 2),
                    devices.write_file(f"/dev/{bed.spare_disk}", 3), devices.read_file(f"/dev/{bed.spare_disk}", 1)):
        bed.run(command)
    watts = ", ".join(f"{domain} {socket}: {value} W" for (domain, socket), value in rapl.watts.items())
    return [f"Energy counters of modules that draw a constant power ({watts}).",
            "InfiniBand adapters mlx5_0 and mlx5_1, of a module with counters set by the recorder: mlx5_0 received 3 GiB and "
            "sent 5 GiB,",
            "mlx5_1 received 7 MiB and sent 2 MiB; rxe0 is the kernel's soft-RoCE on eth0.",
            f"{cable.interface} sent 100 datagrams of 1000 bytes and received as many of 300. {mount} is NFS 4.2 of the "
            "machine itself:",
            f"2 MiB written and 2 MiB read with O_DIRECT. {bed.spare_disk}: 3 MiB written, 1 MiB read."]


def snapshot(bed):
    """A tar archive of the bed's files, as bytes."""
    script, output = f"{bed.inside}/snapshot.py", f"{bed.inside}/snapshot.tar"
    bed.agent.put(script, _SNAPSHOT.read_bytes(), 0o755)
    bed.run(f"{script} {bed.cgroup_root} {' '.join(bed.scopes(bed.nodes[0]))} > {output}")
    return bed.agent.get(output)


def to_archive(tar):
    """The same files as an `Archive`."""
    archive = Archive()
    # Every fixture machine has these directories, even if they are empty.
    archive.dir("run/jobledger/jobs")
    archive.dir("dev")
    with tarfile.open(fileobj=io.BytesIO(tar)) as members:
        for member in members:
            owner = (member.uid, member.gid) if member.uid or member.gid else None
            # World-readable is the archive's default; the kernel's other mode bits do not matter.
            mode = None if member.mode & 0o004 else member.mode
            if member.issym():
                archive.link(member.name, member.linkname)
            elif member.isdir():
                archive.dir(member.name, owner, mode)
            else:
                content = members.extractfile(member).read()
                archive.file(member.name, content, owner, mode)
    return archive


if __name__ == "__main__":
    sys.exit(main())
