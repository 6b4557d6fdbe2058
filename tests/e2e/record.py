#!/usr/bin/env python3
"""Records a node of a bed, while jobs run on it, as a fixture machine (tests/fixtures/README.md)."""

import argparse
import io
import pathlib
import sys
import tarfile
import time

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tools"))

from archive import Archive  # noqa: E402
from testbed import beds  # noqa: E402
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
    parser.add_argument("--settle", type=float, default=10, help="seconds from the jobs' start to the recording")
    parser.add_argument("directory", type=pathlib.Path, help="where machine.txt is written; its name is the machine's")
    options = parser.parse_args()
    exit_on_signals()
    with beds.ALL[options.bed]() as bed:
        version, kernel = bed.run("slurmd -V").strip(), bed.run("uname -r").strip()
        about = [options.directory.name, f"{version}, cgroup {bed.cgroup}, kernel {kernel}."]
        if not options.idle:
            about += start_jobs(bed, options.settle)
        about.append("Recorded by tests/e2e/record.py.")
        archive = to_archive(snapshot(bed))
    options.directory.mkdir(parents=True, exist_ok=True)
    (options.directory / "machine.txt").write_text(archive.text("\n".join(about)))


def start_jobs(bed, settle):
    """One job of each user, of several steps; answers the lines that describe them."""
    gpus = ("--gres=gpu:1",) if bed.has_gpus else ()
    jobids = bed.slurm.submit_all([
        (bed.users[0], _JOB, ("--mem=300", f"-n{bed.cpus - 1}", *gpus)),
        (bed.users[1], _JOB, ("--mem=200", "-n1", *gpus))])
    jobs = bed.slurm.wait_running(len(jobids))
    time.sleep(settle)
    return [f"Job {jobid} of {job['UserId']}: {job['NumCPUs']} CPUs, {job['MinMemoryNode']} asked for, "
            f"{'one GPU, ' if gpus else ''}steps batch, extern, 0, 1." for jobid, job in sorted(jobs.items())]


def snapshot(bed):
    """The bytes of the tar archive that the bed makes of itself."""
    script, output = f"{bed.inside}/snapshot.py", f"{bed.inside}/snapshot.tar"
    bed.agent.put(script, _SNAPSHOT.read_bytes(), 0o755)
    bed.run(f"{script} {bed.cgroup_root} {' '.join(bed.scopes(bed.nodes[0]))} > {output}")
    return bed.agent.get(output)


def to_archive(tar):
    """The same files as a fixture machine."""
    archive = Archive()
    with tarfile.open(fileobj=io.BytesIO(tar)) as members:
        for member in members:
            owner = (member.uid, member.gid) if member.uid or member.gid else None
            # What everybody may read is the archive's default; the kernel's finer points are not.
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
