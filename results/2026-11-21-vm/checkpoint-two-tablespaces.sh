#!/bin/bash
# Two tablespaces on two loop devices with unequal limits on writes (cgroup v1, blkio), sorted beside
# balanced. As root, with `forebay` on the path; needs 12 GiB of sparse files under $WORK.
set -e
W=${WORK:-/var/tmp/two-tablespaces}; mkdir -p "$W/a" "$W/b"
for x in a b; do
  [ -f "$W/$x.img" ] || { truncate -s 6G "$W/$x.img"; mkfs.ext4 -q -F "$W/$x.img"; }
done
A=$(losetup --find --show --direct-io=on "$W/a.img"); B=$(losetup --find --show --direct-io=on "$W/b.img")
mount "$A" "$W/a"; mount "$B" "$W/b"
G=/sys/fs/cgroup/blkio/forebay; mkdir -p $G
trap 'set +e; umount "$W/a" "$W/b"; losetup -d "$A" "$B"; rmdir $G' EXIT
echo "$(cat /sys/block/"$(basename "$A")"/dev) 104857600" > $G/blkio.throttle.write_bps_device
echo "$(cat /sys/block/"$(basename "$B")"/dev) 52428800" > $G/blkio.throttle.write_bps_device
bash -c 'echo $$ > /sys/fs/cgroup/blkio/forebay/cgroup.procs; exec "$@"' _ \
  forebay lab checkpoint --dir "$W/a" --dir2 "$W/b" --patterns two-tablespaces \
  --elevators sorted,balanced --combine on --cache direct --backends uring \
  --size 1GiB --dirty 32768 --rounds 1 --interval 3s --json "$W/checkpoint.json"
