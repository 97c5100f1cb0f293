"""Lines of shell that put a file system over the current directory, for the fixture `mounted`."""

FULL_DISK = "mount -t tmpfs -o size=64k none . && cd $PWD && { cat /dev/zero > filler 2> /dev/null || true; }"
READ_ONLY = "mount -t tmpfs -o size=64k,ro none ."
OVERLAY = (
    "mount -t tmpfs -o size=1m none . && cd $PWD && mkdir low up work"
    " && mount -t overlay -o lowerdir=low,upperdir=up,workdir=work none ."
)
